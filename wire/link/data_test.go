package link

import (
	"bytes"
	"errors"
	"testing"

	"meridian/wire"
)

func TestData(t *testing.T) {
	body := []byte("body bytes")
	b := append(AppendData([]byte("before"), Frame{Req: 21, Class: ClassSoon, Arg: 3}, 0x01020304, len(body)), body...)[6:]
	f, err := ParseFrame(b)
	if want := (Frame{Len: uint32(4 + len(body)), Type: TypeData, Class: ClassSoon, Req: 21, Arg: 3}); err != nil || f != want {
		t.Fatalf("%+v, %v", f, err)
	}
	if off, got := le.Uint32(b[FrameLen:]), b[HeadLen:]; off != 0x01020304 || !bytes.Equal(got, body) || int(f.Len) != len(b)-FrameLen {
		t.Errorf("offset %x, body %q", off, got)
	}
}

func TestDataHasOneBodyByteToAChunk(t *testing.T) {
	for n, ok := range map[int]bool{0: false, 1: true, MaxChunk: true, MaxChunk + 1: false} {
		f, err := ParseFrame(AppendData(nil, Frame{Req: 1}, 0, n))
		if ok && (err != nil || int(f.Len) != n+DataPrefixLen) || !ok && !errors.Is(err, wire.CodeLength) {
			t.Errorf("%d body bytes: %+v, %v", n, f, err)
		}
	}
}
