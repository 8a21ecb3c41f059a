package transfer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// inTurn runs loads that take their turns in order, and begin in the opposite one.
// It returns when each ended.
func inTurn(r *rig, loads [][]wire.Key) []time.Duration {
	r.t.Helper()
	ctx := fabric.WithClass(r.t.Context(), fabric.ClassUrgent)
	turns := make([]*Turn, len(loads))
	for i := range loads {
		turns[i] = r.TakeTurn(ctx, 1, uint64(i))
	}
	began := time.Now()
	ended := make([]time.Duration, len(loads))
	var wg sync.WaitGroup
	for i := len(loads) - 1; i >= 0; i-- {
		wg.Go(func() {
			defer turns[i].Leave()
			allAre(r.t, r.Fetch(ctx, Job{NS: r.ns, Keys: loads[i], Turn: turns[i]}), wire.CodeOK)
			ended[i] = time.Since(began)
		})
		synctest.Wait()
	}
	wg.Wait()
	if n := len(r.askers.all); n != 0 {
		r.t.Errorf("%d queues are left", n)
	}
	return ended
}

// Five loads of eight blocks end one after the other, in the order of their turns,
// and all lanes are used to the end.
func TestLoadsOfOneAskerEndInTheOrderInWhichTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		f[0].lanes = 4
		most := slowly(f[0], 100*time.Millisecond)
		r := newRig(t, nil, named(f))
		var loads [][]wire.Key
		for i := range 5 {
			keys := r.keys(fmt.Sprint("load ", i), 8)
			r.give(f[0], keys, 1<<20)
			loads = append(loads, keys)
		}
		ended := inTurn(r, loads)
		if !slices.IsSorted(ended) || len(slices.Compact(slices.Clone(ended))) != 5 {
			t.Errorf("they ended after %v", ended)
		}
		if n := most.Load(); n != 5 {
			t.Errorf("%d pulls at a time, want 5: 4 lanes and one ahead", n)
		}
		if limit := 8 * 100 * time.Millisecond; ended[4] > limit { // 40 pulls, 5 at a time
			t.Errorf("all took %v, want at most %v", ended[4], limit)
		}
	})
}

// A later load uses the holders for which an earlier one has nothing.
func TestALaterLoadUsesWhatAnEarlierOneLeavesIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		for i := range f {
			f[i].lanes = 1
		}
		only := func(i int, keys []wire.Key) { // only holder i has them
			for k := range f {
				if k != i {
					find := f[k].find
					f[k].find = func(ctx context.Context, it []fabric.Item) {
						if find != nil {
							find(ctx, it)
						} else {
							f[k].Fabric.Find(ctx, it)
						}
						for n := range it {
							if slices.Contains(keys, it[n].Key) {
								it[n].Err = wire.CodeAbsent
							}
						}
					}
				}
			}
		}
		r := newRig(t, nil, named(f))
		first, later := r.keys("first", 16), r.keys("later", 2)
		r.give(f[0], first, 1<<20)
		r.give(f[1], later, 1<<20)
		only(0, first)
		only(1, later)
		slowly(f[0], 100*time.Millisecond)
		slowly(f[1], 100*time.Millisecond)
		ended := inTurn(r, [][]wire.Key{first, later})
		if ended[1] > 200*time.Millisecond {
			t.Errorf("the later load took %v beside an earlier one of %v at another holder", ended[1], ended[0])
		}
	})
}

// Loads of small blocks do not wait for one another: what runs together is less
// than what keeps the lanes busy.
func TestSmallLoadsRunSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		f[0].lanes = 2
		most := slowly(f[0], 100*time.Millisecond)
		r := newRig(t, nil, named(f))
		var loads [][]wire.Key
		for i := range 8 {
			keys := r.keys(fmt.Sprint("load ", i), 4)
			r.give(f[0], keys, 4<<10)
			loads = append(loads, keys)
		}
		if ended := inTurn(r, loads); ended[7] > 100*time.Millisecond {
			t.Errorf("they ended after %v", ended)
		}
		if n := most.Load(); n != 8 {
			t.Errorf("%d pulls ran at a time, want 8", n)
		}
	})
}

