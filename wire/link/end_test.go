package link

import (
	"bytes"
	"strings"
	"testing"

	"meridian/wire"
)

var endKind = newKind[End](TypeEnd,
	sample{"ok", Frame{Req: 21}, End{}},
	sample{"busy", Frame{Req: 23}, End{Code: wire.CodeBusy, RetryMS: 20, Text: "256 requests in flight"}},
	sample{"item by item", Frame{Req: 25}, End{Status: []wire.Code{wire.CodeOK, wire.CodeChecksum, 42}, Text: "\u00fc"}},
	sample{"unknown code", Frame{Req: 27}, End{Code: 999}},
)

func TestEnd(t *testing.T) { endKind.check(t) }

func TestEndNeverSaysDenied(t *testing.T) {
	p := End{Code: wire.CodeDenied, Status: []wire.Code{wire.CodeOK, wire.CodeDenied}}.Append(nil)
	if !bytes.Equal(p, End{Code: wire.CodeAbsent, Status: []wire.Code{wire.CodeOK, wire.CodeAbsent}}.Append(nil)) {
		t.Errorf("DENIED is written as %x", p)
	}
	p[0], p[14] = byte(wire.CodeDenied), byte(wire.CodeDenied)
	if x, err := Parse[End](p); err != nil || x.Code != wire.CodeAbsent || x.Status[1] != wire.CodeAbsent {
		t.Errorf("DENIED is read as %+v, %v", x, err)
	}
}

func TestEndCutsTextBetweenRunes(t *testing.T) {
	x := End{Text: strings.Repeat("a", MaxText-1) + "\u00fc and more"}
	got, err := Parse[End](x.Append(nil))
	if err != nil || got.Text != strings.Repeat("a", MaxText-1) || x.Length() != endFixed+MaxText-1 {
		t.Errorf("%q, %v, length %d", got.Text, err, x.Length())
	}
	x = End{Text: "bad \xff byte"}
	if got, err = Parse[End](x.Append(nil)); err != nil || got.Text != "bad \uFFFD byte" || x.Length() != len(x.Append(nil)) {
		t.Errorf("%q, %v", got.Text, err)
	}
}

func TestEndRefusesTextThatIsNotUTF8(t *testing.T) {
	p := endKind.payload(1)
	endKind.refuse(t, "ff", with(p, len(p)-1, 0xff), wire.CodeInvalid, endFixed)
}
