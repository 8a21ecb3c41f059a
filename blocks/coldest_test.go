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

// A ring gets what no block keeps, to the last byte, and a refused one evicts nothing.
func TestARingGetsWhatNoBlockKeeps(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 4*8192 + 100, ExtentBytes: 8192})
	y := &yard{Core: c, t: t, o: c.NewOwner(false), ns: nsOf("n"), tier: wire.OutputCritical, names: map[wire.Ref]string{}}
	y.put(huge, "a", "b", "c")
	y.hold("b")
	if c.SetAside(0, 3*8192+101) == nil {
		t.Error("a byte of a segment whose block is leased")
	}
	if n := len(c.Returned()); n != 0 {
		t.Errorf("a refusal returns %d segments", n)
	}
	y.wantEvicted("a refusal")
	for _, step := range []struct {
		n        uint64
		returned int
		evicted  []string
	}{{100, 0, nil}, {1, 1, nil}, {8191, 0, nil}, {8192, 1, []string{"a"}}, {8192, 1, []string{"c"}}} {
		if c.SetAside(0, step.n) != nil {
			t.Fatalf("%+v is refused", step)
		}
		y.wantEvicted("a ring", step.evicted...)
		if n := len(c.Returned()); n != step.returned {
			t.Errorf("%+v: %d segments returned", step, n)
		}
	}
	if c.SetAside(0, 1) == nil {
		t.Error("a byte of the last segment")
	}
	c.GiveAside(3*8192 + 100)
	if n := c.room(); n != 3 {
		t.Errorf("room for %d extents after the rings", n)
	}
}

// A ring may have the whole capacity where no block is, and not a byte more.
func TestARingMayHaveTheWholeCapacity(t *testing.T) {
	for _, more := range []uint64{1, 0} {
		c := testCore(t, CoreConfig{Capacity: 2 * 8192, ExtentBytes: 8192})
		if got := c.SetAside(0, 2*8192+more) == nil; got != (more == 0) {
			t.Errorf("the capacity and %d bytes more: %v", more, got)
		}
		if more == 0 && (len(c.Returned()) != 2 || c.SegmentExtents() != 0) {
			t.Error("segments beside a ring of the whole capacity")
		}
	}
}
