package link

import (
	"testing"

	"meridian/wire"
)

var pushKind = newKind[Push](TypePush,
	sample{"two blocks", Frame{Req: 31, Class: ClassBulk}, Push{DeadlineMS: 9000, Items: []PushItem{
		{NS: 4, Key: fill[wire.Key](5), Have: Have{Tier: wire.ThinkComplete, Att: wire.AttestIngest, Len: 12, Head: fill[[32]byte](6), Slot: 1, Gen: 2}},
		{NS: 65535, Key: fill[wire.Key](7), Have: Have{Tier: wire.OutputCritical, Len: 1 << 31}}}}},
	sample{"none", Frame{Req: 33}, Push{}},
)

func TestPush(t *testing.T) { pushKind.check(t) }

func TestPushRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := pushKind.payload(0)
	pushKind.refuse(t, "reserved in the second item", with(p, 8+84+3, 1), wire.CodeInvalid, 94)
	pushKind.refuse(t, "tier 3", with(p, 8+36+2, 3), wire.CodeInvalid, 46)
	pushKind.refuse(t, "tier 3 in the second item", with(p, 8+84+36+2, 3), wire.CodeInvalid, 130)
}
