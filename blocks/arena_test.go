package blocks

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/blocks/internal/memfd"
	"meridian/wire"
)

// peerMap maps a descriptor as an engine would.
func peerMap(t *testing.T, fd int, size uint64, prot int) []byte {
	t.Helper()
	b, err := unix.Mmap(fd, 0, int(size), prot, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func (r *rig) fd(seg uint32, gen bool) (int, uint64) {
	r.t.Helper()
	fd, size, err := r.FD(seg, gen)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = unix.Close(fd) })
	return fd, size
}

func word(gens []byte, off uint32) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&gens[off])))
}

func TestMappedReadersSeeBlocksWhereTheirViewsSay(t *testing.T) {
	r := newRig(t, nil)
	body := bodyOf(keyOf("a"), 5000)
	v := r.put("a", body)
	fd, size := r.fd(v.Seg, false)
	bytes := peerMap(t, fd, size, unix.PROT_READ)
	gfd, gsize := r.fd(v.Seg, true)
	gens := peerMap(t, gfd, gsize, unix.PROT_READ)

	if v.Off%64 != 0 || v.Ref.Gen%2 != 0 || v.Ref.Inc != 7 {
		t.Fatalf("view %+v", v)
	}
	checkPayload(t, bytes[v.Off-wire.HeaderLen:v.Off+uint64(v.Head.BodyLen)], body)
	if got := word(gens, v.GenOff); got != uint64(v.Ref.Gen) {
		t.Fatalf("word %d, generation %d", got, v.Ref.Gen)
	}
}

// The word is odd before the first byte of reuse and even, and different, after
// the last: a late reader's second check fails either way.
func TestTheGenerationIsOddWhileASlotIsRewritten(t *testing.T) {
	r := newRig(t, nil)
	old := r.put("a", bodyOf(keyOf("a"), 4096))
	gfd, gsize := r.fd(old.Seg, true)
	gens := peerMap(t, gfd, gsize, unix.PROT_READ)
	r.Discard(r.ns, []wire.Key{keyOf("a")})
	if word(gens, old.GenOff) != uint64(old.Ref.Gen) {
		t.Fatal("the word changed though no byte did")
	}
	v, err := r.Reserve(r.o, r.ns, []uint32{4096}, time.Minute)
	if err != nil || v[0].Ref.Slot != old.Ref.Slot {
		t.Fatalf("%+v, %v: not the slot of %+v", v, err, old)
	}
	if w := word(gens, old.GenOff); w%2 == 0 {
		t.Fatalf("word %d while the slot is reserved", w)
	}
	k := Commit{Slot: v[0].Ref.Slot, Key: keyOf("b")}
	if err := r.Ingest(r.o, bodyOf(keyOf("b"), 4096), &k); err != nil {
		t.Fatal(err)
	}
	if w := word(gens, old.GenOff); w%2 != 0 || w == uint64(old.Ref.Gen) || w != uint64(r.look("b").Ref.Gen) {
		t.Fatalf("word %d after the rewrite of generation %d", w, old.Ref.Gen)
	}
}