// A load whose holder stands still, one that never begins and one that leaves hold up
// those behind them for a bounded time or not at all.
func TestALoadThatStandsStillHoldsUpNoLaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		f[0].lanes, f[1].lanes = 1, 1
		var stuck atomic.Bool
		stuck.Store(true)
		release := make(chan struct{})
		f[0].pull = func(ctx context.Context, it []fabric.Item) {
			if stuck.Load() {
				<-release
			}
			f[0].Fabric.Pull(ctx, it)
		}
		r := newRig(t, nil, map[string]fabric.Fabric{"a": f[0]})
		keys, later := r.keys("k", 4), r.keys("later", 4)
		r.give(f[0], keys, 1<<20)
		r.give(f[0], later, 1<<20)
		ctx := fabric.WithClass(t.Context(), fabric.ClassUrgent)
		gone, first, second := r.TakeTurn(ctx, 1, 1), r.TakeTurn(ctx, 1, 2), r.TakeTurn(ctx, 1, 3)
		ended := make(chan []error, 2)
		run := func(turn *Turn, keys []wire.Key) {
			go func() {
				defer turn.Leave()
				ended <- r.Fetch(ctx, Job{NS: r.ns, Keys: keys, Turn: turn})
			}()
			synctest.Wait()
		}
		run(first, keys)
		gone.Leave()
		gone.Leave()
		synctest.Wait()
		stuck.Store(false)
		run(second, later)
		began := time.Now()
		allAre(t, <-ended, wire.CodeOK)
		if d := time.Since(began); d > pullPatience {
			t.Errorf("the later load took %v, want at most %v", d, pullPatience)
		}
		close(release)
		allAre(t, <-ended, wire.CodeOK)
		synctest.Wait()
	})
}

// A load that waits for a block which one behind it is loading does not keep that one
// from loading it.
func TestALoadThatWaitsForALaterOneLetsItGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		slowly(f[0], 100*time.Millisecond)
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 4)
		r.give(f[0], keys, 1<<20)
		ctx := fabric.WithClass(t.Context(), fabric.ClassUrgent)
		first, second := r.TakeTurn(ctx, 1, 1), r.TakeTurn(ctx, 1, 2)
		ended := make(chan []error, 2)
		for _, turn := range []*Turn{second, first} {
			go func() {
				defer turn.Leave()
				ended <- r.Fetch(ctx, Job{NS: r.ns, Keys: keys, Turn: turn})
			}()
			synctest.Wait()
		}
		allAre(t, <-ended, wire.CodeOK)
		allAre(t, <-ended, wire.CodeOK)
	})
}

// Each block of a load is told as it comes, also to who waits for another's load.
func TestEachBlockIsToldAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		slowly(f[0], 100*time.Millisecond)
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 8)
		r.give(f[0], keys[:7], 1<<20)
		began := time.Now()
		tell := func() (*sync.WaitGroup, []time.Duration) {
			at := make([]time.Duration, len(keys))
			var wg sync.WaitGroup
			wg.Go(func() {
				r.Fetch(t.Context(), Job{NS: r.ns, Keys: keys, Each: func(i int, err error) {
					if at[i] != 0 {
						t.Errorf("block %d was told twice", i)
					}
					if at[i] = 1 + time.Since(began); (err == nil) != (i < 7) || err == nil && r.view(keys[i]).Err != nil {
						t.Errorf("block %d: %v, here: %v", i, err, r.view(keys[i]).Err)
					}
				}})
			})
			synctest.Wait()
			return &wg, at
		}
		one, first := tell()
		two, other := tell()
		one.Wait()
		two.Wait()
		for _, at := range [][]time.Duration{first, other} {
			if slices.Contains(at, 0) || at[7] >= at[0] || at[0] >= at[6] {
				t.Errorf("told after %v, want the absent one first, and the last of two batches last", at)
			}
		}
		if !slices.Equal(first, other) {
			t.Errorf("who waited was told after %v, who loaded after %v", other, first)
		}
	})
}
