package link

import (
	"encoding/hex"
	"testing"

	"meridian/wire"
)

var fillKind = newKind[Fill](TypeFill,
	sample{"two blocks", Frame{Req: 59}, Fill{Rsv: 0x0102030405060708, Items: []FillItem{{Item: 1, Len: 65536, Off: 1<<40 + 1}, {Len: 1}}}},
	sample{"the rest is given back", Frame{Req: 61}, Fill{Rsv: 1, Last: true}},
)

func TestFill(t *testing.T) { fillKind.check(t) }

func TestFillItemIs16BytesAsTheProtocolPageSays(t *testing.T) {
	p := Fill{Items: []FillItem{{Item: 0x01020304, Len: 0x11121314, Off: 0x6162636465666768}}}.Append(nil)
	if got, want := hex.EncodeToString(p[fillFixed:]), "04030201"+"14131211"+"6867666564636261"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestFillRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := fillKind.payload(0)
	fillKind.refuse(t, "last 2", with(p, 8, 2), wire.CodeInvalid, 8)
	fillKind.refuse(t, "reserved", with(p, 11, 1), wire.CodeInvalid, 11)
}