// A descriptor that an engine gets, and one that it opens again through /proc,
// can be mapped for reading and nothing else.
func TestSegmentsCannotBeWrittenThroughADescriptor(t *testing.T) {
	r := newRig(t, nil)
	v := r.put("a", bodyOf(keyOf("a"), 4096))
	for _, gen := range []bool{false, true} {
		fd, size := r.fd(v.Seg, gen)
		again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(again)
		for _, d := range []int{fd, again} {
			if _, err := unix.Mmap(d, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
				t.Errorf("gen=%v: a writable map", gen)
			}
			ro := peerMap(t, d, size, unix.PROT_READ)
			if err := unix.Mprotect(ro, unix.PROT_READ|unix.PROT_WRITE); err == nil {
				t.Errorf("gen=%v: a read-only map became writable", gen)
			}
			if _, err := unix.Pwrite(d, []byte{1}, 0); err == nil {
				t.Errorf("gen=%v: pwrite", gen)
			}
			if err := unix.Ftruncate(d, int64(size/2)); err == nil {
				t.Errorf("gen=%v: shrunk", gen)
			}
			if err := unix.Ftruncate(d, int64(size*2)); err == nil {
				t.Errorf("gen=%v: grown", gen)
			}
			if err := unix.Fallocate(d, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err == nil {
				t.Errorf("gen=%v: a hole", gen)
			}
			if _, err := unix.FcntlInt(uintptr(d), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
				t.Errorf("gen=%v: another seal", gen)
			}
			seals, err := unix.FcntlInt(uintptr(d), unix.F_GET_SEALS, 0)
			if err != nil || seals&memfd.ReadOnly != memfd.ReadOnly {
				t.Errorf("gen=%v: seals %x, %v", gen, seals, err)
			}
		}
	}
	// The daemon's own map, which came before the seals, still writes.
	r.put("b", bodyOf(keyOf("b"), 4096))
}

// staged is an owner's ring and a descriptor of it.
func (r *rig) staged(o Owner, n int) (fd int, b []byte) {
	r.t.Helper()
	b, err := r.Staging(o, n, n)
	if err != nil {
		r.t.Fatal(err)
	}
	fd, _, err = r.StagingFD(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return fd, b
}

func TestStagingCannotBeTruncated(t *testing.T) {
	r := newRig(t, nil)
	fd, b := r.staged(r.o, 10_000)
	defer unix.Close(fd)
	if len(b)%os.Getpagesize() != 0 || len(b) < 10_000 {
		t.Fatalf("%d bytes", len(b))
	}
	for _, n := range []int64{0, int64(len(b)) - 4096} {
		if err := unix.Ftruncate(fd, n); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncation to %d: %v", n, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("another seal: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Blocks*512 < int64(len(b)) {
		t.Errorf("%d of %d bytes are allocated, %v", st.Blocks*512, len(b), err)
	}
	// A hole is allowed, and reads as zero: no fault in the daemon. So is a longer
	// file, of which the daemon maps no more than it made.
	engine := peerMap(t, fd, uint64(len(b)), unix.PROT_READ|unix.PROT_WRITE)
	copy(engine, "engine")
	if string(b[:6]) != "engine" {
		t.Error("the daemon does not see what the engine wrote")
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err != nil {
		t.Error(err)
	}
	if b[0] != 0 {
		t.Error("the hole is not empty")
	}
	if err := unix.Ftruncate(fd, 1<<30); err != nil {
		t.Error(err)
	}
	if again, err := r.Staging(r.o, 1, 10_000); err != nil || len(again) != len(b) || r.Stats().StagingBytes != uint64(len(b)) {
		t.Errorf("%d bytes of a file that the engine made longer, %v", len(again), err)
	}
}

func TestStagingIsCapped(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StagingBytes = 1 << 20 })
	if _, err := r.Staging(r.o, 1<<19, 1<<20); err != nil {
		t.Fatal(err)
	}
	_, err := r.Staging(r.NewOwner(0), 1<<20, 1<<20)
	wantCode(t, "a ring beyond the cap", err, wire.CodeBusy)
	_, err = r.Staging(r.o, 0, 1)
	wantCode(t, "an empty ring", err, wire.CodeInvalid)
	_, err = r.Staging(r.o, 2, 1)
	wantCode(t, "a ring of less than the least", err, wire.CodeInvalid)
	r.Drop(r.o)
	if n := r.Stats().StagingBytes; n != 0 {
		t.Fatalf("%d bytes of staging after Drop", n)
	}
	_, err = r.Staging(r.o, 4096, 4096)
	wantCode(t, "a ring of a dropped owner", err, wire.CodeInvalid)
}

// A process that writes to its ring all the time never gets a block published
// whose body is not what its checksum says.
func TestAScribblerNeverGetsABadBlockPublished(t *testing.T) {
	r := newRig(t, nil)
	const body = 64 << 10
	fd, ring := r.staged(r.o, body)
	defer unix.Close(fd)
	engine := peerMap(t, fd, uint64(len(ring)), unix.PROT_READ|unix.PROT_WRITE)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := uint32(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				for at := i * 64 % 4096; at+4 <= body; at += 4096 {
					atomic.AddUint32((*uint32)(unsafe.Pointer(&engine[at])), 1)
				}
			}
		}
	}()
	for i := range 300 {
		name := fmt.Sprint("block", i)
		v, err := r.Reserve(r.o, r.ns, []uint32{body}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		k := Commit{Slot: v[0].Ref.Slot, Key: keyOf(name)}
		if i%2 == 1 { // a header that vouches for what was there a moment ago
			k.Head = &wire.Header{BodyLen: body, Sum: wire.SumOf(append([]byte(nil), ring...))}
		}
		err = r.Ingest(r.o, ring, &k)
		if k.Head != nil && errors.Is(err, wire.CodeChecksum) {
			if _, err := r.Stat(keyOf(name)); !errors.Is(err, wire.CodeAbsent) {
				t.Fatalf("a refused block is known: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Verify(View{NS: r.ns, Key: keyOf(name)}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
	r.check()
}

func TestTenantsShareNoSegment(t *testing.T) {
	r := newRig(t, nil)
	other := nsOf("other")
	if err := r.AddNamespace(other, tenantOf("u")); err != nil {
		t.Fatal(err)
	}
	r.put("a", bodyOf(keyOf("a"), 4096))
	if _, err := r.Reserve(r.o, other, []uint32{4096}, time.Minute); err != nil {
		t.Fatal(err)
	}
	mine, theirs := r.Segments(tenantOf("t")), r.Segments(tenantOf("u"))
	if len(mine) != 1 || len(theirs) != 1 || mine[0] == theirs[0] || mine[0] == 0 || theirs[0] == 0 {
		t.Fatalf("segments %v and %v", mine, theirs)
	}
	if got := r.Segments(tenantOf("nobody")); len(got) != 0 {
		t.Fatalf("segments %v of nobody", got)
	}
	for _, seg := range []uint32{0, max(mine[0], theirs[0]) + 1, 99, 1<<32 - 1} {
		_, _, err := r.FD(seg, false)
		wantCode(t, "a segment that is not", err, wire.CodeAbsent)
	}
}

// The capacity moves from one tenant to another by whole segments; what the
// first tenant's engine still maps stays readable there and is never written again.
func TestASegmentReturnsAndItsReadersKeepTheirMap(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Capacity, c.ExtentBytes = 512<<10, 256<<10 })
	other := nsOf("other")
	if err := r.AddNamespace(other, tenantOf("u")); err != nil {
		t.Fatal(err)
	}
	body := bodyOf(keyOf("a"), 100<<10)
	v := r.put("a", body)
	for _, n := range []string{"b", "c", "d"} {
		r.put(n, bodyOf(keyOf(n), 100<<10))
	}
	fd, size := r.fd(v.Seg, false)
	kept := peerMap(t, fd, size, unix.PROT_READ)
	if _, err := r.Reserve(r.o, other, []uint32{100 << 10, 100 << 10}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := r.Segments(tenantOf("t")); len(got) != 1 || got[0] == v.Seg {
		t.Fatalf("segments %v after the return of %d", got, v.Seg)
	}
	_, _, err := r.FD(v.Seg, false)
	wantCode(t, "the descriptor of a returned segment", err, wire.CodeAbsent)
	checkPayload(t, kept[v.Off-wire.HeaderLen:v.Off+uint64(v.Head.BodyLen)], body)
	r.check()
}

func TestAKernelWithoutMemoryMeansEviction(t *testing.T) {
	r := newRig(t, nil)
	r.put("a", bodyOf(keyOf("a"), 250<<10))
	r.segment = func(uint64, uint64) (*segmentMemory, error) { return nil, unix.ENOMEM }
	for i := range 10 {
		r.put(fmt.Sprint("x", i), bodyOf(keyOf("x"), 250<<10))
	}
	st := r.Stats()
	if st.SegmentsRefused != 9 || st.Segments != 1 || st.Evictions[wire.OutputCritical] == 0 {
		t.Fatalf("stats %+v", st)
	}
	other := nsOf("other")
	if err := r.AddNamespace(other, tenantOf("u")); err != nil {
		t.Fatal(err)
	}
	_, err := r.Reserve(r.o, other, []uint32{4096}, time.Minute)
	wantCode(t, "a tenant without a segment", err, wire.CodeFull)
}
