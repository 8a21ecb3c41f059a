package window

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks"
	"meridian/wire"
)

// ending is a way for a window to end from outside.
var endings = map[string]struct {
	end  func(r *rig, o blocks.Owner, addr uint64)
	code wire.Code
}{
	"deadline": {func(r *rig, _ blocks.Owner, _ uint64) { r.now.Add(int64(time.Second)) }, wire.CodeDeadline},
	"close":    {func(r *rig, o blocks.Owner, addr uint64) { r.Close(o, addr) }, wire.CodeCancelled},
	"drop": {func(r *rig, o blocks.Owner, _ uint64) {
		r.store.Drop(o)
		r.Drop(o)
	}, wire.CodeCancelled},
}

func TestAWindowThatEndsWhileItsMemoryIsMadeIsNeverOpen(t *testing.T) {
	for name, e := range endings {
		if name == "close" { // nobody knows its address yet
			continue
		}
		r := newRig(t)
		o := r.store.NewOwner(0)
		r.hook.beforeCheck = func() { e.end(r, o, 0) }
		want := e.code
		if name == "drop" { // the Store says so first
			want = wire.CodeInvalid
		}
		if w, err := r.Open(o, spec(r.ns, time.Second, []uint32{64})); !errors.Is(err, want) || w.FD != 0 {
			t.Errorf("%s: %+v, %v, want %s", name, w, err, want)
		}
		r.hook.beforeCheck = nil
		if st := r.Stats(); st.Windows != 0 || st.Bytes != 0 || st.Opened != 0 {
			t.Errorf("%s: %+v", name, st)
		}
		r.store.Drop(o)
	}
}

