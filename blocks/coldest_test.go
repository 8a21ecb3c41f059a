package blocks

import (
	"testing"

	"meridian/wire"
)

// in says which of some keys are there.
func (r *rig) in(names ...string) (there []bool) {
	r.t.Helper()
	for _, n := range names {
		there = append(there, r.Lookup(r.ns, []wire.Key{keyOf(n)}, make([]View, 1)) == 1)
	}
	return there
}

// A ring takes the segment whose last block was used longest ago, wherever it lies.
func TestARingEmptiesTheColdestSegment(t *testing.T) {
	for _, cold := range []int{0, 1} {
		// Two segments of one extent, a block each.
		r := newRig(t, func(c *Config) {
			c.Capacity, c.ExtentBytes, c.StagingBytes = 512<<10, 256<<10, 256<<10
		})
		names := []string{"a", "b"}
		for _, n := range names {
			r.put(n, bodyOf(keyOf(n), 250<<10))
		}
		r.Touch(r.ns, []wire.Key{keyOf(names[1-cold])})
		if _, err := r.Staging(r.o, 256<<10, 256<<10); err != nil {
			t.Fatal(err)
		}
		if got := r.in(names...); got[cold] || !got[1-cold] {
			t.Errorf("block %d was used longest ago; there now: %v", cold, got)
		}
		r.check()
	}
}

// Where room is made for all classes, the blocks of all go in one order: by tier,
// then by use.
func TestRoomForAllIsMadeInTheOrderOfAllClasses(t *testing.T) {
	for _, small := range []bool{true, false} {
		r := newRig(t, nil)
		sizes := map[bool]int{true: 1000, false: 100 << 10}
		r.put("first", bodyOf(keyOf("first"), sizes[small]))
		r.put("second", bodyOf(keyOf("second"), sizes[!small]))
		r.mu.Lock()
		r.core.freeUp(r.core.freeBytes() + 1)
		r.unlock()
		if got := r.in("first", "second"); got[0] || !got[1] {
			t.Errorf("small first %v: the one used longest ago is there: %v, the other: %v", small, got[0], got[1])
		}
		r.Retier(r.ns, []wire.Key{keyOf("second")}, wire.ThinkComplete)
		r.put("older", bodyOf(keyOf("older"), sizes[small]))
		r.Touch(r.ns, []wire.Key{keyOf("second")})
		r.mu.Lock()
		r.core.freeUp(r.core.freeBytes() + 1)
		r.unlock()
		if got := r.in("second", "older"); got[0] || !got[1] {
			t.Errorf("small first %v: the block of the lower tier is there: %v, the older one of the higher: %v", small, got[0], got[1])
		}
		r.check()
	}
}
