package engine

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"meridian/wire"
)

// Who passes requests on reads and writes the bytes that Target and Segment do.
func TestARequestThatIsPassedOnHasTheBytesOfMooncake(t *testing.T) {
	for _, op := range []byte{0x00, 0x01, 0x80, 0x81} {
		want := Request{Addr: base, Size: 7, Write: op&1 == 1, Acked: op&acked != 0}
		here, there := net.Pipe()
		go func() { _, _ = there.Write(head(op, base, 7)) }()
		got, err := ReadRequest(here)
		if err != nil || got != want || got.Check() != nil {
			t.Errorf("opcode %#02x: %+v, %v", op, got, err)
		}
		if b := got.Append(nil); len(b) != RequestLen || !bytes.Equal(b[:17], head(op, base, 7)[:17]) {
			t.Errorf("opcode %#02x: % x", op, b)
		}
		_ = there.Close()
		if got, err = ReadRequest(here); !errors.Is(err, ErrEnded) || got != (Request{}) {
			t.Errorf("the end: %+v, %v", got, err)
		}
	}
	if (Request{Addr: 1<<64 - 1, Size: 2}).Check() == nil || (Request{Addr: 1}).Check() == nil {
		t.Error("a range that no memory has")
	}
}

func TestAStatusThatIsPassedOn(t *testing.T) {
	if b := AppendStatus(nil); string(b) != statusFine || len(b) != StatusLen {
		t.Errorf("% x", b)
	}
	for sent, want := range map[string]struct {
		ok   bool
		code wire.Code
	}{
		statusFine:                         {true, wire.CodeOK},
		statusNo:                           {false, wire.CodeOK},
		"\x07\x00\x00\x00VTCM":             {false, wire.CodeState},
		"\x00\x00\x00\x00\x00\x00\x00\x00": {false, wire.CodeState},
		"\x00":                             {false, wire.CodeLaneLost},
	} {
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write([]byte(sent))
			_ = there.Close()
		}()
		ok, err := ReadStatus(here, time.Minute)
		if ok != want.ok || wire.CodeOf(err) != want.code {
			t.Errorf("% x: %v, %v", sent, ok, err)
		}
	}
}
