package blocks

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks/internal/memfd"
	"meridian/wire"
)

// aheadRig is a rig that keeps memory ahead: of 4 MiB in extents of 256 KiB, two
// of them a segment.
func aheadRig(t *testing.T, ahead uint64, change func(*Config)) *rig {
	t.Helper()
	r := newRig(t, func(c *Config) {
		c.Ahead = ahead
		if change != nil {
			change(c)
		}
	})
	if n := r.core.geo.segExtents; n != 2 {
		t.Fatalf("segments have %d extents", n)
	}
	return r
}

// prepare calls Prepare until there is no more to do.
func (r *rig) prepare() {
	r.t.Helper()
	for i := 0; ; i++ {
		more, err := r.Prepare()
		if err != nil || i > 1000 {
			r.t.Fatalf("Prepare, call %d: %v", i, err)
		}
		if !more {
			return
		}
	}
}

// spares is how many complete segments are ready.
func (r *rig) spares() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ahead.ready)
}

func (r *rig) fillExtents(name string, n int) {
	for i := range n {
		r.put(name+string(rune('a'+i)), bodyOf(keyOf(name), 250<<10))
	}
}

func TestALoadFindsMemoryReadyAndMakesNone(t *testing.T) {
	r := aheadRig(t, 1<<20, nil)
	r.prepare()
	if n := r.spares(); n != 2 {
		t.Fatalf("%d segments of 512 KiB are ready, 1 MiB was asked for", n)
	}
	if st := r.Stats(); st.AheadBytes < 1<<20 || st.SegmentBytes != 0 {
		t.Fatalf("%d bytes ahead, %d in segments", st.AheadBytes, st.SegmentBytes)
	}
	r.ahead.allocate = func(*segmentMemory, uint64, uint64) error {
		t.Error("memory is made in the path of a reservation")
		return nil
	}
	r.fillExtents("x", 4)
	st := r.Stats()
	if st.AheadWaits != 0 || st.Segments != 2 || st.AheadBytes != 0 {
		t.Errorf("%d waits, %d segments, %d bytes ahead", st.AheadWaits, st.Segments, st.AheadBytes)
	}
	r.check()
}

func TestMemoryAheadIsRefilledWhenItWasTaken(t *testing.T) {
	r := aheadRig(t, 512<<10, nil)
	<-r.PrepareSoon() // the first namespace
	r.prepare()
	select {
	case <-r.PrepareSoon():
		t.Fatal("asked for although nothing was taken")
	default:
	}
	r.fillExtents("x", 1)
	select {
	case <-r.PrepareSoon():
	default:
		t.Fatal("nobody is told that a segment was taken")
	}
	r.prepare()
	if r.spares() != 1 {
		t.Errorf("%d segments ready", r.spares())
	}
}

func TestADaemonThatNobodyUsesTakesNoMemoryAhead(t *testing.T) {
	clock := &manual{}
	s, err := Open(Config{Capacity: 4 << 20, ExtentBytes: 256 << 10, Ahead: 1 << 20, Clock: clock.read})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	r := &rig{Store: s, t: t, clock: clock, ns: nsOf("n")}
	r.prepare()
	if n := s.Stats().AheadBytes; n != 0 {
		t.Fatalf("%d bytes ahead without a namespace", n)
	}
	if err := s.AddNamespace(r.ns, tenantOf("t")); err != nil {
		t.Fatal(err)
	}
	r.prepare()
	if r.spares() != 2 {
		t.Fatalf("%d segments ready", r.spares())
	}
	s.RemoveNamespace(r.ns)
	clock.add(aheadIdle - 1)
	r.prepare()
	if r.spares() != 2 {
		t.Errorf("given back before the namespace may come again")
	}
	clock.add(1)
	r.prepare()
	if n := s.Stats().AheadBytes; n != 0 {
		t.Errorf("%d bytes ahead a minute after the last namespace", n)
	}
	for range 100 { // who comes and goes makes it fill once a minute
		if err := s.AddNamespace(r.ns, tenantOf("t")); err != nil {
			t.Fatal(err)
		}
		r.prepare()
		s.RemoveNamespace(r.ns)
		r.prepare()
	}
	if r.spares() != 2 {
		t.Errorf("%d segments ready", r.spares())
	}
}

func TestMemoryAheadIsPartOfTheCapacity(t *testing.T) {
	r := aheadRig(t, 1<<40, nil)
	r.prepare()
	if n := r.spares(); n != 8 {
		t.Fatalf("%d segments of 512 KiB ready in a capacity of 4 MiB", n)
	}
	r.fillExtents("x", 5)
	r.prepare()
	if st := r.Stats(); st.Extents != 6 || r.spares() != 5 {
		t.Errorf("%d extents in segments and %d segments ready", st.Extents, r.spares())
	}
	r.fillExtents("y", 26)
	r.prepare()
	if st := r.Stats(); st.Extents != 16 || r.spares() != 0 || st.AheadBytes != 0 {
		t.Errorf("%d extents, %d segments ready, %d bytes ahead", st.Extents, r.spares(), st.AheadBytes)
	}
	r.check()
}

