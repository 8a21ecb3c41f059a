package transfer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// slowly delays each pull of a fabric, and counts how many run at a time.
func slowly(f *bent, d time.Duration) (most *atomic.Int32) {
	most = new(atomic.Int32)
	var now atomic.Int32
	f.pull = func(ctx context.Context, it []fabric.Item) {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		if !sleep(ctx, d) {
			frozen(ctx, it)
			return
		}
		f.Fabric.Pull(ctx, it)
	}
	return most
}

// A large load runs at every holder and on every lane of each at the same time,
// one more batch a holder is under way than it has lanes, and each block is
// pulled once.
func TestALargeLoadUsesAllHoldersAndLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 3)
		var most [3]*atomic.Int32
		for i := range f {
			f[i].lanes = 2
			most[i] = slowly(f[i], 100*time.Millisecond)
		}
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 480)
		r.give(f[0], keys, size) // 30 MiB
		began := time.Now()
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
		for i := range most {
			if n := most[i].Load(); n != 3 {
				t.Errorf("%d pulls at a time at holder %d, want 3: 2 lanes and one ahead", n, i)
			}
		}
		var items, batches int
		for _, x := range r.seen.records {
			items += x.Items
			batches++
		}
		if items != len(keys) {
			t.Errorf("%d blocks were pulled for %d", items, len(keys))
		}
		if d, limit := time.Since(began), 500*time.Millisecond; d > limit {
			t.Errorf("%d batches of 100 ms took %v, want at most %v", batches, d, limit)
		}
		r.holds(keys, size)
	})
}

// A holder that freezes in the middle of its pulls loses them to the others: the
// load takes a moment longer, the next one no longer.
func TestAHolderThatStallsInTheMiddleLosesItsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 3)
		var after atomic.Int32
		f[1].pull = func(ctx context.Context, it []fabric.Item) {
			if after.Add(1) > 1 {
				frozen(ctx, it)
				return
			}
			f[1].Fabric.Pull(ctx, it)
		}
		for _, i := range []int{0, 2} {
			slowly(f[i], 10*time.Millisecond)
		}
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 320)
		r.give(f[0], keys, size)
		began := time.Now()
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
		if d, limit := time.Since(began), 2*pullPatience; d > limit {
			t.Errorf("the load took %v, want at most %v", d, limit)
		}
		r.holds(keys, size)
		again := r.keys("again", 320)
		r.give(f[0], again, size)
		began = time.Now()
		allAre(t, r.fetch(t.Context(), again), wire.CodeOK)
		if d := time.Since(began); d >= pullPatience {
			t.Errorf("the next load took %v: the frozen holder was waited for again", d)
		}
	})
}

// A holder that dies, one that sends wrong bytes, one that forgot: what it does
// not give comes from another, and no wrong byte is published.
func TestWhatOneHolderFailsToGiveComesFromAnother(t *testing.T) {
	for name, spoil := range map[string]func(f *bent){
		"dead": func(f *bent) {
			f.pull = func(_ context.Context, it []fabric.Item) {
				for i := range it {
					it[i].Err = wire.CodeUnreachable
				}
			}
		},
		"wrong bytes": func(f *bent) {
			f.Inject(synthetic.Fault{Kind: synthetic.Corrupt, Op: synthetic.OpPull})
		},
		"wrong bytes, and it says nothing of them": func(f *bent) {
			f.bare = true
			f.pull = func(ctx context.Context, it []fabric.Item) {
				f.Fabric.Pull(ctx, it)
				for i := range it {
					it[i].Proof = wire.Verified{}
					it[i].M.B[wire.HeaderLen+100] ^= 1
				}
			}
		},
		"forgot": func(f *bent) {
			f.pull = func(_ context.Context, it []fabric.Item) {
				for i := range it {
					it[i].Err = wire.CodeAbsent
				}
			}
		},
		"late writes": func(f *bent) {
			f.Inject(synthetic.Fault{Kind: synthetic.Late, Op: synthetic.OpPull})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := world(t, 2)
				spoil(f[0])
				r := newRig(t, nil, named(f))
				keys := r.keys("k", 100)
				r.give(f[1], keys, size)
				allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
				r.holds(keys, size)
				synctest.Wait()
			})
		})
	}
}

