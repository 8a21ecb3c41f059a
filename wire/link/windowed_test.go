package link

import (
	"testing"

	"meridian/wire"
)

var windowedKind = newKind[Windowed](TypeWindowed,
	sample{"opened", Frame{Req: 51}, Windowed{Addr: 1 << 46, Len: 1<<20 + 4096, Peer: "10.0.0.1:12001"}},
	sample{"no name", Frame{Req: 51}, Windowed{Addr: 1}},
)

func TestWindowed(t *testing.T) { windowedKind.check(t) }

func TestWindowedRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	windowedKind.refuse(t, "reserved", with(windowedKind.payload(0), 19, 1), wire.CodeInvalid, 19)
}
