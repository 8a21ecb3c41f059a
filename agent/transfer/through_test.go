package transfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// A block goes on while it comes: the destination has all bytes before the block is
// published here, and the block itself only after. It goes there once.
func TestABlockGoesOnWhileItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, _ := flowRig(t, from("there", "a", "b"))
		pushes := 0
		a.push = func(ctx context.Context, it []fabric.Item) { pushes++; a.Fabric.Push(ctx, it) }
		seen := 0
		a.stream = func(ctx context.Context, it *fabric.Item, g *fabric.Growing) {
			if fabric.HopsOf(ctx) != 3 {
				t.Errorf("it came through %d daemons", fabric.HopsOf(ctx))
			}
			if c, ok := fabric.ClassOf(ctx); !ok || c != fabric.ClassNormal {
				t.Errorf("its class is %v", c)
			}
			for g.State().N < flowBody {
				<-g.Changed()
			}
			seen = g.State().N
			a.takes(ctx, it, g)
		}
		key := r.keys("k", 1)
		hop := app
		hop.Hops = 2
		c := r.must(r.begins(hop, key[0]))
		c.next()
		c.fills(false)
		synctest.Wait()
		if seen != flowBody {
			t.Errorf("%d bytes were there before the block was published", seen)
		}
		r.has(a, key, false)
		if err := c.ends(); err != nil {
			t.Fatal(err)
		}
		r.settled()
		r.has(a, key, true)
		r.holds(key, flowBody)
		if st := r.BridgeStats(); pushes != 0 || st.CutThrough != 1 || st.Forwarded != 1 || st.Exists != 0 || st.WaitingBytes != 0 {
			t.Errorf("%d pushes besides, %+v", pushes, st)
		}
		if r.seen.event("cut forwarded there a") != 1 || r.seen.event("attempt there a OK") != 1 {
			t.Error(r.seen.events)
		}
		if list := r.Log.List(10, "", false); len(list) != 1 || list[0].Op != OpThrough || list[0].Bytes != flowBody {
			t.Errorf("%+v", list)
		}
		if err := r.bring(app, key[0], flowBody); err != nil {
			t.Fatal(err)
		}
		r.settled()
		if a.streams != 1 || pushes != 0 {
			t.Error("it went there again")
		}
	})
}

// What fails at the destination costs the block nothing: it is stored, and goes on as
// others do, to where the ladder leads. When the failure comes does not matter.
func TestACutThatFailsFallsBack(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		a, b   bool // who has it in the end
		pushes int  // to a, besides
	}{
		"busy":        {wire.CodeBusy, true, false, 1},
		"full":        {wire.CodeFull, true, false, 1},
		"exists":      {wire.CodeExists, true, false, 1},
		"lane lost":   {wire.CodeLaneLost, true, false, 1},
		"checksum":    {wire.CodeChecksum, true, false, 1},
		"starved":     {&fabric.Error{Code: wire.CodeNoProgress, Cause: fabric.ErrStarved}, true, false, 1},
		"stood still": {wire.CodeNoProgress, false, true, 0},
		"too late":    {wire.CodeDeadline, false, true, 0},
	} {
		for _, when := range []string{"at once", "before the end", "after the end"} {
			t.Run(name+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, a, b := flowRig(t, from("there", "a", "b"))
					pushes := 0
					a.push = func(ctx context.Context, it []fabric.Item) { pushes++; a.Fabric.Push(ctx, it) }
					a.stream = func(ctx context.Context, it *fabric.Item, g *fabric.Growing) {
						for st := g.State(); when == "before the end" && st.N < flowBody || when == "after the end" && !st.Over; st = g.State() {
							<-g.Changed()
						}
						it.Err = c.err
					}
					key := r.keys("k", 1)
					x := r.must(r.begins(app, key[0]))
					x.next()
					synctest.Wait()
					x.fills(false)
					synctest.Wait()
					if err := x.ends(); err != nil {
						t.Fatal(err)
					}
					r.settled()
					r.has(a, key, c.a)
					r.has(b, key, c.b)
					r.holds(key, flowBody)
					if pushes != c.pushes || a.streams != 1 {
						t.Errorf("%d pushes, %d streams", pushes, a.streams)
					}
					if st := r.BridgeStats(); st.Forwarded != 1 || st.CutThrough != 0 || st.WaitingBytes != 0 {
						t.Errorf("%+v", st)
					}
					if r.seen.event("cut fell_back there a") != 1 {
						t.Error(r.seen.events)
					}
				})
			})
		}
	}
}

