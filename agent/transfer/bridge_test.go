package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/wire"
)

var app = fabric.Hop{Fabric: "there", Peer: "app"}

// bring has a peer bring a block, as a fabric that serves it does.
func (r *rig) bring(from fabric.Hop, key wire.Key, size int) error {
	r.t.Helper()
	pass, err := r.Bring(from, fabric.Brought{NS: r.ns, Key: key, Tier: wire.ThinkActive, Bytes: uint64(size)})
	if err != nil {
		return err
	}
	v := r.view(key)
	if v.Seg != 0 {
		pass.End(wire.CodeExists)
		return nil
	}
	r.put([]wire.Key{key}, size, wire.ThinkActive)
	pass.End(nil)
	return nil
}

// gate is a fabric that a test closes.
type gate struct {
	*bent
	shut atomic.Bool
}

func (g *gate) Usable(wire.Namespace) error {
	if g.shut.Load() {
		return wire.CodeUnreachable
	}
	return nil
}

func from(source string, to ...string) []fabric.Route {
	var out []fabric.Route
	for _, f := range to {
		out = append(out, fabric.Route{From: source, Fabric: f})
	}
	return out
}

// has demands that a fabric has blocks, with the bytes that follow from their keys.
func (r *rig) has(f fabric.Finder, keys []wire.Key, want bool) {
	r.t.Helper()
	it := make([]fabric.Item, len(keys))
	for i, k := range keys {
		it[i] = fabric.Item{NS: r.ns, Key: k}
	}
	f.Find(context.Background(), it)
	for i := range it {
		if (it[i].Err == nil) != want {
			r.t.Errorf("block %d: %v, is to be there: %v", i, it[i].Err, want)
		}
	}
}

// settled waits until nothing waits to be sent on.
func (r *rig) settled() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	r.Forwarded(ctx)
	if n := r.BridgeStats().Waiting; n != 0 {
		r.t.Errorf("%d blocks wait still", n)
	}
}

// A block goes to where the routes for its source say, once, however often it is brought.
func TestABlockGoesOnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := named([]*bent{world(t, 1)[0], world(t, 1)[0]})
		r := newRig(t, []fabric.Route{{Fabric: "a"}, {From: "there", Fabric: "b"}, {From: "there/other", Fabric: "a"}}, w)
		keys := r.keys("k", 3)
		for range 3 {
			for _, k := range keys {
				if err := r.bring(app, k, 10_000); err != nil {
					t.Fatal(err)
				}
			}
			r.settled()
		}
		r.has(w["b"].(*bent), keys, true)
		r.has(w["a"].(*bent), keys, false)
		if n := r.seen.event("attempt there b OK"); n != 3 {
			t.Errorf("%d pushes of 3 blocks", n)
		}
		if n := r.seen.event("forwarded there b 10000"); n != 3 {
			t.Errorf("%d blocks are counted, of 3: %v", n, r.seen.events)
		}
		if st := r.BridgeStats(); st.Loops != 0 || st.WaitingBytes != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A path that fails is tried again, then the next one is taken. No path gets a block
// that another has.
func TestTheLadderOfAForward(t *testing.T) {
	for name, c := range map[string]struct {
		fail  func(n int) error // of the n-th push to a
		a, b  bool              // who has it in the end
		tries int               // pushes to a
	}{
		"busy once":        {func(n int) error { return errAt(n, 1, wire.CodeBusy) }, true, false, 2},
		"lost twice":       {func(n int) error { return errAt(n, 2, wire.CodeLaneLost) }, true, false, 3},
		"unreachable":      {func(int) error { return wire.CodeUnreachable }, false, true, 3},
		"full":             {func(int) error { return wire.CodeFull }, false, true, 1},
		"says it is there": {func(int) error { return wire.CodeExists }, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := []*bent{world(t, 1)[0], world(t, 1)[0]}
				n := 0
				list[0].push = func(ctx context.Context, it []fabric.Item) {
					n++
					if err := c.fail(n); err != nil {
						for i := range it {
							it[i].Err = err
							if errors.Is(err, wire.CodeExists) {
								it[i].H[0] = 1
							}
						}
						return
					}
					list[0].Fabric.Push(ctx, it)
				}
				r := newRig(t, from("there", "a", "b"), named(list))
				keys := r.keys("k", 1)
				if err := r.bring(app, keys[0], 10_000); err != nil {
					t.Fatal(err)
				}
				r.settled()
				r.has(list[0], keys, c.a)
				r.has(list[1], keys, c.b)
				if n != c.tries {
					t.Errorf("%d pushes, want %d", n, c.tries)
				}
			})
		})
	}
}