// A holder that lies about some lengths spoils nothing of what it says rightly, and
// what it lied about comes from another that has it.
func TestAFalseLengthSpoilsNoOtherBlock(t *testing.T) {
	for name, claimed := range map[string]uint32{"above all bounds": 1 << 31, "above the arena": 60 << 20, "too short": 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := world(t, 2)
				lied := func(i int) bool { return i%7 == 0 }
				f[0].find = func(ctx context.Context, it []fabric.Item) {
					f[0].Fabric.Find(ctx, it)
					for i := range it {
						if lied(i) {
							it[i].Head.BodyLen = claimed
						}
					}
				}
				alone := newRig(t, nil, map[string]fabric.Fabric{"a": f[0]})
				keys := alone.keys("k", 60)
				alone.give(f[0], keys, size)
				for i, err := range alone.fetch(t.Context(), keys) {
					if (err != nil) != lied(i) {
						t.Errorf("block %d, lied about: %v: %v", i, lied(i), err)
					}
				}
				both := newRig(t, nil, named(f))
				allAre(t, both.fetch(t.Context(), keys), wire.CodeOK)
				both.holds(keys, size)
			})
		})
	}
}

// Silence is not asked for three times over: the page gives a pull that gets
// nothing five seconds, and so does a load.
func TestNoProgressIsNotTriedAgainAtTheSameHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 3)
		r.give(f[0], keys, size)
		f[0].Inject(synthetic.Fault{Kind: synthetic.Drop, Op: synthetic.OpPull})
		began := time.Now()
		allAre(t, r.fetch(t.Context(), keys), wire.CodeNoProgress)
		if d := time.Since(began); d != synthetic.DefaultTimeout {
			t.Errorf("it took %v, want %v", d, synthetic.DefaultTimeout)
		}
	})
}

// What has arrived when the deadline strikes is kept, and told.
func TestWhatArrivedBeforeTheDeadlineIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 8)
		r.give(f[0], keys, size)
		f[0].Inject(synthetic.Fault{Kind: synthetic.Delay, Op: synthetic.OpPull, Skip: 5, For: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := r.fetch(ctx, keys)
		allAre(t, errs[:5], wire.CodeOK)
		allAre(t, errs[5:], wire.CodeDeadline)
		r.holds(keys[:5], size)
	})
}

// A pull that hangs and ignores its context holds up a shared load for a moment
// beyond its deadline, and no other load at all. Its slots stay reserved until
// it returns.
func TestAPullThatNeverReturnsHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		release := make(chan struct{})
		f[0].pull = func(context.Context, []fabric.Item) { <-release }
		r := newRig(t, nil, map[string]fabric.Fabric{"a": f[0]})
		keys := r.keys("k", 2)
		r.give(f[0], keys, size)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		allAre(t, r.fetch(ctx, keys), wire.CodeDeadline)
		if d, limit := time.Since(began), time.Second+leaveGrace; d > limit {
			t.Errorf("it took %v, want at most %v", d, limit)
		}
		if n := r.store.Stats().Reserved; n != 2 {
			t.Errorf("%d slots are reserved while the fabric may write to them, want 2", n)
		}
		if err := r.reg.Add("b", f[1]); err != nil {
			t.Fatal(err)
		}
		other := r.keys("other", 2)
		r.give(f[1], other, size)
		began = time.Now()
		allAre(t, r.fetch(t.Context(), other), wire.CodeOK)
		if d, limit := time.Since(began), pullPatience+time.Second; d > limit {
			t.Errorf("another load took %v", d)
		}
		close(release)
		synctest.Wait()
	})
}

// Loads reserve no more than they may, and go on as room comes back.
func TestReservedBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		r := newRig(t, nil, named(f))
		r.cfg.LoadBytes = 3 << 20
		var most atomic.Int64
		for i := range f {
			f[i].lanes = 8
			f[i].pull = func(ctx context.Context, it []fabric.Item) {
				most.Store(max(most.Load(), r.reserved.Load()))
				sleep(ctx, time.Millisecond)
				f[i].Fabric.Pull(ctx, it)
			}
		}
		keys := r.keys("k", 320) // 20 MiB
		r.give(f[0], keys, size)
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
		if n := most.Load(); n > 3<<20 {
			t.Errorf("%d bytes were reserved at a time, want at most %d", n, 3<<20)
		}
		r.holds(keys, size)
	})
}

// The same blocks asked for by many at once travel once; one that gives up fails
// nobody else.
func TestTheSameBlocksTravelOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		slowly(f[0], time.Second)
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 10)
		r.give(f[0], keys, size)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { allAre(t, r.fetch(ctx, keys), wire.CodeCancelled) })
		synctest.Wait()
		for range 5 {
			wg.Go(func() { allAre(t, r.fetch(t.Context(), keys), wire.CodeOK) })
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		good := 0
		for _, x := range r.seen.records {
			good += x.Items - x.Failed
		}
		if good != len(keys) {
			t.Errorf("%d blocks travelled for %d", good, len(keys))
		}
	})
}

// A batch is no larger than its fabric takes, nor is a question.
func TestBatchesAndQuestionsKeepMaxBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		f[0].batch = 7
		limit := func(call func(context.Context, []fabric.Item)) func(context.Context, []fabric.Item) {
			return func(ctx context.Context, it []fabric.Item) {
				if len(it) > 7 {
					t.Errorf("a call of %d items, want at most 7", len(it))
				}
				call(ctx, it)
			}
		}
		f[0].find, f[0].pull = limit(f[0].Fabric.Find), limit(f[0].Fabric.Pull)
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 30)
		r.give(f[0], keys, size)
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
	})
}

