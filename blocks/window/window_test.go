package window

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks"
	"meridian/wire"
)

type rig struct {
	*Table
	store *blocks.Store
	ns    wire.Namespace
	hook  *hooked
	now   atomic.Int64
	o     blocks.Owner
}

// hooked is a Store that lets a test in before a call reaches it.
type hooked struct {
	Store
	beforeCheck, beforeIngest func()
	tiers                     []wire.Tier // that ReserveTier was asked for, where not nil
}

func (h *hooked) ReserveTier(o blocks.Owner, ns wire.Namespace, t wire.Tier, size []uint32, ttl time.Duration) ([]blocks.View, error) {
	if h.tiers != nil {
		h.tiers = append(h.tiers, t)
	}
	return h.Store.ReserveTier(o, ns, t, size, ttl)
}

func (h *hooked) Check(o blocks.Owner, ns wire.Namespace, size []uint32) error {
	if h.beforeCheck != nil {
		h.beforeCheck()
	}
	return h.Store.Check(o, ns, size)
}

func (h *hooked) Ingest(o blocks.Owner, from []byte, c *blocks.Commit) error {
	if h.beforeIngest != nil {
		h.beforeIngest()
	}
	return h.Store.Ingest(o, from, c)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{}
	clock := func() time.Duration { return time.Duration(r.now.Load()) }
	s, err := blocks.Open(blocks.Config{Capacity: 8 << 20, Agent: [16]byte{1}, Incarnation: 1, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	m := wire.Manifest{Tenant: "acme", Model: "m"}
	r.store, r.ns, r.o = s, m.Namespace(), s.NewOwner(0)
	if err := s.AddNamespace(r.ns, m.TenantID()); err != nil {
		t.Fatal(err)
	}
	r.hook = &hooked{Store: s}
	r.Table = New(r.hook, clock, 4<<20, nil)
	t.Cleanup(func() {
		r.Drop(r.o)
		s.Drop(r.o)
		if st := r.Stats(); st.Windows != 0 || st.Bytes != 0 || st.InFlight != 0 {
			t.Errorf("counts do not return to zero: %+v", st)
		}
		if st := s.Stats(); st.Reserved != 0 || st.Leaked != 0 {
			t.Errorf("the store keeps %d reserved and %d leaked slots", st.Reserved, st.Leaked)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// spec is a window that everybody may write, and a process may map.
func spec(ns wire.Namespace, ttl time.Duration, lens []uint32) Spec {
	return Spec{NS: ns, TTL: ttl, Lens: lens, Read: true, Write: true, Map: true}
}

func (r *rig) open(t *testing.T, lens ...uint32) Window {
	t.Helper()
	w, err := r.Open(r.o, spec(r.ns, time.Second, lens))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(w.FD) })
	return w
}

// write is a foreign access.
func (r *rig) write(addr uint64, b []byte) error {
	to, leave, err := r.Enter("them", addr, uint64(len(b)), true)
	if err != nil {
		return err
	}
	leave(uint64(copy(to, b)))
	return nil
}

func (r *rig) stored(t *testing.T, key wire.Key) (body []byte, head wire.Header, att wire.Attest, err error) {
	t.Helper()
	v := []blocks.View{{NS: r.ns, Key: key}}
	l, e := r.store.Acquire(r.o, v, time.Minute, false)
	if e != nil {
		t.Fatal(e)
	}
	defer r.store.Release(r.o, l)
	if v[0].Err != nil {
		return nil, wire.Header{}, 0, v[0].Err
	}
	p := r.store.Payload(v[0])
	h, body, e := wire.Decode(p, wire.Strict, wire.MaxBody)
	if e != nil {
		t.Fatalf("a published block: %v", e)
	}
	return bytes.Clone(body), h, v[0].Att, nil
}

func TestWhatIsWrittenIsPublishedByCommitOnly(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 100, 5000)
	one, two := bytes.Repeat([]byte{1}, 100), bytes.Repeat([]byte{2}, 5000)
	if err := errors.Join(r.write(w.Addr+w.Items[0].Off, one), r.write(w.Addr+w.Items[1].Off, two)); err != nil {
		t.Fatal(err)
	}
	k1, k2 := wire.Key{1}, wire.Key{2}
	if _, _, _, err := r.stored(t, k1); !errors.Is(err, wire.CodeAbsent) {
		t.Errorf("before Commit: %v", err)
	}
	head, err := wire.Mint(wire.OutputCritical, two)
	if err != nil {
		t.Fatal(err)
	}
	c := []blocks.Commit{{Key: k1, Tier: wire.ThinkActive}, {Key: k2, Tier: wire.OutputCritical, Head: &head}}
	if err := r.Commit(r.o, w.Addr, c); err != nil || c[0].Err != nil || c[1].Err != nil {
		t.Fatal(err, c[0].Err, c[1].Err)
	}
	for _, want := range []struct {
		key  wire.Key
		body []byte
	}{{k1, one}, {k2, two}} {
		body, _, att, err := r.stored(t, want.key)
		if err != nil || !bytes.Equal(body, want.body) || att != wire.AttestIngest {
			t.Errorf("%s: %d bytes, attest %s, %v", want.key, len(body), att, err)
		}
	}
	if err := r.Commit(r.o, w.Addr, c); !errors.Is(err, wire.CodeStale) {
		t.Errorf("a second Commit: %v", err)
	}
}

func TestALateWriteIsOutOfRangeForEver(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 64)
	r.Close(r.o, w.Addr)
	r.Close(r.o, w.Addr) // idempotent
	again := r.open(t, 64)
	if again.Addr <= w.Addr || again.Addr-w.Addr < w.Len {
		t.Errorf("address %#x after %#x of %d bytes", again.Addr, w.Addr, w.Len)
	}
	if err := r.write(w.Addr, []byte("late")); !errors.Is(err, wire.CodeStale) {
		t.Errorf("a late write: %v", err)
	}
	if st := r.Stats(); st.Late != 1 {
		t.Errorf("%d late accesses, want 1", st.Late)
	}
}

func TestRangesThatLeaveTheirWindowAreRefused(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 64)
	for _, c := range []struct {
		addr, n uint64
		want    wire.Code
	}{
		{w.Addr, w.Len + 1, wire.CodeInvalid}, {w.Addr + w.Len - 1, 2, wire.CodeInvalid}, {w.Addr, 1 << 63, wire.CodeInvalid},
		{w.Addr + w.Len, 1, wire.CodeInvalid}, {w.Addr - 1, 1, wire.CodeInvalid}, {0, 1, wire.CodeInvalid}, {^uint64(0), 1, wire.CodeInvalid},
		{w.Addr, 0, wire.CodeInvalid}, {w.Addr, ^uint64(0), wire.CodeInvalid}, {w.Addr + w.Len, ^uint64(0), wire.CodeInvalid},
	} {
		if _, _, err := r.Enter("them", c.addr, c.n, true); !errors.Is(err, c.want) {
			t.Errorf("%d bytes at %#x: %v, want %s", c.n, c.addr, err, c.want)
		}
	}
	if _, leave, err := r.Enter("them", w.Addr+w.Len-1, 1, true); err != nil {
		t.Errorf("the last byte: %v", err)
	} else {
		leave(64)
		leave(64) // once is once
	}
}

func TestCommitWaitsForAccessesAndTakesNoNewOnes(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 64)
	b, leave, err := r.Enter("them", w.Addr+w.Items[0].Off, 64, true)
	if err != nil {
		t.Fatal(err)
	}
	c := []blocks.Commit{{Key: wire.Key{1}}}
	var busy *Error
	if err := r.Commit(r.o, w.Addr, c); !errors.As(err, &busy) || !errors.Is(err, wire.CodeBusy) || busy.Have != 1 {
		t.Fatalf("with an access in: %v", err)
	}
	select {
	case <-busy.Quiet:
		t.Error("quiet though an access is in")
	default:
	}
	if err := r.write(w.Addr, []byte("new")); !errors.Is(err, wire.CodeStale) {
		t.Errorf("a new access while closing: %v", err)
	}
	copy(b, bytes.Repeat([]byte{7}, 64))
	leave(64)
	<-busy.Quiet
	if err := r.Commit(r.o, w.Addr, c); err != nil || c[0].Err != nil {
		t.Fatal(err, c[0].Err)
	}
	if body, _, _, err := r.stored(t, wire.Key{1}); err != nil || body[0] != 7 {
		t.Errorf("%v, %v", body, err)
	}
}