func errAt(n, until int, code wire.Code) error {
	if n <= until {
		return code
	}
	return nil
}

// A path that cannot be used is waited for, for a while: it may connect anew. A
// required one is waited for until the block's time is over; then it is counted, and
// stays in the arena.
func TestAPathThatComesBackIsUsed(t *testing.T) {
	for _, c := range []struct {
		back        time.Duration
		require     bool
		first, next int // who has the block in the end
	}{
		{recoverTime / 2, false, 1, 0},
		{2 * recoverTime, false, 0, 1},
		{forwardTime / 2, true, 1, 0},
		{2 * forwardTime, true, 0, 0},
	} {
		t.Run(fmt.Sprint(c.back, c.require), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, next := &gate{bent: world(t, 1)[0]}, world(t, 1)[0]
				g.push = func(ctx context.Context, it []fabric.Item) {
					if g.shut.Load() {
						for i := range it {
							it[i].Err = wire.CodeUnreachable
						}
						return
					}
					g.Fabric.Push(ctx, it)
				}
				rules := from("there", "a", "b")
				rules[0].Require = c.require
				r := newRig(t, rules, map[string]fabric.Fabric{"a": g, "b": next})
				// It fails in the middle of a push, not before.
				in := g.push
				g.push = func(ctx context.Context, it []fabric.Item) {
					g.push = in
					g.shut.Store(true)
					time.AfterFunc(c.back, func() { g.shut.Store(false) })
					in(ctx, it)
				}
				keys := r.keys("k", 1)
				if err := r.bring(app, keys[0], 10_000); err != nil {
					t.Fatal(err)
				}
				r.settled()
				r.has(g.bent, keys, c.first == 1)
				r.has(next, keys, c.next == 1)
				want := uint64(1 - c.first - c.next)
				if st := r.BridgeStats(); st.Expired != want {
					t.Errorf("%d expired, want %d", st.Expired, want)
				}
				r.holds(keys, 10_000)
			})
		})
	}
}

// A block that two neighbours bring, by ways of one length, has come by two ways, and not
// in a circle.
func TestTwoWaysAreNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, from("there", "a"), map[string]fabric.Fabric{"a": &unkept{world(t, 1)[0]}})
		key := r.keys("k", 1)[0]
		for _, hop := range []fabric.Hop{{Fabric: "there", Peer: "b", Hops: 1}, {Fabric: "there", Peer: "c", Hops: 1}, {Fabric: "there", Peer: "b", Hops: 2}} {
			if err := r.bring(hop, key, 10_000); err != nil {
				t.Fatal(err)
			}
			r.settled()
			if st := r.BridgeStats(); st.Forwarded != 1 || st.Loops != uint64(hop.Hops-1) {
				t.Errorf("%v: %+v", hop, st)
			}
		}
	})
}