// Who vouched for a block travels with it. What comes without proof is vouched
// for by this daemon, whatever its holder says.
func TestAttestationTravelsAndUnprovedBytesAreIngested(t *testing.T) {
	for _, c := range []struct {
		pushed, want wire.Attest
		bare         bool
	}{
		{wire.AttestProducer, wire.AttestProducer, false},
		{wire.AttestIngest, wire.AttestIngest, false},
		{wire.AttestNone, wire.AttestNone, false},
		{wire.AttestProducer, wire.AttestIngest, true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := world(t, 1)
				if f[0].bare = c.bare; c.bare {
					f[0].pull = func(ctx context.Context, it []fabric.Item) {
						f[0].Fabric.Pull(ctx, it)
						for i := range it {
							it[i].Proof = wire.Verified{}
						}
					}
				}
				r := newRig(t, nil, named(f))
				key := r.keys("k", 1)
				p, err := wire.AppendPayload(nil, wire.OutputCritical, bodyOf(key[0], size))
				if err != nil {
					t.Fatal(err)
				}
				f[0].Fabric.Push(t.Context(), []fabric.Item{{NS: r.ns, Key: key[0], Att: c.pushed, M: fabric.Mem{B: p}}})
				allAre(t, r.fetch(t.Context(), key), wire.CodeOK)
				if v, err := r.store.Stat(key[0]); err != nil || v.Att != c.want {
					t.Errorf("held with attest %v (%v), want %v", v.Att, err, c.want)
				}
			})
		})
	}
}

// A transient load is its owner's alone: not published, not shared, gone when the
// owner releases it.
func TestATransientLoadIsItsOwnersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		f[1].pull = frozen
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 40)
		r.give(f[0], keys, size)
		allAre(t, r.Fetch(t.Context(), Job{Owner: r.owner, NS: r.ns, Keys: keys, Transient: true}), wire.CodeOK)
		if n := r.store.Stats().Transient; n != len(keys) {
			t.Errorf("%d transient blocks, want %d", n, len(keys))
		}
		other := []blocks.View{{NS: r.ns, Key: keys[0]}}
		if l, _ := r.store.Acquire(r.store.NewOwner(0), other, time.Second, false); other[0].Err == nil {
			t.Error("another owner sees a transient block")
			r.store.Release(r.owner, l)
		}
		r.store.Drop(r.owner)
	})
}

// A holder that was too slow for a load is still better than one that died in it.
func TestABlockOfADeadHolderComesFromOneThatWasSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		slowly(f[0], 2*time.Second)
		began := time.Now()
		f[1].pull = func(ctx context.Context, it []fabric.Item) {
			if time.Since(began) > pullPatience+40*time.Millisecond {
				for i := range it {
					it[i].Err = wire.CodeUnreachable
				}
				return
			}
			sleep(ctx, 100*time.Millisecond)
			f[1].Fabric.Pull(ctx, it)
		}
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 480)
		r.give(f[0], keys, size)
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
		r.holds(keys, size)
	})
}

// A holder that is left alone because it was slow before is asked after all, once
// the only one that answered has died.
func TestAHolderLeftAloneIsAskedWhenTheOtherOneDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		f[1].pull = func(_ context.Context, it []fabric.Item) {
			for i := range it {
				it[i].Err = wire.CodeUnreachable
			}
		}
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 20)
		r.give(f[0], keys, size)
		var stuck atomic.Bool
		f[0].find = func(ctx context.Context, it []fabric.Item) {
			if stuck.Load() {
				frozen(ctx, it)
				return
			}
			f[0].Fabric.Find(ctx, it)
		}
		stuck.Store(true)
		allAre(t, r.fetch(t.Context(), r.keys("nobody has it", 1)), wire.CodeNoProgress)
		stuck.Store(false)
		if !r.isSlow("a") {
			t.Fatal("the holder is not left alone")
		}
		began := time.Now()
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
		if d := time.Since(began); d > DefaultFindWithin {
			t.Errorf("it took %v", d)
		}
		r.holds(keys, size)
	})
}

// However large its batches are, a holder that freezes costs a load the bound once
// where another one has the blocks.
func TestAFrozenHolderOfLargeBatchesCostsTheBoundOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		f[1].pull = frozen
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 32)
		r.give(f[0], keys, 1<<20)
		began := time.Now()
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
		if d := time.Since(began); d > pullPatience {
			t.Errorf("the load took %v, want at most %v", d, pullPatience)
		}
		r.holds(keys, 1<<20)
	})
}