func TestABodyThatIsNotItsHeadersIsNeverVisible(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 64, 64)
	head, err := wire.Mint(wire.ThinkComplete, bytes.Repeat([]byte{9}, 64))
	if err != nil {
		t.Fatal(err)
	}
	long := head
	long.BodyLen = 65
	c := []blocks.Commit{{Key: wire.Key{1}, Head: &head}, {Key: wire.Key{2}, Head: &long}}
	if err := r.Commit(r.o, w.Addr, c); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(c[0].Err, wire.CodeChecksum) || !errors.Is(c[1].Err, wire.CodeTooLarge) {
		t.Errorf("%v, %v", c[0].Err, c[1].Err)
	}
	for _, k := range []wire.Key{{1}, {2}} {
		if _, _, _, err := r.stored(t, k); !errors.Is(err, wire.CodeAbsent) {
			t.Errorf("%s is visible: %v", k, err)
		}
	}
}

// A deadline, Close and Drop end in Free from each state: at once, or when the
// last access has left.
func TestEveryEndIsFree(t *testing.T) {
	ends := map[string]func(*rig, uint64){
		"deadline": func(r *rig, _ uint64) { r.now.Add(int64(2 * time.Second)); r.Step() },
		"close":    func(r *rig, addr uint64) { r.Close(r.o, addr) },
		"drop":     func(r *rig, _ uint64) { r.Drop(r.o) },
	}
	for name, end := range ends {
		for _, closing := range []bool{false, true} {
			for _, busy := range []bool{false, true} {
				r := newRig(t)
				w := r.open(t, 64)
				leave := func(uint64) {}
				if busy || closing {
					var err error
					if _, leave, err = r.Enter("them", w.Addr, 1, true); err != nil {
						t.Fatal(err)
					}
				}
				if closing {
					if err := r.Commit(r.o, w.Addr, nil); !errors.Is(err, wire.CodeBusy) {
						t.Fatal(err)
					}
				}
				if !busy {
					leave(64)
				}
				end(r, w.Addr)
				if st := r.Stats(); (st.Windows == 1) != busy {
					t.Errorf("%s, closing %t, busy %t: %d windows", name, closing, busy, st.Windows)
				}
				if err := r.write(w.Addr, []byte{1}); !errors.Is(err, wire.CodeStale) {
					t.Errorf("%s: an access afterwards: %v", name, err)
				}
				leave(64)
				end(r, w.Addr)
				if st := r.Stats(); st.Windows != 0 || st.Bytes != 0 {
					t.Errorf("%s, closing %t, busy %t: %+v at the end", name, closing, busy, st)
				}
			}
		}
	}
}