// A source that brings too much, and a fabric that takes nothing, have their part of the
// queue, and others have theirs. What is refused is not stored.
func TestOneSourceAndOneFabricHaveTheirShareOfTheQueue(t *testing.T) {
	list := []*bent{world(t, 1)[0], world(t, 1)[0]}
	list[0].push = frozen
	rules := []fabric.Route{{From: "there/app", Fabric: "a"}, {From: "there/two", Fabric: "a"}, {From: "there/four", Fabric: "a"}, {From: "there", Fabric: "b"}}
	r := newRig(t, rules, named(list))
	const size = 1 << 20
	r.Mover.cfg.BridgeBytes = 20 * size
	count := func(hop fabric.Hop, name string) (n int, why error) {
		for _, k := range r.keys(name, 30) {
			if why = r.bring(hop, k, size-wire.HeaderLen); why != nil {
				return n, why
			}
			n++
		}
		return n, nil
	}
	n, err := count(app, "app")
	if n != 5 || !errors.Is(err, wire.CodeBusy) || !strings.Contains(err.Error(), "the source there/app has") || !strings.Contains(err.Error(), "gateway.queue_bytes") {
		t.Errorf("%d blocks are taken, then %v", n, err)
	}
	if n, err = count(fabric.Hop{Fabric: "there", Peer: "two"}, "two"); n != 5 {
		t.Errorf("%d blocks of another source are taken, then %v", n, err)
	}
	n, err = count(fabric.Hop{Fabric: "there", Peer: "four"}, "four")
	if n != 0 || !errors.Is(err, wire.CodeBusy) || !strings.Contains(err.Error(), "the fabric a has") {
		t.Errorf("%d blocks are taken for the fabric that takes nothing, then %v", n, err)
	}
	if err := r.bring(fabric.Hop{Fabric: "there", Peer: "three"}, r.keys("three", 1)[0], size-wire.HeaderLen); err != nil {
		t.Error("a source that has its share left, to another fabric:", err)
	}
	if err := r.bring(fabric.Hop{Fabric: "there", Peer: "three"}, r.keys("large", 1)[0], 6*size); !errors.Is(err, wire.CodeTooLarge) {
		t.Error("a block larger than a share:", err)
	}
	if st := r.BridgeStats(); st.WaitingBytes > r.Mover.cfg.BridgeBytes || st.Refused != 4 {
		t.Errorf("%+v", st)
	}
	if v := r.view(r.keys("app", 6)[5]); v.Seg != 0 {
		t.Error("what was refused is stored")
	}
}

// A block that could not be stored gives its room back.
func TestABlockThatIsNotStoredHoldsNothing(t *testing.T) {
	r := newRig(t, from("there", "a"), named(world(t, 1)))
	for _, k := range r.keys("k", 100) {
		pass, err := r.Bring(app, fabric.Brought{NS: r.ns, Key: k, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		pass.End(wire.CodeChecksum)
	}
	if st := r.BridgeStats(); st.Waiting != 0 || st.WaitingBytes != 0 {
		t.Errorf("%+v", st)
	}
}

// A block that two bring at the same time goes on once, whichever of them comes to nothing,
// and in whatever order they end.
func TestABlockThatTwoBringGoesOn(t *testing.T) {
	other := fabric.Hop{Fabric: "there", Peer: "other"}
	for _, firstFails := range []bool{true, false} {
		for _, firstEnds := range []bool{true, false} {
			t.Run(fmt.Sprint(firstFails, firstEnds), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := world(t, 1)
					r := newRig(t, from("there", "a"), named(f))
					key := r.keys("k", 1)[0]
					what := fabric.Brought{NS: r.ns, Key: key, Tier: wire.ThinkActive, Bytes: 5000}
					var ends [2]fabric.Passage
					for i, hop := range []fabric.Hop{app, other} {
						pass, err := r.Bring(hop, what)
						if err != nil {
							t.Fatal(err)
						}
						ends[i] = pass
					}
					r.put([]wire.Key{key}, 5000, wire.ThinkActive)
					outcomes := [2]error{nil, wire.CodeChecksum}
					if firstFails {
						outcomes = [2]error{wire.CodeChecksum, nil}
					}
					order := []int{1, 0}
					if firstEnds {
						order = []int{0, 1}
					}
					for _, i := range order {
						ends[i].End(outcomes[i])
					}
					r.settled()
					r.has(f[0], []wire.Key{key}, true)
					if st := r.BridgeStats(); st.Forwarded != 1 || st.WaitingBytes != 0 {
						t.Errorf("%+v", st)
					}
				})
			})
		}
	}
}

