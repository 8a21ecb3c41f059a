package transfer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

const size = 64 << 10

// One of three holders is frozen. A load of blocks that the others have does not
// wait at all; one of a block that nobody has waits once for 250 ms, and from then
// on the frozen one is not waited for.
func TestAFrozenHolderCostsTheBoundOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 3)
		f[1].find = frozen
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 20)
		r.give(f[0], keys, size)
		began := time.Now()
		took := func() time.Duration { d := time.Since(began); began = time.Now(); return d }
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
		if d := took(); d != 0 {
			t.Errorf("blocks that two holders have took %v", d)
		}
		r.holds(keys, size)
		allAre(t, r.fetch(t.Context(), r.keys("absent", 3)), wire.CodeNoProgress)
		if d := took(); d != DefaultFindWithin {
			t.Errorf("the first load of an absent block took %v, want %v", d, DefaultFindWithin)
		}
		for range 5 {
			allAre(t, r.fetch(t.Context(), r.keys("absent", 3)), wire.CodeNoProgress)
			if d := took(); d != 0 {
				t.Errorf("another load of an absent block took %v", d)
			}
		}
		if len(r.seen.slow) != 1 || r.seen.slow[0] != "b" {
			t.Errorf("slow holders: %v, want b once", r.seen.slow)
		}
	})
}

// A slow holder is asked again in the background at growing intervals, one
// question at a time; once it answers it is a holder like any other.
func TestASlowHolderIsAskedAgainUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		var asked atomic.Int32
		var thawed atomic.Bool
		f[0].find = func(ctx context.Context, it []fabric.Item) {
			if asked.Add(1); thawed.Load() {
				f[0].Fabric.Find(ctx, it)
				return
			}
			frozen(ctx, it)
		}
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 1)
		r.give(f[0], keys, size)
		allAre(t, r.fetch(t.Context(), keys), wire.CodeNoProgress)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		// 0, then pauses of 250 ms, 500 ms, 1 s, 2 s, 4 s with 250 ms of waiting each
		if n := asked.Load(); n != 6 {
			t.Errorf("asked %d times in 10 s, want 6", n)
		}
		thawed.Store(true)
		time.Sleep(maxRest)
		synctest.Wait()
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
	})
}

// An answer that comes after the bound is used while the load still runs.
func TestALateAnswerIsUsedWhileTheLoadRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 1)
		other := world(t, 1)[0]
		other.find = func(ctx context.Context, it []fabric.Item) {
			sleep(ctx, time.Second)
			other.Fabric.Find(ctx, it)
		}
		f[0].pull = func(ctx context.Context, it []fabric.Item) {
			sleep(ctx, 2*time.Second)
			f[0].Fabric.Pull(ctx, it)
		}
		r := newRig(t, nil, map[string]fabric.Fabric{"a": f[0], "b": other})
		keys := r.keys("k", 2)
		r.give(f[0], keys[:1], size)
		r.give(other, keys[1:], size)
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
		r.holds(keys, size)
	})
}

// Find takes the first good answer and waits for nobody once all are there.
func TestFindTakesTheFirstGoodAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 3)
		f[0].find, f[2].find = frozen, frozen
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 3)
		r.give(f[1], keys, size)
		began := time.Now()
		for i, x := range r.Find(t.Context(), r.ns, keys) {
			if x.Err != nil || x.Head.BodyLen != size || x.Att != wire.AttestProducer {
				t.Errorf("block %d: %+v", i, x)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("it took %v", d)
		}
		if x := r.Find(t.Context(), r.ns, r.keys("absent", 1))[0]; wire.CodeOf(x.Err) != wire.CodeNoProgress {
			t.Errorf("a block that nobody offered, with silent holders: %v, want NO_PROGRESS", x.Err)
		}
		if d := time.Since(began); d != DefaultFindWithin {
			t.Errorf("the silent holders cost %v, want %v", d, DefaultFindWithin)
		}
	})
}

// Where every holder says that it has no such block, it is ABSENT.
func TestAbsentIsSaidOnlyWhereAllSaidSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, named(world(t, 3)))
		allAre(t, r.fetch(t.Context(), r.keys("absent", 2)), wire.CodeAbsent)
		none := newRig(t, nil, nil)
		allAre(t, none.fetch(t.Context(), none.keys("absent", 2)), wire.CodeAbsent)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		allAre(t, r.fetch(ctx, r.keys("absent", 2)), wire.CodeCancelled)
	})
}

// A holder whose look-up ignores its context hangs nobody: neither a load, nor
// the background question, nor the end of the room.
func TestALookUpThatNeverReturnsHangsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 2)
		release := make(chan struct{})
		f[1].find = func(context.Context, []fabric.Item) { <-release }
		r := newRig(t, nil, named(f))
		keys := r.keys("k", 2)
		r.give(f[0], keys, size)
		allAre(t, r.fetch(t.Context(), keys), wire.CodeOK)
		allAre(t, r.fetch(t.Context(), r.keys("absent", 1)), wire.CodeNoProgress)
		time.Sleep(time.Minute)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		close(release)
	})
}

// A holder that is down may have what no other has: ABSENT names it.
func TestAbsentNamesTheHoldersThatCouldNotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := world(t, 3)
		fabrics := named(f)
		fabrics["c"] = &gated{f[2], &fabric.Error{Code: wire.CodeUnreachable, Text: "down"}}
		fabrics["stranger"] = &gated{f[2], &fabric.Error{Code: wire.CodeNSUnknown, Text: "another tenant's"}}
		r := newRig(t, nil, fabrics)
		keys := r.keys("nobody has it", 2)
		for i, err := range r.fetch(t.Context(), keys) {
			if !errors.Is(err, wire.CodeAbsent) || !strings.HasSuffix(err.Error(), "could not be asked: c") {
				t.Errorf("block %d: %v", i, err)
			}
		}
		if err := r.Find(t.Context(), r.ns, keys)[0].Err; !errors.Is(err, wire.CodeAbsent) || !strings.Contains(err.Error(), "c") {
			t.Errorf("find: %v", err)
		}
	})
}

// gated is a fabric that cannot be called, and says why.
type gated struct {
	*bent
	why error
}

func (g *gated) Usable(wire.Namespace) error { return g.why }
