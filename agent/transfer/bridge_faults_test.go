package transfer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// Blocks of several sources go on while fabrics fail in every way at random. Each block has
// one outcome, the outcomes add up, no fabric acknowledges a block twice and no two have
// one, and nothing is left.
func TestOutcomesAddUpWhateverFails(t *testing.T) {
	codes := []wire.Code{wire.CodeBusy, wire.CodeFull, wire.CodeUnreachable, wire.CodeLaneLost, wire.CodeTooLarge, wire.CodeNoProgress, wire.CodeInternal, wire.CodeChecksum}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 7))
				var mu sync.Mutex
				chance := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return rnd.IntN(n)
				}
				taken := map[wire.Key]int{}
				fabrics := map[string]fabric.Fabric{}
				var gates []*gate
				for _, name := range []string{"a", "b", "c"} {
					g := &gate{bent: world(t, 1)[0]}
					g.batch = 1 + chance(8)
					g.push = func(ctx context.Context, it []fabric.Item) {
						switch chance(25) {
						case 0:
							frozen(ctx, it)
							return
						case 1:
							g.shut.Store(true)
							time.AfterFunc(time.Duration(chance(15_000))*time.Millisecond, func() { g.shut.Store(false) })
						}
						sleep(ctx, time.Duration(chance(50))*time.Millisecond)
						for i := range it {
							if g.shut.Load() || chance(3) == 0 {
								it[i].Err = codes[chance(len(codes))]
								continue
							}
							if g.Fabric.Push(ctx, it[i:i+1]); it[i].Err == nil {
								mu.Lock()
								taken[it[i].Key]++
								mu.Unlock()
							}
						}
					}
					fabrics[name], gates = g, append(gates, g)
				}
				r := newRig(t, from("there", "a", "b", "c"), fabrics)
				r.cfg.BridgeBytes = 8 << 20
				brought, refused, dropped := 0, 0, 0
				for i, k := range r.keys("k", 300) {
					size := []int{4000, 15_000, 60_000}[chance(3)] // few, since each size has an extent
					hop := fabric.Hop{Fabric: "there", Peer: fmt.Sprint(i % 3)}
					if chance(10) == 0 { // its bytes turn out to be wrong
						if pass, err := r.Bring(hop, fabric.Brought{NS: r.ns, Key: k, Bytes: uint64(size)}); err == nil {
							pass.End(wire.CodeChecksum)
							dropped++
						}
						continue
					}
					if err := r.bring(hop, k, size); err != nil {
						if wire.CodeOf(err) != wire.CodeBusy {
							t.Error(err)
						}
						refused++
						continue
					}
					brought++
					if chance(4) == 0 {
						time.Sleep(time.Duration(chance(500)) * time.Millisecond)
					}
				}
				r.settled()
				st := r.BridgeStats()
				if int(st.Forwarded+st.Exists+st.Expired) != brought || int(st.Refused) < refused || st.WaitingBytes != 0 {
					t.Errorf("%d were brought, %d refused: %+v", brought, refused, st)
				}
				if len(taken) != int(st.Forwarded) {
					t.Errorf("%d blocks were taken, %d are counted", len(taken), st.Forwarded)
				}
				for k, n := range taken {
					if n != 1 {
						t.Errorf("%v was taken %d times", k, n)
					}
				}
				for _, g := range gates {
					g.shut.Store(false)
				}
				t.Logf("%d brought: %d forwarded, %d expired, %d refused, %d wrong", brought, st.Forwarded, st.Expired, refused, dropped)
			})
		})
	}
}

// A destination that is removed while blocks wait for it loses them to the next route; what
// waits at the end of the room is given back.
func TestARemovedDestinationLosesItsBlocksToTheNextRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := []*bent{world(t, 1)[0], world(t, 1)[0]}
		list[0].push = frozen
		r := newRig(t, from("there", "a", "b"), named(list))
		keys := r.keys("k", 3*parcelItems)
		for _, k := range keys {
			if err := r.bring(app, k, 5000); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if _, ok := r.reg.Remove("a"); !ok {
			t.Fatal("there is no a")
		}
		r.settled()
		r.has(list[1], keys, true)
		list[1].push = frozen
		for _, k := range r.keys("late", 10) {
			if err := r.bring(app, k, 5000); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if st := r.BridgeStats(); st.Waiting != 0 || st.WaitingBytes != 0 || st.Expired != 10 {
			t.Errorf("%+v", st)
		}
	})
}

// A destination that hangs keeps what waits for it no longer than one push: all of it goes
// by the next route.
func TestAHangingDestinationKeepsBlocksForOnePush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := []*bent{world(t, 1)[0], world(t, 1)[0]}
		list[0].push = frozen
		r := newRig(t, from("there", "a", "b"), named(list))
		keys := r.keys("k", 5*parcelItems)
		began := time.Now()
		for _, k := range keys {
			if err := r.bring(app, k, 5000); err != nil {
				t.Fatal(err)
			}
		}
		r.settled()
		r.has(list[1], keys, true)
		if took := time.Since(began); took > attemptTime+time.Second { // of the bubble's clock
			t.Errorf("the last block went on after %v", took)
		}
	})
}
