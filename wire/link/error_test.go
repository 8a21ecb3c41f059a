package link

import (
	"errors"
	"strings"
	"testing"

	"meridian/wire"
)

var errorKind = newKind[Error](TypeError,
	sample{"crc", Frame{Flags: FlagCritical}, Error{Code: wire.CodeCRC, Offset: 1 << 40, Text: "header: crc32c 00000000, computed 1c291ca3"}},
	sample{"bare", Frame{Flags: FlagCritical}, Error{Code: wire.CodeState}},
)

func TestError(t *testing.T) { errorKind.check(t) }

func TestFrameErrorBecomesAnErrorMessage(t *testing.T) {
	_, err := ParseFrame(make([]byte, FrameLen))
	var fe *FrameError
	if !errors.As(err, &fe) || !errors.Is(err, wire.CodeCRC) {
		t.Fatal(err)
	}
	m := fe.Message()
	if m.Code != wire.CodeCRC || m.Offset != 20 || m.Text != fe.Text {
		t.Errorf("%+v", m)
	}
	if s := err.Error(); !strings.Contains(s, "CRC at byte 20: header") {
		t.Errorf("%q does not say code, place and field", s)
	}
}
