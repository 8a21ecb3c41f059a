package transfer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// bySize routes blocks of at most 4 KiB to a, larger ones to b.
var bySize = []fabric.Route{{MaxBytes: 4 << 10, Fabric: "a"}, {Fabric: "b"}}

// Blocks that went cold are copied with who vouched for them, and their slots are
// freed; they come back whole.
func TestColdBlocksLeaveAndComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []fabric.Route{{Fabric: "a"}}, named(world(t, 1)))
		keys := r.keys("cold", 5)
		r.put(keys, size, wire.ThinkComplete)
		r.Offer(r.ns, keys)
		synctest.Wait()
		if st := r.OffloadStats(); st.Blocks != 5 || st.Bytes != 5*size || st.Waiting != 0 {
			t.Errorf("offloaded: %+v", st)
		}
		if st := r.store.Stats(); st.Offloaded != 5 {
			t.Errorf("%d slots were freed, want 5", st.Offloaded)
		}
		r.Offer(r.ns, keys) // has a copy: goes nowhere
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
		r.holds(keys, size)
		if v, err := r.store.Stat(keys[0]); err != nil || v.Att != wire.AttestProducer {
			t.Errorf("back with attest %v, %v", v.Att, err)
		}
		synctest.Wait()
		if st := r.OffloadStats(); st.Blocks != 5 {
			t.Errorf("blocks that have a copy were offloaded again: %+v", st)
		}
	})
}

// A destination that hangs holds up no other. Its own batches wait, up to a bound
// and a share of each namespace; above, they are refused and counted, and the
// blocks stay.
func TestADestinationThatHangsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		release := make(chan struct{})
		f[0].push = func(ctx context.Context, it []fabric.Item) { // its context, too, means nothing to it
			<-release
			frozen(ctx, it)
		}
		r := newRig(t, bySize, named(f))
		small, large := r.keys("small", 1), r.keys("large", 4)
		r.put(small, 1<<10, wire.ThinkComplete)
		r.put(large, size, wire.ThinkComplete)
		for range offloadQueue {
			r.Offer(r.ns, small)
		}
		r.Offer(r.ns, large)
		synctest.Wait()
		if st := r.OffloadStats(); st.Blocks != 4 {
			t.Errorf("%d blocks reached the destination that works, want 4", st.Blocks)
		}
		if n := r.OffloadStats().Waiting; n < offloadShare-1 || n > offloadShare {
			t.Errorf("%d batches wait, want the share of one namespace, %d", n, offloadShare)
		}
		if n := r.seen.read(&r.seen.refused); n < offloadQueue-offloadShare-1 {
			t.Errorf("%d batches were refused and counted", n)
		}
		close(release)
		time.Sleep(offloadTimeout * 2)
		synctest.Wait()
		if n := r.OffloadStats().Waiting; n != 0 {
			t.Errorf("%d batches still wait", n)
		}
		allAre(t, r.fetch(t.Context(), small), wire.CodeOK) // it went to the other one
		r.holds(small, 1<<10)
	})
}

// The queue of a destination is bounded over all namespaces.
func TestTheQueueIsBoundedOverAllNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		f[0].push = frozen
		r := newRig(t, []fabric.Route{{Fabric: "a"}}, named(f))
		to := destination{name: "a", route: "a", fabric: f[0]}
		first := r.keys("first", 1)
		r.put(first, size, wire.ThinkComplete)
		r.Offer(r.ns, first) // which keeps the queue's goroutine busy
		synctest.Wait()
		for i := range 2 * offloadQueue {
			r.enqueue(to, coldBatch{ns: wire.Namespace{byte(i % 5)}, keys: r.keys("k", 1), failed: make([]map[string]error, 1)})
		}
		if n := r.OffloadStats().Waiting; n != offloadQueue {
			t.Errorf("%d batches wait, want %d", n, offloadQueue)
		}
		if n := r.seen.read(&r.seen.refused); n != offloadQueue {
			t.Errorf("%d were refused, want %d", n, offloadQueue)
		}
	})
}