// A path that hangs holds the block for one push: the source is through long before, and
// the next route has the block.
func TestADestinationThatHangsDoesNotHoldUpTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, b := flowRig(t, from("there", "a", "b"))
		a.stream = func(ctx context.Context, it *fabric.Item, g *fabric.Growing) {
			<-ctx.Done()
			it.Err = fabric.ContextError(ctx, "hangs")
		}
		key := r.keys("k", 1)
		began := time.Now()
		x := r.must(r.begins(app, key[0]))
		x.next()
		x.fills(false)
		if err := x.ends(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the source waited for %v", took)
		}
		r.settled()
		r.has(b, key, true)
		if took := time.Since(began); took > attemptTime+time.Second {
			t.Errorf("it went on after %v", took)
		}
	})
}

// A block that does not become one here is taken back at the destination, and nothing of it
// is left: no room in the queue, no slot, no goroutine.
func TestABlockThatDoesNotBecomeOneIsTakenBack(t *testing.T) {
	for name, end := range map[string]func(c *comes){
		"its bytes are wrong": func(c *comes) {
			c.fills(true)
			if err := c.ends(); !errors.Is(err, wire.CodeChecksum) {
				c.r.t.Error(err)
			}
		},
		"its source goes": func(c *comes) { c.grow.Came(flowBody / 2); c.aborts() },
		"before it began": func(c *comes) { c.aborts() },
	} {
		for _, begun := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " begun=", begun), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, a, b := flowRig(t, from("there", "a", "b"))
					key := r.keys("k", 1)
					x := r.must(r.begins(app, key[0]))
					if begun {
						x.next()
						synctest.Wait()
					}
					end(x)
					synctest.Wait()
					r.has(a, key, false)
					r.has(b, key, false)
					st := r.BridgeStats()
					if st.Waiting != 0 || st.WaitingBytes != 0 || st.Forwarded+st.Expired+st.CutThrough != 0 || r.bridge.cutting != 0 || len(r.bridge.cuts) != 0 {
						t.Errorf("%+v, %d at a time", st, r.bridge.cutting)
					}
					if r.Log.InFlight(false) != 0 {
						t.Error("a transfer runs still")
					}
					if begun && r.seen.event("cut dropped there a") != 1 || r.seen.event("attempt there a CANCELLED") != 0 {
						t.Error(r.seen.events)
					}
					r.nothingLeft()
				})
			})
		}
	}
}

// The slot that is sent on is used for nothing else before the destination has let go of it,
// though the block has long been given up.
func TestASlotIsNotUsedAgainWhileItIsSentOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, _ := flowRig(t, from("there", "a"))
		let := make(chan struct{})
		a.stream = func(_ context.Context, it *fabric.Item, _ *fabric.Growing) {
			<-let
			it.Err = wire.CodeCancelled
		}
		x := r.must(r.begins(app, r.keys("k", 1)[0]))
		x.next()
		synctest.Wait()
		x.aborts()
		others := map[uint32]bool{}
		for {
			v, err := r.store.Reserve(r.owner, r.ns, []uint32{flowBody}, time.Hour)
			if err != nil {
				break
			}
			others[v[0].Ref.Slot] = true
		}
		if others[x.v.Ref.Slot] || len(others) == 0 {
			t.Errorf("of %d slots one is that which is sent on", len(others))
		}
		close(let)
		synctest.Wait()
		if v, err := r.store.Reserve(r.owner, r.ns, []uint32{flowBody}, time.Hour); err != nil || v[0].Ref.Slot != x.v.Ref.Slot {
			t.Errorf("afterwards: %v, %v", v, err)
		}
		r.store.Drop(r.owner)
		r.owner = r.store.NewOwner(0)
	})
}

