package llama

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"meridian/agent/openai"
)

func TestWorkTellsOfEachStepAndOfHowLongTheLongestMayTake(t *testing.T) {
	var w work
	want := func(done uint64, wait time.Duration) {
		t.Helper()
		if got, want := w.progress(), (openai.Progress{Done: done, WaitMS: uint32(wait.Milliseconds())}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	want(0, 0)
	a, b := w.begin(3*time.Second), w.begin(time.Second)
	want(0, 3*time.Second)
	a.next(500 * time.Millisecond)
	want(1, time.Second)
	b.end()
	want(2, 500*time.Millisecond)
	a.end()
	want(3, 0)
	m := w.move(64 << 20)
	want(3, moveTime+time.Second)
	m.end()
	huge := w.begin(time.Hour)
	want(4, openai.MaxWait) // nobody would believe more
	huge.end()
	if len(w.under) != 0 {
		t.Errorf("%d steps are under way", len(w.under))
	}
}

// A step takes about stepTime whatever the machine, and what it may take is told
// before it is measured too.
func TestStepsOfAPromptFollowTheMachine(t *testing.T) {
	for _, c := range []struct {
		pace time.Duration
		left int
		want int
	}{
		{0, 1000, 64}, // not measured
		{8 * time.Millisecond, 1000, 64}, {8 * time.Millisecond, 90, 90}, {8 * time.Millisecond, 96, 64}, {8 * time.Millisecond, 1, 1},
		{100 * time.Microsecond, 100_000, 8192}, {100 * time.Microsecond, 9000, 9000},
		{time.Second, 1000, minStep}, {time.Hour, 1000, minStep}, {1, 1 << 20, 1 << 20},
	} {
		w := work{pace: c.pace}
		if got := w.size(c.left); got != c.want {
			t.Errorf("%v a token, %d left: a step of %d, want %d", c.pace, c.left, got, c.want)
		}
	}
	var w work
	if got := w.prompt(64); got != slack*64*firstPace {
		t.Errorf("before a measurement 64 tokens may take %v", got)
	}
	w.measured(minStep-1, time.Hour) // too few to tell
	w.measured(100, time.Second)
	w.measured(100, 3*time.Second)
	if got := w.prompt(1); got != slack*20*time.Millisecond {
		t.Errorf("a token may take %v", got)
	}
	w.measured(100, 0)
	w.measured(100, 0)
	if w.size(1<<30) < 1 || w.prompt(1) < 0 {
		t.Error("a clock that stands still gives no step")
	}
}

// A node that works tells so, line by line; what it tells does not grow while its
// server is stuck.
func TestANodeTellsItsPartnerWhatItHasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w work
		s := w.begin(w.prompt(64))
		first := w.progress()
		time.Sleep(time.Hour)
		if w.progress() != first {
			t.Error("time alone is progress")
		}
		s.end()
		if w.progress().Done == first.Done {
			t.Error("a step that has ended is none")
		}
	})
}

// Whoever ends a node waits for what goes on, for the step under way as long as it
// may take, and not for what stands still.
func TestANodeIsStillWhenNothingOfItsWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{}
		began := time.Now()
		s := n.work.begin(3 * time.Second)
		go func() {
			for range 20 { // works, and then stops in the middle
				time.Sleep(time.Second)
				s.next(3 * time.Second)
			}
		}()
		n.Still(t.Context(), time.Second)
		if took := time.Since(began); took < 24*time.Second || took > 25*time.Second {
			t.Errorf("still after %v, want 20 s of work, 3 s for the step and 1 s", took)
		}
		s.end()
		began = time.Now()
		n.Still(t.Context(), time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("a node that does nothing is still after %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n.work.begin(time.Hour)
		began = time.Now()
		if n.Still(ctx, time.Second); time.Since(began) != 0 {
			t.Error("the end of the wait was not seen")
		}
	})
}