// A ring takes its bytes from the capacity; what is ready for segments gives way.
func TestARingTakesTheRoomOfMemoryAhead(t *testing.T) {
	r := aheadRig(t, 1<<40, func(c *Config) { c.StagingBytes = 2 << 20 })
	r.prepare()
	if _, err := r.Staging(r.o, 1<<20, 2<<20); err != nil {
		t.Fatal(err)
	}
	if n := r.spares(); n != 6 {
		t.Errorf("%d segments of 512 KiB ready beside a ring of 1 MiB in 4 MiB", n)
	}
	r.fillExtents("x", 1)
	if _, err := r.Staging(r.o, 1<<20+512<<10, 2<<20); err != nil {
		t.Fatal(err)
	}
	r.prepare()
	if st := r.Stats(); uint64(st.Extents+2*r.spares())<<18+st.StagingBytes != 4<<20 {
		t.Errorf("%d extents, %d segments ready and %d bytes of rings are not the 4 MiB", st.Extents, r.spares(), st.StagingBytes)
	}
	r.check()
}

// Rings need not be whole segments: what is ready then ends with a smaller one.
func TestMemoryAheadFitsTheRoomThatRingsLeave(t *testing.T) {
	r := aheadRig(t, 1<<40, func(c *Config) { c.StagingBytes = 2 << 20 })
	r.prepare()
	if _, err := r.Staging(r.o, 256<<10, 256<<10); err != nil {
		t.Fatal(err)
	}
	if n := r.spares(); n != 7 {
		t.Fatalf("%d segments of 2 extents are ready where 15 extents have room", n)
	}
	r.prepare()
	if n := r.spares(); n != 8 || r.ahead.ready[7].extents != 1 {
		t.Fatalf("%d segments ready, the last of %d extents", n, r.ahead.ready[n-1].extents)
	}
	r.fillExtents("x", 15)
	if st := r.Stats(); st.Extents != 15 || st.AheadWaits != 0 || st.Evictions[wire.OutputCritical] != 0 {
		t.Errorf("%d extents, %d waits, evictions %v", st.Extents, st.AheadWaits, st.Evictions)
	}
	r.check()
}

func TestARingThatComesWhileMemoryIsMadeHasItsRoom(t *testing.T) {
	r := aheadRig(t, 1<<40, func(c *Config) { c.StagingBytes = 2 << 20 })
	r.prepare()
	r.fillExtents("x", 1)
	r.mu.Lock()
	r.trimAhead(12, 12) // 2 of 16 extents are in a segment and 12 ready: one segment is to be made
	r.mu.Unlock()
	make1 := r.ahead.allocate
	r.ahead.allocate = func(m *segmentMemory, off, n uint64) error {
		if _, err := r.Staging(r.o, 256<<10, 256<<10); err != nil {
			t.Error(err)
		}
		return make1(m, off, n)
	}
	if _, err := r.Prepare(); err != nil {
		t.Fatal(err)
	}
	if st := r.Stats(); uint64(st.Extents+2*r.spares())<<18+st.StagingBytes > 4<<20 {
		t.Errorf("%d extents, %d segments ready and %d bytes of rings in 4 MiB", st.Extents, r.spares(), st.StagingBytes)
	}
	r.check()
}

// What was begun for more room than there is now is dropped, by Prepare as by a
// reservation that cannot use it.
func TestWhatIsBegunGivesWayToo(t *testing.T) {
	for _, by := range []string{"Prepare", "a reservation"} {
		r := aheadRig(t, 1<<40, func(c *Config) { c.StagingBytes = 2 << 20 })
		r.fillExtents("x", 12)
		r.prepare()
		if r.spares() != 2 {
			t.Fatalf("%d segments ready", r.spares())
		}
		var err error
		r.mu.Lock()
		r.trimAhead(1, 4) // one of 2 extents stays
		r.mu.Unlock()
		if r.ahead.next, err = r.begin(2); err != nil {
			t.Fatal(err)
		}
		begun := r.ahead.next.mem
		if _, err := r.Staging(r.o, 256<<10, 256<<10); err != nil { // 3 extents have room
			t.Fatal(err)
		}
		if by == "Prepare" {
			r.ahead.allocate = func(m *segmentMemory, _, _ uint64) error {
				if m == begun {
					t.Error("memory is made that there is no room for")
				}
				return nil
			}
			r.prepare()
		} else {
			r.fillExtents("y", 3)
			r.prepare()
		}
		if st := r.Stats(); begun.bytes.B != nil || st.Extents+2*r.spares() > 16 || st.Extents > 15 {
			t.Errorf("%s: mapped %v, %d extents, %d segments ready", by, begun.bytes.B != nil, st.Extents, r.spares())
		}
		r.check()
	}
}