// Three rooms in a ring: each sends on to the next what the one before it brings. It ends
// with the room that began, or by the number of rooms where nobody remembers.
func TestARingEnds(t *testing.T) {
	for _, forgetful := range []bool{false, true} {
		t.Run(fmt.Sprint("forgetful=", forgetful), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 3
				rooms := make([]*rig, n)
				var pushed atomic.Int32
				for i := range n {
					next := (i + 1) % n
					f := world(t, 1)[0]
					f.push = func(ctx context.Context, it []fabric.Item) {
						pushed.Add(1)
						for k := range it {
							it[k].H[0] = 1
							key, hops := it[k].Key, fabric.HopsOf(ctx)
							time.AfterFunc(time.Second, func() { // this push is over by then
								for _, m := range rooms {
									if forgetful {
										m.bridge.mu.Lock()
										m.bridge.known = places{}
										m.bridge.mu.Unlock()
									}
								}
								if err := rooms[next].bring(fabric.Hop{Fabric: "there", Peer: "before", Hops: hops}, key, 10_000); err != nil {
									t.Error(err)
								}
							})
						}
					}
					rooms[i] = newRig(t, from("there", "a"), map[string]fabric.Fabric{"a": &unkept{f}})
				}
				if err := rooms[0].bring(app, rooms[0].keys("k", 1)[0], 10_000); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				time.Sleep(2 * forwardTime)
				want := n
				if forgetful {
					want = maxHops
				}
				if n := int(pushed.Load()); n != want {
					t.Errorf("%d pushes, want %d", n, want)
				}
				loops := 0
				for _, m := range rooms {
					st := m.BridgeStats()
					loops += int(st.Loops)
					if st.Loops > 0 && st.LoopFrom != "there/before" {
						t.Error("the loop comes from", st.LoopFrom)
					}
				}
				if loops != 1 {
					t.Errorf("%d loops are counted, want 1", loops)
				}
			})
		})
	}
}

// unkept is a fabric whose copies last.
type unkept struct{ *bent }

func (unkept) Keeps(fabric.Handle) bool { return true }

// What a peer asks for is looked for in the fabrics that its routes allow, and in no
// other; not with itself; and not for a daemon that has passed the question on.
func TestAPeersQuestionGoesWhereItsRoutesLead(t *testing.T) {
	list := []*bent{world(t, 1)[0], world(t, 1)[0], world(t, 1)[0]}
	asked := make([]atomic.Int32, 3)
	for i, f := range list {
		f.find = func(ctx context.Context, it []fabric.Item) {
			asked[i].Add(1)
			if fabric.HopsOf(ctx) != 1 {
				t.Error("the question does not say that it is passed on")
			}
			f.Fabric.Find(ctx, it)
		}
	}
	names := map[string]fabric.Fabric{"there/app": list[0], "a": list[1], "b": list[2]}
	r := newRig(t, from("there", "a", "there"), names)
	keys := r.keys("k", 3)
	for i, f := range list {
		r.give(f.Fabric, keys[i:i+1], 10_000)
	}
	r.Look(t.Context(), fabric.Hop{Fabric: "there", Peer: "app", Hops: 1}, r.ns, keys)
	r.Look(t.Context(), fabric.Hop{Fabric: "elsewhere", Peer: "app"}, r.ns, keys)
	for i := range asked {
		if asked[i].Load() != 0 {
			t.Error("a question is passed on that may not be")
		}
	}
	r.Look(t.Context(), app, r.ns, keys)
	if got := []int32{asked[0].Load(), asked[1].Load(), asked[2].Load()}; !slices.Equal(got, []int32{0, 1, 0}) {
		t.Errorf("asked are %v", got)
	}
	r.holds(keys[1:2], 10_000)
	if r.view(keys[0]).Seg != 0 || r.view(keys[2]).Seg != 0 {
		t.Error("a block came from where it may not")
	}
	if r.seen.event("look there OK") != 1 || r.seen.event("look there ABSENT") != 2 {
		t.Error(r.seen.events)
	}
}

