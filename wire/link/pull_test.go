package link

import (
	"testing"

	"meridian/wire"
)

var pullKind = newKind[Pull](TypePull,
	sample{"two blocks", Frame{Req: 21, Class: ClassUrgent}, Pull{DeadlineMS: 2000, LeaseMS: 30000, Items: []Want{
		{NS: 1, Flags: WantKeepLease, Max: 1 << 20, Key: fill[wire.Key](1)},
		{NS: 1, Flags: 0xc000, Off: 4096, Max: 1 << 20, Slot: 9, Gen: 4, Key: fill[wire.Key](33)}}}},
	sample{"none", Frame{Req: 23, Class: ClassBulk}, Pull{}},
)

func TestPull(t *testing.T) { pullKind.check(t) }

func TestPullTakesTheLargestBatchAndNoLarger(t *testing.T) {
	x := Pull{Items: make([]Want, MaxItems)}
	if got, err := Parse[Pull](x.Append(nil)); err != nil || len(got.Items) != MaxItems {
		t.Fatalf("%d items: %v", MaxItems, err)
	}
	x.Items = make([]Want, MaxItems+1)
	pullKind.refuse(t, "one more", x.Append(nil), wire.CodeLength, 8)
}