func TestAHostWithLittleMemoryKeepsNoneAhead(t *testing.T) {
	free := uint64(100 << 20)
	r := aheadRig(t, 1<<20, func(c *Config) { c.HostFree = func() uint64 { return free } })
	r.prepare()
	if r.spares() != 2 {
		t.Fatalf("%d segments ready", r.spares())
	}
	seg := r.core.geo.segBytes(2)
	free = seg / 2
	r.prepare()
	if r.spares() != 2 {
		t.Errorf("given back although the host has %d bytes left", free)
	}
	free--
	r.prepare()
	if st := r.Stats(); st.AheadBytes != 0 {
		t.Errorf("%d bytes ahead on a host with %d left", st.AheadBytes, free)
	}
	free = 2*seg - 1
	r.prepare()
	if st := r.Stats(); st.AheadBytes != 0 {
		t.Errorf("%d bytes ahead, which leaves the host less than a segment", st.AheadBytes)
	}
	free = 2 * seg
	if more, err := r.Prepare(); !more || err != nil {
		t.Errorf("nothing is made ready for a host that has enough again: %v", err)
	}
}

// A reservation that needs a segment gets none that the host has no memory for, though
// the kernel would promise it: what can be evicted goes instead.
func TestAReservationMakesNoSegmentThatTheHostHasNoMemoryFor(t *testing.T) {
	free := uint64(1 << 30)
	r := aheadRig(t, 0, func(c *Config) { c.HostFree = func() uint64 { return free } })
	r.fillExtents("x", 2)
	before := r.Stats()
	free = r.core.geo.segBytes(2) - 1
	r.fillExtents("y", 2)
	if st := r.Stats(); st.Extents != before.Extents || st.Evictions[wire.OutputCritical] != 2 {
		t.Errorf("%d extents, %d before; %d blocks evicted", st.Extents, before.Extents, st.Evictions[wire.OutputCritical])
	}
	free++
	r.fillExtents("z", 2)
	if st := r.Stats(); st.Extents != before.Extents+2 || st.Evictions[wire.OutputCritical] != 2 {
		t.Errorf("%d extents, %d before; %d blocks evicted though the host has room", st.Extents, before.Extents, st.Evictions[wire.OutputCritical])
	}
	r.check()
}

func TestAKernelWithoutMemoryAheadIsCountedAndTheLoadGoesOn(t *testing.T) {
	for _, why := range []error{unix.ENOMEM, unix.EFAULT, unix.ENOSPC} {
		r := aheadRig(t, 512<<10, nil)
		pieces := 0
		make1 := r.ahead.allocate
		r.ahead.allocate = func(*segmentMemory, uint64, uint64) error { pieces++; return why }
		for range 3 {
			if more, err := r.Prepare(); more || !errors.Is(err, why) {
				t.Fatalf("more %v, %v; want %v", more, err, why)
			}
		}
		if st := r.Stats(); st.AheadRefused != 3 || pieces != 3 || st.AheadBytes != 0 {
			t.Errorf("%d refusals counted of %d, %d bytes ahead", st.AheadRefused, pieces, st.AheadBytes)
		}
		r.ahead.allocate = make1
		r.put("x", bodyOf(keyOf("x"), 1000))
		if st := r.Stats(); st.AheadWaits != 1 || st.Segments != 1 || st.SegmentsRefused != 0 {
			t.Errorf("%d waits, %d segments, %d refused", st.AheadWaits, st.Segments, st.SegmentsRefused)
		}
		r.segment = func(uint64, uint64) (*segmentMemory, error) { return nil, why }
		if _, err := r.Prepare(); !errors.Is(err, why) {
			t.Errorf("a memfd that cannot be made: %v", err)
		}
	}
}

// A reservation that finds nothing ready takes over what is begun.
func TestAWaitingReservationFinishesWhatIsBegun(t *testing.T) {
	r := aheadRig(t, 512<<10, nil)
	begun := 0
	make1 := r.segment
	r.segment = func(size, gens uint64) (*segmentMemory, error) { begun++; return make1(size, gens) }
	n, err := r.begin(2)
	if err != nil {
		t.Fatal(err)
	}
	r.ahead.next = n // of which nothing is made yet
	r.put("x", bodyOf(keyOf("x"), 1000))
	if st := r.Stats(); begun != 1 || st.AheadWaits != 1 || st.Segments != 1 || st.AheadBytes != 0 {
		t.Errorf("%d begun, %d waits, %d segments, %d bytes ahead", begun, st.AheadWaits, st.Segments, st.AheadBytes)
	}
	r.check()
}

