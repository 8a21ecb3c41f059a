package blocks

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"meridian/wire"
)

func testGeometry(t *testing.T, capacity, extent uint64) geometry {
	t.Helper()
	g, err := newGeometry(capacity, extent)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestSizeClassesFitAndWasteLittle(t *testing.T) {
	for _, extent := range []uint64{4 << 10, 64 << 10, 1 << 20, 64 << 20} {
		g := testGeometry(t, extent*8, extent)
		last, lastRoom := -1, uint32(0)
		step := max(1, extent/5000)
		for n := uint64(0); n <= extent; n += step {
			class, room := g.class(uint32(n))
			if uint64(room) < n || class < last || class >= maxClasses || room < lastRoom {
				t.Fatalf("extent %d: %d bytes in class %d of %d bytes, after class %d", extent, n, class, room, last)
			}
			if n >= uint64(g.minBody) && uint64(room) > n+n/8 {
				t.Fatalf("extent %d: %d bytes waste %d", extent, n, uint64(room)-n)
			}
			if class == last && room != lastRoom {
				t.Fatalf("extent %d: class %d has two sizes", extent, class)
			}
			last, lastRoom = class, room
		}
	}
}

// The bodies of usual models (powers of two times a small odd number of layers
// or heads) fit exactly, and a power of two divides its extent exactly.
func TestUsualBodiesWasteNothing(t *testing.T) {
	g := testGeometry(t, 1<<30, 64<<20)
	for _, odd := range []uint32{1, 3, 5, 7, 9, 11, 13, 15} {
		for n := odd << 12; n <= 32<<20; n *= 2 {
			if _, room := g.class(n); room != n {
				t.Errorf("%d bytes get %d", n, room)
			}
		}
	}
	for n := uint32(64 << 10); n <= 64<<20; n *= 2 {
		_, room := g.class(n)
		if got, want := g.pitch/stride(room), uint64(64<<20/n); got != want {
			t.Errorf("%d slots of %d bytes, want %d", got, n, want)
		}
	}
}

func TestSlotsLieApartInsideTheirSegment(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 1 << 20, ExtentBytes: 64 << 10})
	o := c.NewOwner(false)
	end := map[uint32]uint64{}
	words := map[[2]uint32]bool{}
	for _, n := range []uint32{0, 100, 5000, 64 << 10} {
		for range 10 {
			v := mustReserve(t, c, o, n)
			if v.Off%slotAlign != 0 || v.Off < slotHead || v.Off+uint64(n) > c.geo.segBytes(c.geo.segExtents) {
				t.Fatalf("view %+v", v)
			}
			if c.ext[v.Ref.Slot>>c.geo.slotBits].slots != nil && v.Off-wire.HeaderLen < end[v.Ref.Slot>>c.geo.slotBits] {
				t.Fatalf("slot %d overlaps the one before", v.Ref.Slot)
			}
			end[v.Ref.Slot>>c.geo.slotBits] = v.Off + uint64(n)
			w := [2]uint32{v.Seg, v.GenOff}
			if words[w] || uint64(v.GenOff)+8 > c.geo.genBytes(c.geo.segExtents) || v.GenOff%8 != 0 {
				t.Fatalf("word %v of slot %d", w, v.Ref.Slot)
			}
			words[w] = true
		}
		c.Drop(o)
		o = c.NewOwner(false)
		clear(end)
		clear(words)
	}
}

func testCore(t testing.TB, cfg CoreConfig) *Core {
	t.Helper()
	if cfg.ThinkFraction == 0 {
		cfg.ThinkFraction = 1
	}
	cfg.Rand = seeded(2)
	c, err := NewCore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddNamespace(nsOf("n"), tenantOf("t")); err != nil {
		t.Fatal(err)
	}
	for n := c.SegmentExtents(); n > 0; n = c.SegmentExtents() {
		c.AddSegment(tenantOf("t"), n)
	}
	return c
}

func mustReserve(t testing.TB, c *Core, o Owner, n uint32) View {
	t.Helper()
	v, err := c.Reserve(0, o, nsOf("n"), wire.OutputCritical, []uint32{n}, 1, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v[0]
}

// Few tags and a small table make long runs that wrap around the end.
func TestIndexAgainstAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x := newIndex([4]uint64{1, 2, 3, 4}, func(unsafe.Pointer, uintptr) {})
	want := map[uint32]uint32{} // id to tag
	for range 200_000 {
		id := r.Uint32N(400)
		tag, ok := want[id]
		switch {
		case !ok:
			tag = r.Uint32N(40) | 0xffffffe0*r.Uint32N(2)
			x.insert(tag, id)
			want[id] = tag
		case r.IntN(3) > 0:
			x.remove(x.locate(tag, id))
			delete(want, id)
		}
		if x.n != len(want) {
			t.Fatalf("%d cells, want %d", x.n, len(want))
		}
	}
	for id, tag := range want {
		if e := x.cells[x.locate(tag, id)]; cellID(e) != id || cellTag(e) != tag {
			t.Fatalf("cell %x for %d", e, id)
		}
		if x.first(tag) == none {
			t.Fatalf("no cell with tag %x", tag)
		}
	}
}

func TestASlotRecordStaysSmall(t *testing.T) {
	if n := unsafe.Sizeof(slot{}); n != 96 {
		t.Fatalf("%d bytes; 10^6 blocks must stay below 150 MB with the index", n)
	}
}

func TestGenerationsNeverRepeatAPublishedOne(t *testing.T) {
	for _, g := range []uint32{0, 2, 1, 3, 1<<32 - 4, 1<<32 - 3, 1<<32 - 2, 1<<32 - 1} {
		o := odd(g)
		e := even(o)
		if o%2 != 1 || o == g || e%2 != 0 || e == 0 || e == g {
			t.Errorf("after %d: %d, then %d", g, o, e)
		}
	}
}

