package link

import (
	"bytes"
	"testing"

	"meridian/wire"
)

var openedKind = newKind[Opened](TypeOpened,
	sample{"ok", Frame{Req: 1}, Opened{NS: 7}},
	sample{"geometry", Frame{Req: 1}, Opened{Status: wire.CodeGeometry, Field: "block_tokens", Ours: "16", Theirs: "32 \u00b7 \u6f22"}},
	sample{"unknown", Frame{Req: 1}, Opened{Status: wire.CodeNSUnknown}},
)

func TestOpened(t *testing.T) { openedKind.check(t) }

func TestOpenedNeverSaysDenied(t *testing.T) {
	p := Opened{Status: wire.CodeDenied}.Append(nil)
	if !bytes.Equal(p, Opened{Status: wire.CodeNSUnknown}.Append(nil)) {
		t.Errorf("DENIED is written as %x", p)
	}
	if x, err := Parse[Opened](with(p, 2, byte(wire.CodeDenied))); err != nil || x.Status != wire.CodeNSUnknown {
		t.Errorf("DENIED is read as %v, %v", x.Status, err)
	}
}

func TestOpenedRefusesTextsAboveTheLimit(t *testing.T) {
	p := openedKind.payload(1)
	for _, off := range []int{4, 6, 8} {
		openedKind.refuse(t, "257 bytes", with(with(p, off, 1), off+1, 1), wire.CodeLength, uint64(off))
	}
}