// What one fabric refuses goes to the next that the routes allow, each once, and
// stays where it is if there is none.
func TestAnOffloadFailsOverAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		full := synthetic.Fault{Kind: synthetic.Full, Op: synthetic.OpPush}
		f[0].Inject(full)
		r := newRig(t, []fabric.Route{{Fabric: "a"}, {Fabric: "b"}}, named(f))
		keys := r.keys("cold", 3)
		r.put(keys, size, wire.ThinkComplete)
		r.Offer(r.ns, keys)
		synctest.Wait()
		if v, err := r.store.Stat(keys[0]); v.Where.Fabric != "b" {
			t.Errorf("the copy is at %q (%v), want b", v.Where.Fabric, err)
		}
		if n := r.seen.read(&r.seen.fellBack); n != 3 {
			t.Errorf("%d fallbacks were counted, want 3", n)
		}
		f[1].Inject(full)
		stay := r.keys("stay", 2)
		r.put(stay, size, wire.ThinkComplete)
		r.Offer(r.ns, stay)
		synctest.Wait()
		r.holds(stay, size)
	})
}

// A write-through copy is there when Store returns, and the block stays here.
func TestStoreReturnsWhenTheCopyIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		r := newRig(t, bySize, named(f))
		small, large := r.keys("small", 2), r.keys("large", 2)
		r.put(small, 1<<10, wire.OutputCritical)
		r.put(large, size, wire.OutputCritical)
		keys := append(small, large...)
		r.Store(t.Context(), r.ns, keys)
		it := make([]fabric.Item, len(keys))
		for i := range it {
			it[i] = fabric.Item{NS: r.ns, Key: keys[i]}
		}
		f[0].Fabric.Find(t.Context(), it)
		for i := range it {
			if it[i].Err != nil || it[i].Att != wire.AttestProducer {
				t.Errorf("copy %d: %v, attest %v", i, it[i].Err, it[i].Att)
			}
		}
		r.holds(small, 1<<10)
		r.holds(large, size)
		if n := r.store.Stats().Offloaded; n != 0 {
			t.Errorf("%d slots were freed", n)
		}
	})
}

// A push whose memory may still be read keeps its source until the fabric is quiet.
func TestTheSourceOfALatePushStaysPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		f[0].Inject(synthetic.Fault{Kind: synthetic.Late, Op: synthetic.OpPush})
		r := newRig(t, []fabric.Route{{Fabric: "a"}}, named(f))
		keys := r.keys("cold", 4)
		r.put(keys, size, wire.ThinkComplete)
		r.Offer(r.ns, keys)
		synctest.Wait()
		if st := f[0].Stats(); st.LateDone != 4 || st.Reused != 0 {
			t.Errorf("%d late reads, %d of them met other bytes", st.LateDone, st.Reused)
		}
		r.holds(keys, size)
	})
}

// peered is a fabric of peers that keeps handles for as long as keeps says.
type peered struct {
	*bent
	to    string
	keeps bool
}

func (p peered) Choose(wire.Namespace, wire.Key) string { return p.to }
func (p peered) Keeps(fabric.Handle) bool               { return p.keeps }

// Each peer of a fabric has a queue of its own, and a copy counts only while its
// fabric keeps it.
func TestAPeerIsADestinationOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		group := peered{bent: f[0], to: "x"}
		f[0].push = frozen // not the way: its peer is
		r := newRig(t, []fabric.Route{{Fabric: "g"}}, map[string]fabric.Fabric{"g": group, "g/x": f[1]})
		keys := r.keys("cold", 2)
		r.put(keys, size, wire.ThinkComplete)
		r.Offer(r.ns, keys)
		synctest.Wait()
		v, err := r.store.Stat(keys[0])
		if v.Where.Fabric != "g" || v.Seg != 0 {
			t.Fatalf("the copy is at %+v, %v; want g", v.Where, err)
		}
		if x := r.seen.records; len(x) != 1 || x[0].Fabric != "g" || x[0].Peer != "x" || x[0].Op != OpOffload || x[0].Class != fabric.ClassBulk || x[0].In {
			t.Errorf("records %+v", x)
		}
		for name, c := range map[string]struct {
			loc  blocks.Loc
			want bool
		}{
			"nowhere":                  {blocks.Loc{}, false},
			"at a peer that is gone":   {v.Where, false},
			"on a fabric that keeps":   {blocks.Loc{Fabric: "g/x", H: [32]byte{1}}, true},
			"on one that is not known": {blocks.Loc{Fabric: "z", H: [32]byte{1}}, true},
		} {
			if got := r.Copied(c.loc); got != c.want {
				t.Errorf("a copy %s: %v, want %v", name, got, c.want)
			}
		}
	})
}

