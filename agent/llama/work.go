package llama

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"meridian/agent/openai"
)

// How long steps of the work take, and may take. A step that a waiting node
// cannot look into is short, or it says how long it may be.
const (
	// stepTime is what a step of a partner's prompt should take. A batch of
	// llama-server has 2,048 tokens unless it was told otherwise: a fraction of a
	// second on a graphics card, 20 s on a processor, and no word in between. So a
	// partner's prompt goes there in pieces that take about this long.
	stepTime = 500 * time.Millisecond
	// slack is how many times as long as by the last measurement a step may take:
	// the machine may have got more to do.
	slack = 4

	firstPace = 10 * time.Millisecond // a prompt token, until one was measured
	minStep   = 16                    // tokens; fewer make the model slow, and measure nothing

	byteRate = 64 << 20    // bytes a second that a state or block moves at least
	moveTime = time.Second // for what comes on top: a call of the daemon, a peer that is looked up
)

// work is what a node does, for whatever request, in steps: so that who waits for
// one of them can tell slow from stuck.
type work struct {
	mu    sync.Mutex
	done  uint64
	under map[*step]struct{}
	pace  time.Duration // of a prompt token, as last measured; 0: never
}

// step is one that is under way.
type step struct {
	w   *work
	may time.Duration
}

// begin starts a step that may take so long. end ends it.
func (w *work) begin(may time.Duration) *step {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.under == nil {
		w.under = map[*step]struct{}{}
	}
	s := &step{w, may}
	w.under[s] = struct{}{}
	return s
}

// move starts a step that moves bytes.
func (w *work) move(bytes uint64) *step {
	return w.begin(moveTime + time.Duration(bytes)*time.Second/byteRate)
}

// next ends a part of a step; the rest may take so long.
func (s *step) next(may time.Duration) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.done++
	s.may = may
}

func (s *step) end() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.done++
	delete(s.w.under, s)
}

// progress is what another node is told.
func (w *work) progress() openai.Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := time.Duration(0)
	for s := range w.under {
		longest = max(longest, s.may)
	}
	return openai.Progress{Done: w.done, WaitMS: uint32(min(longest, openai.MaxWait).Milliseconds())}
}

// Still returns when nothing of the node's work has ended for so long, beyond what
// the steps under way may take, or when ctx ends.
func (n *Node) Still(ctx context.Context, d time.Duration) {
	ctx, still := context.WithCancel(ctx)
	defer still()
	w := openai.NewWatchdog(d, still)
	defer w.Stop()
	t := time.NewTicker(d / 10)
	defer t.Stop()
	for {
		w.Saw(n.work.progress())
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// measured takes in how long prompt tokens took.
func (w *work) measured(tokens int, took time.Duration) {
	if tokens < minStep {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	pace := max(took/time.Duration(tokens), 1)
	if w.pace > 0 {
		pace = (w.pace + pace) / 2
	}
	w.pace = pace
}

func (w *work) paceNow() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pace == 0 {
		return firstPace
	}
	return w.pace
}

// prompt is how long so many prompt tokens may take.
func (w *work) prompt(tokens int) time.Duration {
	return slack * time.Duration(tokens) * w.paceNow()
}

// size is how many of the tokens that are left are one step: a power of two, or all
// if what would be left is less than half a step.
func (w *work) size(left int) int {
	n := uint64(max(stepTime/w.paceNow(), 1))
	size := max(1<<bits.Len64(n-1), minStep)
	if left < size+size/2 {
		return left
	}
	return size
}
