package blocks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/wire"
)

// An extent of 8 KiB has this many slots for bodies of these sizes.
const (
	small = 1000 // 8
	large = 2000 // 4, which hold small bodies too
	huge  = 8192 // 1, too large for a small body
)

// yard is a core of extents of 8 KiB, one a segment, whose blocks have names.
type yard struct {
	*Core
	t     *testing.T
	o     Owner
	ns    wire.Namespace
	tier  wire.Tier           // of what is put next
	names map[wire.Ref]string // of all that was ever put
	grow  bool                // a segment may be made
}

// newYard has all of its memory in segments of one tenant.
func newYard(t *testing.T, extents uint64) *yard {
	t.Helper()
	c := testCore(t, CoreConfig{Capacity: extents * 8192, ExtentBytes: 8192, HoldBytes: 1 << 20, RemoteBlocks: 8})
	if c.geo.segExtents != 1 {
		t.Fatalf("segments of %d extents", c.geo.segExtents)
	}
	return &yard{Core: c, t: t, o: c.NewOwner(false), ns: nsOf("n"), tier: wire.OutputCritical, names: map[wire.Ref]string{}}
}

// tryPut publishes a block of a size under each name.
func (y *yard) tryPut(size uint32, names ...string) error {
	for _, name := range names {
		v, err := y.Reserve(0, y.o, y.ns, y.tier, []uint32{size}, time.Hour, y.grow, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		k := []Commit{{Slot: v[0].Ref.Slot, Key: keyOf(name), Tier: y.tier, Len: size}}
		if y.Commit(0, y.o, k); k[0].Err != nil {
			return fmt.Errorf("%s: %w", name, k[0].Err)
		}
		y.Gens()
		y.names[y.ref(name)] = name
	}
	return nil
}

func (y *yard) put(size uint32, names ...string) {
	y.t.Helper()
	if err := y.tryPut(size, names...); err != nil {
		y.t.Fatal(err)
	}
}

func (y *yard) ref(name string) wire.Ref {
	var v [1]View
	y.Lookup(y.ns, []wire.Key{keyOf(name)}, v[:])
	return v[0].Ref
}

// hold leases blocks for as long as the test runs.
func (y *yard) hold(names ...string) {
	y.t.Helper()
	for _, name := range names {
		v := []View{{NS: y.ns, Key: keyOf(name)}}
		if _, err := y.Acquire(0, y.o, v, time.Hour, false); err != nil || v[0].Err != nil {
			y.t.Fatalf("%s: %v, %v", name, err, v[0].Err)
		}
	}
}

// wantEvicted compares the blocks that went since the last call, in their order.
func (y *yard) wantEvicted(why string, names ...string) {
	y.t.Helper()
	var r Ready
	y.Step(0, Input{}, &r)
	var got []string
	for _, e := range r.Evicted {
		got = append(got, y.names[e.Ref])
	}
	if !slices.Equal(got, names) {
		y.t.Errorf("%s: evicted [%s], want [%s]", why, strings.Join(got, " "), strings.Join(names, " "))
	}
	if err := y.check(); err != nil {
		y.t.Fatal(err)
	}
}

// numbered is a name with each number up to n.
func numbered(name string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(name, i+1))
	}
	return names
}

func TestAFreeSlotOfALargerClassIsTakenBeforeABlockIsEvicted(t *testing.T) {
	y := newYard(t, 2)
	y.put(small, numbered("s", 8)...)
	y.put(large, "l1")
	y.put(small, "s9", "s10", "s11")
	y.wantEvicted("three slots of the larger class are free")
	y.put(small, "s12")
	y.wantEvicted("no slot is free", "s1")
}

// A body takes a slot of at most four times its class: a free one beyond that
// helps nobody but its own class.
func TestASlotThatIsFarTooLargeIsNotTaken(t *testing.T) {
	y := newYard(t, 2)
	y.put(huge, "h1", "h2")
	y.hold("h2")
	y.put(small, numbered("s", 8)...)
	y.wantEvicted("an extent for the small class", "h1")
	y.Discard(y.ns, []wire.Key{keyOf("h2")}) // leased: nothing is free yet
	y.put(small, "s9")
	y.wantEvicted("the only other slot is eight times as large", "s1")
}

// A class takes slots of a larger one, the coldest first, until it has taken as
// many as an extent of its own would have; with the next one it gets that extent.
func TestAClassThatTookEnoughLargerSlotsGetsAnExtent(t *testing.T) {
	y := newYard(t, 2)
	y.put(large, numbered("l", 8)...)
	y.put(small, numbered("s", 8)...)
	y.wantEvicted("eight small blocks, each in the slot of the coldest", numbered("l", 8)...)
	y.put(small, "s9")
	y.wantEvicted("the ninth takes the coldest extent", "s1", "s2", "s3", "s4")
	y.put(small, numbered("t", 7)...)
	y.wantEvicted("that extent has seven more")
	y.put(small, "u1")
	y.wantEvicted("the other extent is colder than its own blocks", "s5", "s6", "s7", "s8")
}

