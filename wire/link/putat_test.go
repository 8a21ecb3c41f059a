package link

import (
	"testing"

	"meridian/wire"
)

var putAtKind = newKind[PutAt](TypePutAt,
	sample{"pinned, and of a tier that the agent chooses", Frame{Req: 51}, PutAt{DeadlineMS: 1000, Items: []StoreItem{
		{NS: 1, Tier: wire.ThinkActive, Len: 65536, Off: 1 << 20, Key: fill[wire.Key](1), Req: 12, Pos: 96},
		{NS: 2, Tier: TierAuto, Flags: StorePin, Off: 1<<64 - 1, Key: fill[wire.Key](2), Req: 1, Pos: 1<<32 - 1, PinMS: 30000}}}},
	sample{"none", Frame{Req: 53}, PutAt{}},
)

func TestPutAt(t *testing.T) { putAtKind.check(t) }

func TestPutAtRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	refuseStoreItem(t, putAtKind, putAtKind.payload(0), 8)
}