func TestOpenAsksTheStoreFirst(t *testing.T) {
	r := newRig(t)
	gone := r.store.NewOwner(0)
	r.store.Drop(gone)
	for name, c := range map[string]struct {
		o    blocks.Owner
		ns   wire.Namespace
		n    uint32
		want wire.Code
	}{
		"an owner that is gone":        {gone, r.ns, 1, wire.CodeInvalid},
		"a namespace that is not open": {r.o, wire.Namespace{9}, 1, wire.CodeNSUnknown},
		"a body that no slot holds":    {r.o, r.ns, 3 << 20, wire.CodeTooLarge},
	} {
		if _, err := r.Open(c.o, spec(c.ns, time.Second, []uint32{c.n})); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if st := r.Stats(); st.Windows != 0 || st.Bytes != 0 {
		t.Errorf("%+v", st)
	}
}

// Whatever ends a window in the middle of its Commit: what was published stays,
// nothing is published afterwards, and the window is free.
func TestAWindowThatEndsWhileItIsCommittedPublishesNothingMore(t *testing.T) {
	for name, e := range endings {
		r := newRig(t)
		o := r.store.NewOwner(0)
		w, err := r.Open(o, spec(r.ns, time.Second, []uint32{64, 64, 64}))
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(w.FD)
		ingests := 0
		r.hook.beforeIngest = func() {
			if ingests++; ingests == 2 {
				if err := r.Commit(o, w.Addr, nil); !errors.Is(err, wire.CodeStale) {
					t.Errorf("%s: a second Commit meanwhile: %v", name, err)
				}
				e.end(r, o, w.Addr)
				e.end(r, o, w.Addr)
				if st := r.Stats(); st.Windows != 1 {
					t.Errorf("%s: the window's memory is gone while it is read", name)
				}
			}
		}
		c := []blocks.Commit{{Key: wire.Key{1}}, {Key: wire.Key{2}}, {Key: wire.Key{3}}}
		if err := r.Commit(o, w.Addr, c); err != nil || c[0].Err != nil {
			t.Fatal(name, err, c[0].Err)
		}
		// Close came while the second was on its way into its slot: it may arrive.
		if name != "close" && !errors.Is(c[1].Err, e.code) {
			t.Errorf("%s: the item under way: %v, want %s", name, c[1].Err, e.code)
		}
		if !errors.Is(c[2].Err, e.code) {
			t.Errorf("%s: the item after: %v, want %s", name, c[2].Err, e.code)
		}
		for i, k := range c {
			if _, _, _, err := r.stored(t, k.Key); (err == nil) != (k.Err == nil) {
				t.Errorf("%s: item %d answered %v and is found as %v", name, i, k.Err, err)
			}
		}
		if st := r.Stats(); st.Windows != 0 || st.Bytes != 0 {
			t.Errorf("%s: %+v", name, st)
		}
		if st := r.store.Stats(); st.Reserved != 0 || st.Leaked != 0 {
			t.Errorf("%s: %d slots reserved, %d leaked", name, st.Reserved, st.Leaked)
		}
		r.store.Drop(o)
	}
}

// A deadline needs no Step: neither an access nor a Commit after it succeeds.
func TestALateStepProlongsNothing(t *testing.T) {
	r := newRig(t)
	one, two := r.open(t, 64), r.open(t, 64)
	r.now.Add(int64(time.Second))
	if err := r.write(one.Addr, []byte("late")); !errors.Is(err, wire.CodeStale) {
		t.Errorf("an access after the deadline: %v", err)
	}
	r.now.Add(-1)
	three := r.open(t, 64)
	r.now.Add(int64(time.Second))
	if err := r.Commit(r.o, three.Addr, []blocks.Commit{{Key: wire.Key{1}}}); !errors.Is(err, wire.CodeDeadline) {
		t.Errorf("a Commit after the deadline: %v", err)
	}
	if err := r.Commit(r.o, two.Addr, nil); !errors.Is(err, wire.CodeStale) {
		t.Errorf("a Commit of a window long gone: %v", err)
	}
	if _, _, _, err := r.stored(t, wire.Key{1}); !errors.Is(err, wire.CodeAbsent) {
		t.Errorf("published after the deadline: %v", err)
	}
}

// A process that keeps a window's descriptor and map after its end writes into pages of
// nobody: not into a block, and not into a later window. The daemon's pages are
// given back however long the other side keeps its map.
func TestALateWriteThroughAKeptMapTouchesNothing(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 5000)
	theirs, err := unix.Mmap(w.FD, 0, int(w.Len), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(theirs) }()
	body := bytes.Repeat([]byte{5}, 5000)
	copy(theirs[w.Items[0].Off:], body)
	c := []blocks.Commit{{Key: wire.Key{1}}}
	if err := r.Commit(r.o, w.Addr, c); err != nil || c[0].Err != nil {
		t.Fatal(err, c[0].Err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(w.FD, &st); err != nil || st.Blocks != 0 {
		t.Errorf("%d blocks of memory are kept, %v", st.Blocks, err)
	}
	later := r.open(t, 5000)
	for i := range theirs {
		theirs[i] = 0xee
	}
	if got, _, _, err := r.stored(t, wire.Key{1}); err != nil || !bytes.Equal(got, body) {
		t.Errorf("the block changed: %v", err)
	}
	b, leave, err := r.Enter("them", later.Addr, later.Len, false)
	if err != nil {
		t.Fatal(err)
	}
	defer leave(0)
	if bytes.IndexByte(b, 0xee) >= 0 {
		t.Error("a write to the old window arrived in the new one")
	}
}

// A writer that knows our format writes header and body as one range. The header
// is read by a copy of its own, and the copy of the body is checked against it.
func TestAPayloadWithItsHeaderIsOneRange(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 300)
	body := bytes.Repeat([]byte{3}, 300)
	head, err := wire.Mint(wire.ThinkActive, body)
	if err != nil {
		t.Fatal(err)
	}
	at := w.Addr + w.Items[0].Off - wire.HeaderLen
	if err := r.write(at, append(head.Append(nil), body...)); err != nil {
		t.Fatal(err)
	}
	b, leave, err := r.Own(r.o, at, wire.HeaderLen)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.ParseHeader(bytes.Clone(b), wire.Strict, uint32(w.Items[0].Len))
	leave()
	if err != nil {
		t.Fatal(err)
	}
	c := []blocks.Commit{{Key: wire.Key{1}, Tier: got.Tier, Head: &got, Att: wire.AttestProducer}}
	if err := r.Commit(r.o, w.Addr, c); err != nil || c[0].Err != nil {
		t.Fatal(err, c[0].Err)
	}
	if kept, h, att, err := r.stored(t, wire.Key{1}); err != nil || h != head || att != wire.AttestProducer || !bytes.Equal(kept, body) {
		t.Errorf("header %+v, attest %s, %v", h, att, err)
	}
}

func TestWithoutAHeaderAShorterBodyIsIngested(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 64, 64, 64)
	c := []blocks.Commit{
		{Key: wire.Key{1}, Len: 10, Att: wire.AttestProducer}, // a claim that nobody can make for raw bytes
		{Key: wire.Key{2}, Len: 65}, {},
	}
	if err := r.Commit(r.o, w.Addr, c); err != nil || c[0].Err != nil {
		t.Fatal(err, c[0].Err)
	}
	if b, _, att, err := r.stored(t, wire.Key{1}); err != nil || len(b) != 10 || att != wire.AttestIngest {
		t.Errorf("%d bytes, attest %s, %v", len(b), att, err)
	}
	if !errors.Is(c[1].Err, wire.CodeTooLarge) || !errors.Is(c[2].Err, wire.CodeInvalid) {
		t.Errorf("too long: %v; no key: %v", c[1].Err, c[2].Err)
	}
	for i := 1; i < len(c); i++ {
		if e, ok := errors.AsType[*Error](c[i].Err); !ok || e.Addr != w.Addr+w.Items[i].Off {
			t.Errorf("item %d of window %#x at %#x: %v", i, w.Addr, w.Items[i].Off, c[i].Err)
		}
	}
}

