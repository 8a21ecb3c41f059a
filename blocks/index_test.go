package blocks

import (
	"slices"
	"testing"
	"unsafe"

	"meridian/wire"
)

// told is what a core said of its tables.
type told struct {
	at   []uintptr
	size []uintptr
}

func (a *told) advise(p unsafe.Pointer, n uintptr) {
	a.at, a.size = append(a.at, uintptr(p)), append(a.size, n)
}

// The index is at most three quarters full, and no larger than that takes.
func TestTheIndexGrowsWhenItIsThreeQuartersFull(t *testing.T) {
	x := newIndex([4]uint64{}, func(unsafe.Pointer, uintptr) {})
	for id := range uint32(1000) {
		x.insert(id*7919, id)
		want := minCells
		for x.n > want/4*3 {
			want *= 2
		}
		if len(x.cells) != want {
			t.Fatalf("%d entries in %d cells, want %d", x.n, len(x.cells), want)
		}
	}
	x.reserve(len(x.cells)/4*3 + 1)
	if len(x.cells) != 4096 {
		t.Errorf("%d cells for one entry more than 2048 take", len(x.cells))
	}
	for id := range uint32(1000) {
		if got := x.first(id * 7919); got != id {
			t.Fatalf("entry %d is %d", id, got)
		}
	}
}

// The index grows while an extent is cut, which takes a while anyway, and not while
// blocks are published: also where copies outside take cells.
func TestNoPublishedBlockWaitsForTheIndexToGrow(t *testing.T) {
	var a told
	c := testCore(t, CoreConfig{Capacity: 6 * 8192, ExtentBytes: 8192, RemoteBlocks: 1000, Advise: a.advise})
	o := c.NewOwner(false)
	var moved []Moved
	commit := func(from, n int) {
		for i := range n {
			v := mustReserve(t, c, o, 1000)
			before := len(a.size)
			k := []Commit{{Slot: v.Ref.Slot, Key: benchKey(uint64(from + i)), Tier: wire.OutputCritical, Len: 1000}}
			if c.Commit(0, o, k); k[0].Err != nil {
				t.Fatal(k[0].Err)
			}
			c.Gens()
			if len(a.size) != before {
				t.Fatalf("block %d: a table of %d bytes is made while it is published", from+i, a.size[before])
			}
			moved = append(moved, Moved{Slot: v.Ref.Slot, Loc: Loc{Fabric: "f", H: [32]byte{1}}})
		}
	}
	commit(0, 40)
	c.Moved(moved)
	if st := c.Stats(); st.Remote != 40 || st.Used != 0 {
		t.Fatalf("%d copies outside, %d bytes used", st.Remote, st.Used)
	}
	commit(40, 48)
	if n := len(c.index.cells); n != 128 {
		t.Errorf("88 entries in %d cells", n)
	}
}

// The slots of a segment lie in one table, which the driver is told of with its
// whole size before it is used: so is each table of the index.
func TestTheDriverIsToldOfEachLargeTable(t *testing.T) {
	var a told
	c := testCore(t, CoreConfig{Capacity: 32 * 8192, ExtentBytes: 8192, Advise: a.advise})
	if c.geo.segExtents != 4 {
		t.Fatalf("segments of %d extents", c.geo.segExtents)
	}
	o := c.NewOwner(false)
	for range 2 * 4 * 8 { // two segments of 4 extents of 8 slots
		v := mustReserve(t, c, o, 1000)
		at := uintptr(unsafe.Pointer(c.slot(v.Ref.Slot)))
		if !slices.ContainsFunc(a.at, func(p uintptr) bool {
			i := slices.Index(a.at, p)
			return at >= p && at+unsafe.Sizeof(slot{}) <= p+a.size[i]
		}) {
			t.Fatalf("slot %d lies in no table that the driver was told of", v.Ref.Slot)
		}
	}
	slab := 4 * 8 * unsafe.Sizeof(slot{})
	if want := []uintptr{slab, slab, 128 * 8}; !slices.Equal(a.size, want) { // 64 slots need 86 cells
		t.Errorf("tables of %d bytes, want %d", a.size, want)
	}
}

func TestHugePagesAreAskedForWhereWholeOnesLie(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ at, n, skip, whole uintptr }{
		{4 * mib, 2 * mib, 0, 2 * mib},
		{4 * mib, 2*mib - 1, 0, 0},
		{4 * mib, 7 * mib, 0, 6 * mib},
		{3 * mib, 3 * mib, mib, 2 * mib},
		{3 * mib, 3*mib - 1, mib, 0},
		{3 * mib, mib, mib, 0},
		{3 * mib, mib / 2, mib, 0},
		{3*mib + 64, 9 * mib, mib - 64, 8 * mib},
	} {
		if skip, whole := wholeHugePages(c.at, c.n); whole != c.whole || whole > 0 && skip != c.skip {
			t.Errorf("%d bytes at %d: %d whole after %d, want %d after %d", c.n, c.at, whole, skip, c.whole, c.skip)
		}
	}
}