func TestStepSaysWhenItIsDue(t *testing.T) {
	r := newRig(t)
	if next := r.Step(); next != 0 {
		t.Errorf("nothing is due at %v", next)
	}
	r.open(t, 64)
	if next := r.Step(); next != time.Second {
		t.Errorf("due at %v, want 1 s", next)
	}
	r.now.Store(int64(time.Second))
	if next := r.Step(); next != 0 || r.Stats().Lapsed != 1 {
		t.Errorf("due at %v, lapsed %d", next, r.Stats().Lapsed)
	}
}

func TestAnothersWindowIsAsOneThatIsNotThere(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 64)
	other := r.store.NewOwner(0)
	defer r.store.Drop(other)
	if err := r.Commit(other, w.Addr, nil); !errors.Is(err, wire.CodeStale) {
		t.Errorf("commit: %v", err)
	}
	r.Close(other, w.Addr)
	r.Drop(other)
	if err := r.write(w.Addr, []byte("mine")); err != nil {
		t.Errorf("after another's Close: %v", err)
	}
}

func TestBoundsAreNamed(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		lens []uint32
		want wire.Code
	}{
		"no item":        {nil, wire.CodeInvalid},
		"an empty item":  {[]uint32{1, 0}, wire.CodeInvalid},
		"too many items": {make([]uint32, MaxItems+1), wire.CodeInvalid},
		"too many bytes": {[]uint32{4<<20 + 1}, wire.CodeFull},
	} {
		if _, err := r.Open(r.o, spec(r.ns, time.Second, c.lens)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	w := r.open(t, 1)
	if err := r.Commit(r.o, w.Addr, make([]blocks.Commit, 2)); !errors.Is(err, wire.CodeInvalid) {
		t.Errorf("more commits than items: %v", err)
	}
}

// A process that has mapped the window writes during Commit: what is published matches
// its checksum all the same, and truncation is refused.
func TestAScribblerHarmsNoPublishedBlock(t *testing.T) {
	r := newRig(t)
	const size = 256 << 10
	for round := range 20 {
		w := r.open(t, size)
		if err := unix.Ftruncate(w.FD, 0); !errors.Is(err, unix.EPERM) {
			t.Fatalf("truncation: %v", err)
		}
		theirs, err := unix.Mmap(w.FD, 0, int(w.Len), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		var stop atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				theirs[64+i*4097%size]++
			}
		})
		c := []blocks.Commit{{Key: wire.Key{byte(round + 1)}}}
		if round%2 == 1 { // a header that vouches for what was there a moment ago
			at := w.Items[0].Off
			head, err := wire.Mint(wire.ThinkActive, bytes.Clone(theirs[at:at+size]))
			if err != nil {
				t.Fatal(err)
			}
			c[0].Head = &head
		}
		err = r.Commit(r.o, w.Addr, c)
		stop.Store(true)
		wg.Wait()
		refused := c[0].Head != nil && errors.Is(c[0].Err, wire.CodeChecksum)
		if err != nil || c[0].Err != nil && !refused {
			t.Fatal(err, c[0].Err)
		}
		if _, _, _, err := r.stored(t, c[0].Key); refused != errors.Is(err, wire.CodeAbsent) { // Decode checks the sum
			t.Errorf("round %d, refused %t: %v", round, refused, err)
		}
		if err := unix.Munmap(theirs); err != nil {
			t.Error(err)
		}
	}
}

func TestManyWindowsAtOnce(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			o := r.store.NewOwner(0)
			defer r.store.Drop(o)
			defer r.Table.Drop(o)
			for i := range 50 {
				w, err := r.Table.Open(o, spec(r.ns, time.Hour, []uint32{100, 200}))
				if err != nil {
					t.Error(err)
					return
				}
				_ = unix.Close(w.FD)
				body := bytes.Repeat([]byte{byte(g + 1)}, 200)
				if err := r.write(w.Addr+w.Items[1].Off, body); err != nil {
					t.Error(err)
				}
				key := wire.KeyOf(r.ns, []byte{byte(g), byte(i)})
				c := []blocks.Commit{{Key: wire.KeyOf(r.ns, []byte{byte(g), byte(i), 0})}, {Key: key}}
				if err := r.Table.Commit(o, w.Addr, c); err != nil || c[1].Err != nil {
					t.Error(err, c[1].Err)
					return
				}
			}
		})
	}
	wg.Wait()
	if st := r.Stats(); st.Opened != 400 || st.Blocks != 800 {
		t.Errorf("%+v", st)
	}
}