// What waits for a peer that is removed, and what it was being given, goes to the peers
// that stay: the fabric of both has not failed.
func TestWhatWaitsForARemovedPeerGoesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 3)
		group := &peered{bent: f[0], to: "x"}
		closed := make(chan struct{})
		f[1].push = func(_ context.Context, it []fabric.Item) {
			<-closed
			for i := range it {
				it[i].Err = wire.CodeUnreachable
			}
		}
		r := newRig(t, []fabric.Route{{Fabric: "g"}}, map[string]fabric.Fabric{"g": group, "g/x": f[1], "g/y": f[2]})
		first, second := r.keys("first", 2), r.keys("second", 1)
		r.put(first, size, wire.ThinkComplete)
		r.put(second, size, wire.ThinkComplete)
		r.Offer(r.ns, first)
		synctest.Wait()
		r.Offer(r.ns, second)
		synctest.Wait()
		group.to = "y"
		r.reg.Remove("g/x")
		close(closed)
		synctest.Wait()
		if st := r.OffloadStats(); st.Blocks != 3 || st.Rerouted != 3 || st.Waiting != 0 {
			t.Errorf("%+v, want all 3 blocks at the other peer", st)
		}
		for _, k := range append(first, second...) {
			if v, _ := r.store.Stat(k); v.Where.Fabric != "g" || v.Seg != 0 {
				t.Errorf("a block is at %+v, not at the other peer alone", v.Where)
			}
		}
	})
}

// A peer that is another one now, under the same name, gets what waited for it.
func TestWhatWaitsForAPeerThatIsAnotherNowGoesToThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 3)
		was, closed := f[1], make(chan struct{})
		was.push = func(_ context.Context, it []fabric.Item) {
			<-closed
			for i := range it {
				it[i].Err = wire.CodeUnreachable
			}
		}
		r := newRig(t, []fabric.Route{{Fabric: "g"}}, map[string]fabric.Fabric{"g": peered{bent: f[0], to: "x"}, "g/x": was})
		first, second := r.keys("first", 1), r.keys("second", 1)
		r.put(append(first, second...), size, wire.ThinkComplete)
		r.Offer(r.ns, first)
		synctest.Wait()
		r.Offer(r.ns, second)
		r.reg.Remove("g/x")
		if err := r.reg.Add("g/x", f[2]); err != nil {
			t.Fatal(err)
		}
		close(closed)
		synctest.Wait()
		if v, _ := r.store.Stat(second[0]); v.Where.Fabric != "g" || r.OffloadStats().Blocks != 1 {
			t.Errorf("what waited is at %+v; %+v", v.Where, r.OffloadStats())
		}
	})
}

// A probe is a transfer of its own kind, whatever becomes of it.
func TestAProbeIsCountedAsOne(t *testing.T) {
	f := world(t, 1)[0]
	r := newRig(t, nil, map[string]fabric.Fabric{"a": f})
	if via, _, err := r.Probe(t.Context(), "a", f); err != nil || via != synthetic.Via {
		t.Errorf("probe over %q: %v", via, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.Probe(gone, "a", f); wire.CodeOf(err) != wire.CodeCancelled {
		t.Errorf("a cancelled probe: %v", err)
	}
	got := fmt.Sprintln(len(r.seen.records), r.seen.records[0].Op, r.seen.records[1].Failed, r.Log.InFlight(false))
	if got != fmt.Sprintln(2, OpProbe, 1, 0) {
		t.Errorf("records %+v", r.seen.records)
	}
}