// While memory is made, everything goes on that needs none.
func TestNobodyWaitsForMemoryAheadWhoNeedsNone(t *testing.T) {
	r := aheadRig(t, 512<<10, nil)
	r.put("x", bodyOf(keyOf("x"), 1000))
	entered, leave := make(chan struct{}), make(chan struct{})
	make1 := r.ahead.allocate
	r.ahead.allocate = func(m *segmentMemory, off, n uint64) error {
		close(entered)
		<-leave
		return make1(m, off, n)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.Prepare(); err != nil {
			t.Error(err)
		}
	})
	<-entered
	r.put("y", bodyOf(keyOf("y"), 1000)) // hangs here if it waits
	if r.Lookup(r.ns, []wire.Key{keyOf("x"), keyOf("y")}, make([]View, 2)) != 2 {
		t.Error("a look-up misses")
	}
	r.Step(Input{})
	if r.Stats().AheadWaits != 1 {
		t.Error("a reservation waited for more than the first segment")
	}
	close(leave)
	wg.Wait()
}

func TestCloseEndsMemoryAhead(t *testing.T) {
	r := aheadRig(t, 1<<20, nil)
	r.prepare()
	held := append([]*spare{}, r.ahead.ready...)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for i, sp := range held {
		if sp.mem.bytes.B != nil || sp.mem.gens.B != nil {
			t.Errorf("segment %d that was ready is still mapped", i)
		}
	}
	if more, err := r.Prepare(); more || err != nil {
		t.Errorf("Prepare after Close: %v, %v", more, err)
	}
}

func TestPrepareRacesWithEverything(t *testing.T) {
	r := aheadRig(t, 1<<20, func(c *Config) { c.StagingBytes = 2 << 20 })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := r.Prepare(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := range 20 {
		o := r.NewOwner(0)
		_, _ = r.Staging(o, 256<<10, 256<<10) // BUSY where there is no room
		tenant := nsOf(string(rune('A' + i%3)))
		if err := r.AddNamespace(tenant, tenantOf(string(rune('A'+i%3)))); err != nil {
			t.Fatal(err)
		}
		if v, err := r.Reserve(o, tenant, []uint32{200 << 10, 100}, time.Minute); err == nil {
			r.Abort(o, []uint32{v[0].Ref.Slot, v[1].Ref.Slot})
		}
		r.Drop(o)
	}
	close(stop)
	wg.Wait()
	r.prepare()
	if st := r.Stats(); st.Extents+2*r.spares() > 16 || st.Leaked != 0 {
		t.Errorf("%d extents and %d spares in 16", st.Extents, r.spares())
	}
	r.check()
}

// Memory is made in pieces, each once, up to the segment's end: by Prepare, and by
// a reservation that finds none or only a part of it.
func TestASegmentIsMadePieceByPieceToItsEnd(t *testing.T) {
	for _, begun := range []int{-1, 0, 1, 2} { // pieces that Prepare makes; -1: it is not called
		r := newRig(t, func(c *Config) {
			c.Capacity, c.ExtentBytes, c.Ahead = 128<<20, 4<<20, 1
			if begun < 0 {
				c.Ahead = 0
			}
		})
		size := r.core.geo.segBytes(r.core.geo.segExtents)
		if size <= memfd.Piece || size >= 2*memfd.Piece {
			t.Fatalf("segments of %d bytes", size)
		}
		var got [][2]uint64
		r.ahead.allocate = func(_ *segmentMemory, off, n uint64) error {
			got = append(got, [2]uint64{off, n})
			return nil
		}
		for range begun {
			if more, err := r.Prepare(); err != nil || !more {
				t.Fatalf("Prepare: %v, %v", more, err)
			}
		}
		if _, err := r.Reserve(r.o, r.ns, []uint32{4096}, time.Minute); err != nil {
			t.Fatal(err)
		}
		if want := [][2]uint64{{0, memfd.Piece}, {memfd.Piece, size - memfd.Piece}}; !slices.Equal(got, want) {
			t.Errorf("%d pieces made ahead: then %v are made, want %v", begun, got, want)
		}
		if st := r.Stats(); st.AheadBytes != 0 || st.AheadWaits != uint64(max(0, 1-max(begun, 0)/2)) {
			t.Errorf("%d pieces made ahead: %d bytes ahead, %d waits", begun, st.AheadBytes, st.AheadWaits)
		}
	}
}
