package link

import (
	"encoding/hex"
	"testing"

	"meridian/wire"
)

var putKind = newKind[Put](TypePut,
	sample{"two blocks", Frame{Req: 11}, Put{DeadlineMS: 1000, Items: []PutItem{
		{NS: 1, Tier: wire.ThinkActive, Len: 65536, Off: 1 << 20, Key: fill[wire.Key](1), Req: 12},
		{NS: 2, Tier: wire.OutputCritical, Off: 1<<64 - 1, Key: fill[wire.Key](2)}}}},
	sample{"none", Frame{Req: 13}, Put{}},
)

func TestPut(t *testing.T) { putKind.check(t) }

func TestPutItemIs52BytesAsTheProtocolPageSays(t *testing.T) {
	x := PutItem{NS: 0x0102, Tier: 2, Len: 0x11121314, Off: 0x6162636465666768, Key: fill[wire.Key](0xc0), Req: 0x21222324}
	p := make([]byte, putItemLen)
	x.put(p)
	want := "0201" + "02" + "00" + "14131211" + "6867666564636261" + hex.EncodeToString(x.Key[:]) + "24232221"
	if got := hex.EncodeToString(p); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPutRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := putKind.payload(0)
	putKind.refuse(t, "tier 3", with(p, 8+2, 3), wire.CodeInvalid, 10)
	putKind.refuse(t, "reserved in the second item", with(p, 8+52+3, 1), wire.CodeInvalid, 63)
}
