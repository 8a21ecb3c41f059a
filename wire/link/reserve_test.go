package link

import (
	"testing"

	"meridian/wire"
)

var reserveKind = newKind[Reserve](TypeReserve,
	sample{"two blocks", Frame{Req: 55}, Reserve{DeadlineMS: 1000, TTLms: 2000, Items: []StoreItem{
		{NS: 1, Tier: wire.OutputCritical, Len: 65536, Key: fill[wire.Key](1), Req: 12},
		{NS: 2, Tier: TierAuto, Flags: StorePin, Len: 1, Key: fill[wire.Key](2), Req: 12, Pos: 32, PinMS: 1}}}},
	sample{"none", Frame{Req: 57}, Reserve{}},
)

func TestReserve(t *testing.T) { reserveKind.check(t) }

func TestReserveRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := reserveKind.payload(0)
	refuseStoreItem(t, reserveKind, p, 12)
	reserveKind.refuse(t, "off of the second item", with(p, 12+60+15, 1), wire.CodeInvalid, 80)
}