// What a peer's questions load counts for its share of the arena while it comes, and for
// nobody else's: what is above it is absent for this peer, and another one gets it. Blocks of
// a higher tier stay where they are.
func TestAPeersQuestionHasItsShareOfTheArena(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)[0]
		r := newRig(t, from("there", "a"), map[string]fabric.Fabric{"a": f})
		r.store.SetShares(blocks.Shares{Peer: 1.0 / 16, Peers: 1, Engine: 1, Tenant: 1}, 0)
		const size, share = 1 << 20, 4 << 20
		kept := r.keys("kept", 8)
		r.put(kept, size, wire.OutputCritical)
		keys := r.keys("k", 12)
		r.give(f.Fabric, keys, size)
		var most atomic.Uint64
		hold := make(chan struct{})
		f.pull = func(ctx context.Context, it []fabric.Item) {
			most.Store(max(most.Load(), reservedByPeer(r.store)))
			select {
			case <-hold:
			case <-ctx.Done():
			}
			f.Fabric.Pull(ctx, it)
		}
		var all sync.WaitGroup
		for i := range 3 { // at the same time, each for other blocks
			all.Go(func() { r.Look(t.Context(), app, r.ns, keys[4*i:4*i+4]) })
		}
		synctest.Wait()
		if n := reservedByPeer(r.store); n == 0 || n > share {
			t.Errorf("%d bytes are reserved for the peer, its share is %d", n, share)
		}
		close(hold)
		all.Wait()
		if n := most.Load(); n > share {
			t.Errorf("%d bytes were reserved for the peer, its share is %d", n, share)
		}
		found, refused := r.seen.event("look there OK"), r.seen.event("look there FULL")
		if found == 0 || refused == 0 || found+refused != len(keys) {
			t.Errorf("%d found, %d refused: %v", found, refused, r.seen.events)
		}
		f.pull = nil
		r.Look(t.Context(), fabric.Hop{Fabric: "there", Peer: "other"}, r.ns, r.keys("k", 3))
		r.holds(r.keys("k", 3), size)
		r.holds(kept, size)
		if n := reservedByPeer(r.store); n != 0 {
			t.Errorf("%d bytes are still counted", n)
		}
	})
}

// reservedByPeer is what the peer that has most has of its share of the arena.
func reservedByPeer(st *blocks.Store) uint64 {
	for _, row := range st.Quota() {
		if row.Rule == (quota.Rule{Resource: quota.ArenaBytes, Kind: quota.Peer}) {
			return row.Used
		}
	}
	return 0
}

// A holder that never answers is not waited for, and a peer has few questions at a time.
func TestAQuestionEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)[0]
		f.find = frozen
		r := newRig(t, from("there", "a"), map[string]fabric.Fabric{"a": f})
		began := time.Now()
		for i, k := range r.keys("k", looksOfPeer+3) {
			go r.Look(t.Context(), app, r.ns, []wire.Key{k})
			synctest.Wait()
			if i >= looksOfPeer && r.seen.read(&r.seen.refused) != i+1-looksOfPeer {
				t.Errorf("question %d is not refused", i)
			}
		}
		r.Look(t.Context(), fabric.Hop{Fabric: "there", Peer: "other"}, r.ns, r.keys("o", 1))
		if took := time.Since(began); took > DefaultLookWithin {
			t.Errorf("it took %v", took)
		}
	})
}