// Who stores first: small blocks, those whose first route leads to a fabric that cannot
// hold a block back, those that have others before them, and all where that is configured.
// None goes back to who brings it.
func TestWhichBlocksAreStoredFirst(t *testing.T) {
	for name, c := range map[string]struct {
		rules []fabric.Route
		with  func(r *rig, a *flow)
		to    string // who has it; "": nobody
	}{
		"small":            {from("there", "a"), func(r *rig, _ *flow) { r.cfg.CutBytes = flowBody + 1 }, "a"},
		"configured":       {from("there", "a"), func(r *rig, _ *flow) { r.cfg.CutBytes = 0 }, "a"},
		"one-sided":        {from("there", "b", "a"), func(*rig, *flow) {}, "b"},
		"others before":    {from("there", "a"), func(*rig, *flow) {}, "a"},
		"who brings it":    {[]fabric.Route{{From: "a", Fabric: "a"}}, func(*rig, *flow) {}, ""},
		"nothing to go to": {[]fabric.Route{{From: "there", Fabric: "a", MinBytes: 2 << 20}}, func(*rig, *flow) {}, ""},
		"too many daemons": {from("there", "a"), func(*rig, *flow) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a, b := flowRig(t, c.rules)
				c.with(r, a)
				hop := app
				switch name {
				case "who brings it":
					hop = fabric.Hop{Fabric: "a"}
				case "too many daemons":
					hop.Hops = maxHops
				}
				key := r.keys("k", 1)
				x := r.must(r.begins(hop, key[0]))
				if name == "others before" {
					r.bridge.lines["a"] = &line{wait: []*parcel{{}}}
				}
				x.next()
				synctest.Wait()
				x.fills(false)
				synctest.Wait()
				if a.streams != 0 {
					t.Error("it goes on while it comes")
				}
				r.bridge.lines = map[string]*line{}
				if err := x.ends(); err != nil {
					t.Fatal(err)
				}
				r.settled()
				r.has(a, key, c.to == "a")
				r.has(b, key, c.to == "b")
			})
		})
	}
}

// A source has its share of the blocks that go on while they come; what is above it is
// stored first. So a source that stands still leaves the rest to others.
func TestASourceHasItsShareOfCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, _ := flowRig(t, from("there", "a"))
		r.cfg.BridgeBytes = 1 << 30
		var slow []*comes
		for i, k := range r.keys("slow", cutsOfSource+4) {
			c := r.must(r.begins(app, k))
			c.next()
			synctest.Wait()
			if want := min(i+1, cutsOfSource); a.streams != want {
				t.Errorf("%d streams, want %d", a.streams, want)
			}
			slow = append(slow, c)
		}
		other := r.must(r.begins(fabric.Hop{Fabric: "there", Peer: "other"}, r.keys("other", 1)[0]))
		other.next()
		synctest.Wait()
		if a.streams != cutsOfSource+1 {
			t.Errorf("%d streams with that of another source", a.streams)
		}
		for _, c := range append(slow, other) {
			c.fills(false)
			if err := c.ends(); err != nil {
				t.Fatal(err)
			}
		}
		r.settled()
		if st := r.BridgeStats(); st.CutThrough != cutsOfSource+1 || st.Forwarded != cutsOfSource+5 {
			t.Errorf("%+v", st)
		}
	})
}

// Of a block that two bring at the same time the first one's bytes are sent on. Where they
// are wrong, and the other's right, the other's are; in whatever order they end.
func TestABlockThatTwoBringIsCutOnce(t *testing.T) {
	for _, spoilt := range []bool{false, true} {
		for _, order := range [][]int{{0, 1}, {1, 0}} {
			t.Run(fmt.Sprint(spoilt, order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, a, _ := flowRig(t, from("there", "a"))
					key := r.keys("k", 1)
					var two []*comes
					for _, peer := range []string{"one", "two"} {
						c := r.must(r.begins(fabric.Hop{Fabric: "there", Peer: peer}, key[0]))
						c.next()
						two = append(two, c)
					}
					synctest.Wait()
					if two[1].grow != nil || a.streams != 1 {
						t.Errorf("%d streams", a.streams)
					}
					for _, i := range order {
						two[i].fills(spoilt && i == 0)
						_ = two[i].ends()
						synctest.Wait()
					}
					r.settled()
					r.has(a, key, true)
					if st := r.BridgeStats(); st.Forwarded != 1 || st.WaitingBytes != 0 {
						t.Errorf("%+v", st)
					}
				})
			})
		}
	}
}