func TestTheExtentFollowsTheCapacity(t *testing.T) {
	for _, c := range []struct{ capacity, extent uint64 }{
		{64 << 10, 64 << 10}, {128<<10 - 1, 64 << 10}, {128 << 10, 128 << 10}, {256<<10 - 1, 128 << 10}, {256 << 10, 256 << 10},
		{4<<20 - 1, 256 << 10}, {4 << 20, 512 << 10}, {512<<20 - 1, 32 << 20}, {512 << 20, 64 << 20}, {4<<40 + 64<<20 - 1, 64 << 20}, {4<<40 + 64<<20, 128 << 20},
	} {
		if g := testGeometry(t, c.capacity, 0); g.extent != c.extent || uint64(g.maxBody) != c.extent {
			t.Errorf("a capacity of %d: extents of %d, bodies up to %d, want %d", c.capacity, g.extent, g.maxBody, c.extent)
		}
	}
	_, err := newGeometry(64<<10-1, 0)
	var e *LimitError
	if !errors.As(err, &e) || e.Code != wire.CodeConfig || e.Got != 64<<10 || e.Limit != 64<<10-1 {
		t.Errorf("a capacity below the least extent: %v", err)
	}
}

// All extents have a place in a segment, and the numbers of their slots stay below
// those of copies outside. There is no place that no segment can take.
func TestThereIsAPlaceForEachExtentAndNoMore(t *testing.T) {
	for _, extents := range []uint64{1, 2, 15, 16, 17, 31, 33, 100, 1023, 1024, 1025, 1<<17 - maxSegExtents} {
		c, err := NewCore(CoreConfig{Capacity: extents * 4 << 20, ExtentBytes: 4 << 20, ThinkFraction: 1, Rand: seeded(2)})
		if err != nil {
			t.Fatal(err)
		}
		if n := c.geo.segExtents; c.places*n < c.geo.extents || (c.places-1)*n >= c.geo.extents || len(c.ext) != c.places*n {
			t.Errorf("%d extents: %d places for %d each, %d records", extents, c.places, n, len(c.ext))
		}
		if last := uint64(len(c.ext))<<c.geo.slotBits - 1; last >= remoteBit {
			t.Errorf("%d extents: the last slot is %#x", extents, last)
		}
	}
}

func TestTheThinkFractionIsAboveZeroAndAtMostOne(t *testing.T) {
	for _, f := range []float64{0, -0.1, 1.1, math.NaN(), math.Inf(1)} {
		_, err := NewCore(CoreConfig{Capacity: 8192, ExtentBytes: 8192, ThinkFraction: f, Rand: seeded(2)})
		if !errors.Is(err, wire.CodeConfig) || !strings.Contains(err.Error(), fmt.Sprintf("think fraction %v ", f)) {
			t.Errorf("%v: %v", f, err)
		}
	}
	for _, f := range []float64{math.SmallestNonzeroFloat64, 1} {
		if _, err := NewCore(CoreConfig{Capacity: 8192, ExtentBytes: 8192, ThinkFraction: f, Rand: seeded(2)}); err != nil {
			t.Errorf("%v: %v", f, err)
		}
	}
}

// A reader of a slot whose extent is cut anew sees a word that no block has or will
// have, whether the new cut has a slot there or not.
func TestReadersOfAnExtentThatIsCutAnewSeeIt(t *testing.T) {
	y := newYard(t, 2)
	words := map[uint32]uint64{} // of the first segment
	settle := func() {
		for _, g := range y.Gens() {
			if g.Seg == 1 {
				words[g.Off] = g.Word
			}
		}
	}
	reserve := func(n uint32) View {
		v := mustReserve(t, y.Core, y.o, n)
		settle()
		return v
	}
	publish := func(v View, name string) View {
		k := []Commit{{Slot: v.Ref.Slot, Key: keyOf(name), Tier: wire.OutputCritical, Len: 100}}
		if y.Commit(0, y.o, k); k[0].Err != nil {
			t.Fatal(k[0].Err)
		}
		settle()
		return v
	}
	old := []View{publish(reserve(small), "a"), publish(reserve(small), "b"), reserve(small)}
	y.put(huge, "h") // the second extent
	before := map[uint32]uint64{}
	for _, v := range old {
		before[v.GenOff] = words[v.GenOff]
	}
	if before[old[0].GenOff] != 2 || before[old[1].GenOff] != 2 || before[old[2].GenOff] != 1 {
		t.Fatalf("words %v of two blocks and a reservation", before)
	}
	y.Discard(y.ns, []wire.Key{keyOf("a"), keyOf("b")})
	y.Abort(y.o, []uint32{old[2].Ref.Slot})
	v := reserve(huge)
	for i, o := range old {
		if w := words[o.GenOff]; w%2 == 0 || w <= before[o.GenOff] {
			t.Errorf("slot %d: word %d after %d", i, w, before[o.GenOff])
		}
	}
	// Back to the first cut: what is published there is newer than any of those.
	y.Abort(y.o, []uint32{v.Ref.Slot})
	for i, o := range old {
		seen := words[o.GenOff]
		v := reserve(small)
		if v.GenOff != o.GenOff {
			t.Fatalf("slot %d is at %d, was at %d", i, v.GenOff, o.GenOff)
		}
		if publish(v, fmt.Sprint("new", i)); words[o.GenOff] <= seen || words[o.GenOff]%2 != 0 {
			t.Errorf("slot %d: word %d of a block after %d", i, words[o.GenOff], seen)
		}
	}
	if len(words) != len(old) {
		t.Errorf("words at %v, of three slots", words)
	}
}