// Where no extent can be emptied, a class goes on in the slots of a larger one,
// whatever it has taken already.
func TestAClassThatFindsNoExtentStaysInLargerSlots(t *testing.T) {
	y := newYard(t, 2)
	y.put(large, numbered("l", 8)...)
	y.hold("l1", "l8") // one in each extent
	y.put(small, numbered("s", 8)...)
	y.wantEvicted("what is not held", "l2", "l3", "l4", "l5", "l6", "l7", "s1", "s2")
	y.put(small, "s9")
	y.wantEvicted("the ninth", "s3")
	y.hold(numbered("s", 9)[3:]...)
	err := y.tryPut(small, "s10")
	var full *FullError
	if !errors.As(err, &full) || full.Need != 1088 || full.Free != 0 {
		t.Errorf("all is held: %v", err)
	}
	y.wantEvicted("a call that is refused")
}

// An extent of another class goes if the last of its blocks was used before the
// coldest of the own class; else that one goes alone.
func TestAnExtentGoesIfAllOfItIsColder(t *testing.T) {
	for _, other := range []struct {
		size  uint32
		names []string
	}{{small, numbered("s", 8)}, {huge, numbered("h", 1)}} {
		y := newYard(t, 2)
		y.put(other.size, other.names...)
		y.put(large, numbered("l", 5)...)
		y.wantEvicted("all of the other class is colder", other.names...)

		y = newYard(t, 2)
		y.put(other.size, other.names...)
		y.put(large, numbered("l", 4)...)
		y.Touch(y.ns, []wire.Key{keyOf(other.names[len(other.names)-1])})
		y.put(large, "l5")
		y.wantEvicted("one of the other class was used since", "l1")
	}
}

// The tier counts before the use, for an extent the highest of its blocks.
func TestAnExtentGoesWithItsHighestTier(t *testing.T) {
	y := newYard(t, 2)
	y.put(large, numbered("l", 4)...)
	y.tier = wire.ThinkComplete
	y.put(small, numbered("s", 8)...)
	y.tier = wire.OutputCritical
	y.put(large, "l5")
	y.wantEvicted("the other class is of a lower tier, though used since", numbered("s", 8)...)

	y = newYard(t, 2)
	y.put(large, numbered("l", 4)...)
	y.tier = wire.ThinkComplete
	y.put(small, numbered("s", 7)...)
	y.tier = wire.OutputCritical
	y.put(small, "s8")
	y.put(large, "l5")
	y.wantEvicted("one of the other class is not of a lower tier", "l1")
}

// Where an extent of another class was looked for in vain, the next look is after
// an eighth of an extent's evictions and one.
func TestOtherClassesAreLookedAtAgain(t *testing.T) {
	y := newYard(t, 2)
	y.put(small, "s1")
	y.put(huge, "h1")
	y.put(small, numbered("s", 8)[1:]...)
	y.put(small, "t1")
	y.wantEvicted("the coldest is of the own class", "s1")
	y.put(small, "t2")
	y.wantEvicted("the other class has become colder, which is not seen yet", "s2")
	y.put(small, "t3")
	y.wantEvicted("now it is", "h1")
}

// An extent that another class keeps empty serves before memory is made or
// anything is evicted.
func TestAnEmptyExtentOfAnotherClassServesFirst(t *testing.T) {
	c, err := NewCore(CoreConfig{Capacity: 4 * 8192, ExtentBytes: 8192, ThinkFraction: 1, Rand: seeded(2)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddNamespace(nsOf("n"), tenantOf("t")); err != nil {
		t.Fatal(err)
	}
	y := &yard{Core: c, t: t, o: c.NewOwner(false), ns: nsOf("n"), tier: wire.OutputCritical, names: map[wire.Ref]string{}, grow: true}
	c.AddSegment(tenantOf("t"), 1)
	y.put(small, "s1")
	c.Discard(y.ns, []wire.Key{keyOf("s1")})
	y.put(huge, "h1")
	if st := c.Stats(); st.Segments != 1 || st.Blocks[wire.OutputCritical] != 1 {
		t.Errorf("%d segments, blocks %v", st.Segments, st.Blocks)
	}
	var g *GrowError
	if err := y.tryPut(small, "s2"); !errors.As(err, &g) || g.Tenant != tenantOf("t") {
		t.Errorf("the next extent: %v", err)
	}
	y.wantEvicted("there is memory to be had")
}

// A tenant evicts its own blocks rather than take a slot of another's.
func TestNoTenantTakesAnothersSlots(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 2 * 8192, ExtentBytes: 8192})
	y := &yard{Core: c, t: t, o: c.NewOwner(false), ns: nsOf("n"), tier: wire.OutputCritical, names: map[wire.Ref]string{}}
	y.put(small, numbered("s", 8)...)
	if err := c.AddNamespace(nsOf("m"), tenantOf("u")); err != nil {
		t.Fatal(err)
	}
	y.ns, y.grow = nsOf("m"), true
	var g *GrowError
	if err := y.tryPut(large, "m1"); !errors.As(err, &g) || g.Tenant != tenantOf("u") {
		t.Fatalf("the other tenant: %v", err)
	}
	if ret := c.Returned(); len(ret) != 1 {
		t.Fatalf("segments %v went for it", ret)
	}
	c.AddSegment(tenantOf("u"), c.SegmentExtents())
	y.put(large, "m1")
	y.ns, y.grow = nsOf("n"), false
	y.put(small, "s9")
	y.wantEvicted("three slots of the other tenant are free", "s1")
}