// Blocks come at random while the fabrics fail at random, and some blocks are wrong: each
// block that was published has one outcome and one place, and nothing is left.
func TestOutcomesOfCutsAddUp(t *testing.T) {
	codes := []wire.Code{wire.CodeBusy, wire.CodeFull, wire.CodeLaneLost, wire.CodeNoProgress, wire.CodeUnreachable}
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 11))
				var mu sync.Mutex
				chance := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return rnd.IntN(n)
				}
				fabrics := map[string]fabric.Fabric{}
				var flows []*flow
				for _, name := range []string{"a", "b"} {
					f := &flow{bent: world(t, 1)[0]}
					f.push = func(ctx context.Context, it []fabric.Item) {
						for i := range it {
							if chance(4) == 0 {
								it[i].Err = codes[chance(len(codes))]
								continue
							}
							f.Fabric.Push(ctx, it[i:i+1])
						}
					}
					f.stream = func(ctx context.Context, it *fabric.Item, g *fabric.Growing) {
						sleep(ctx, time.Duration(chance(60))*time.Millisecond)
						switch chance(5) {
						case 0:
							it.Err = codes[chance(len(codes))]
						case 1:
							frozenOne(ctx, it)
						default:
							f.takes(ctx, it, g)
						}
					}
					flows, fabrics[name] = append(flows, f), f
				}
				r := newRig(t, from("there", "a", "b"), fabrics)
				r.cfg.CutBytes, r.cfg.BridgeBytes = 1, 1<<30
				var good atomic.Int32
				var all sync.WaitGroup
				keys := r.keys("k", 40)
				published := make([]bool, len(keys))
				for i, k := range keys {
					c, err := r.begins(fabric.Hop{Fabric: "there", Peer: fmt.Sprint(i % 3)}, k)
					if err != nil {
						t.Fatal(err)
					}
					all.Go(func() {
						c.next()
						time.Sleep(time.Duration(chance(200)) * time.Millisecond)
						switch chance(5) {
						case 0:
							c.aborts()
							return
						case 1:
							c.fills(true)
						default:
							c.fills(false)
						}
						time.Sleep(time.Duration(chance(20)) * time.Millisecond)
						if c.ends() == nil {
							published[i] = true
							good.Add(1)
						}
					})
				}
				all.Wait()
				r.settled()
				time.Sleep(time.Minute) // whose block was not published may still be with a fabric that hangs
				synctest.Wait()
				st := r.BridgeStats()
				if int(st.Forwarded+st.Exists+st.Expired) != int(good.Load()) || st.Waiting != 0 || r.bridge.cutting != 0 {
					t.Errorf("%d were published: %+v, %d at a time", good.Load(), st, r.bridge.cutting)
				}
				for i, k := range keys {
					places := 0
					for _, f := range flows {
						it := []fabric.Item{{NS: r.ns, Key: k}}
						if f.Find(t.Context(), it); it[0].Err == nil {
							places++
						}
					}
					if places > 1 || places == 1 && !published[i] {
						t.Errorf("block %d, published %v, is at %d places", i, published[i], places)
					}
				}
				took := flows[0].took + flows[1].took
				if int(st.CutThrough) != took || !slices.Contains(published, true) {
					t.Errorf("%d were cut through, %d are counted", took, st.CutThrough)
				}
				t.Logf("%d of %d published, %d cut through", good.Load(), len(keys), took)
			})
		})
	}
}

func frozenOne(ctx context.Context, it *fabric.Item) {
	<-ctx.Done()
	it.Err = fabric.ContextError(ctx, "frozen")
}