// Room for a thinking block is looked for as for one: it may not take the place
// of output blocks beyond its share.
func TestRoomIsReservedInTheTierOfTheBlock(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 64, 64)
	r.hook.tiers = []wire.Tier{}
	c := []blocks.Commit{{Key: wire.Key{1}, Tier: wire.ThinkActive}, {Key: wire.Key{2}, Tier: wire.OutputCritical}}
	if err := r.Commit(r.o, w.Addr, c); err != nil || c[0].Err != nil || c[1].Err != nil {
		t.Fatal(err, c[0].Err, c[1].Err)
	}
	if got := r.hook.tiers; len(got) != 2 || got[0] != wire.ThinkActive || got[1] != wire.OutputCritical {
		t.Errorf("reserved as %v", got)
	}
}

// Writers, committers, closers, the clock and the end of sessions meet in every
// order: every published body is one that was written in whole, and nothing is
// left over.
func TestCallsInAnyOrderLeaveNothing(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	addrs := make(chan uint64, 256)
	for g := range uint64(4) {
		wg.Go(func() { session(t, r, g, addrs) })
	}
	done := make(chan struct{})
	var house sync.WaitGroup
	house.Go(func() {
		for {
			select {
			case <-done:
				return
			case addr := <-addrs: // a foreign writer, often late
				if b, leave, err := r.Enter("them", addr, 64, true); err == nil {
					for i := range b {
						b[i] = 1
					}
					leave(64)
				}
			default:
				r.now.Add(int64(time.Millisecond))
				r.Step()
				r.Stats()
			}
		}
	})
	wg.Wait()
	close(done)
	house.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.core.check(); err != nil {
		t.Error(err)
	}
	if st := r.core.stats(); st.Windows != 0 || st.Bytes != 0 || st.InFlight != 0 || st.Blocks == 0 {
		t.Errorf("%+v", st)
	}
}

func session(t *testing.T, r *rig, seed uint64, addrs chan<- uint64) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	o := r.store.NewOwner(0)
	for i := range 200 {
		w, err := r.Open(o, spec(r.ns, time.Duration(rnd.IntN(1000)+1)*time.Millisecond, []uint32{64, 5000}))
		if err != nil {
			if !errors.Is(err, wire.CodeFull) && !errors.Is(err, wire.CodeDeadline) {
				t.Error(err)
			}
			continue
		}
		_ = unix.Close(w.FD)
		select {
		case addrs <- w.Addr + w.Items[0].Off:
		default:
		}
		key := wire.KeyOf(r.ns, []byte{byte(seed), byte(i)})
		c := []blocks.Commit{{Key: key}}
		var busy *Error
		switch rnd.IntN(4) {
		case 0:
			r.Close(o, w.Addr)
		case 1:
			r.store.Drop(o)
			r.Drop(o)
			o = r.store.NewOwner(0)
		default:
			err := r.Commit(o, w.Addr, c)
			for errors.As(err, &busy) && busy.Code == wire.CodeBusy {
				<-busy.Quiet
				err = r.Commit(o, w.Addr, c)
			}
			if err != nil && !errors.Is(err, wire.CodeStale) && !errors.Is(err, wire.CodeDeadline) {
				t.Error(err)
			}
			if err != nil || c[0].Err != nil {
				continue
			}
			if b, _, _, err := r.stored(t, key); err == nil && bytes.Count(b, b[:1]) != len(b) {
				t.Error("half of a write was published")
			}
		}
	}
	r.store.Drop(o)
	r.Drop(o)
}
