package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"meridian/scheduler"
)

// check compares the queue's sums with its entries, and with its limits.
func (q *Queue) check() error {
	blocks, leavingBlocks, moves, loads, known := 0, 0, 0, 0, 0
	for i := range q.all {
		e := &q.all[i]
		if at, ok := q.byID[e.id]; !ok || at != int32(i) {
			continue // not in use
		}
		known++
		blocks += e.blocks
		switch {
		case e.state == leaving, e.state == gone && !e.away:
			leavingBlocks += e.blocks
			moves++
		case e.state == loading, e.state == gone:
			moves++
			loads++
		case e.state == waiting && e.blocks != 0, e.state == running && e.blocks < q.need(e.ctx-1):
			return fmt.Errorf("request %d: state %d with %d blocks for %d tokens", e.id, e.state, e.blocks, e.ctx)
		}
	}
	switch {
	case blocks != q.used || leavingBlocks != q.leaving || moves != q.moving || loads != q.loading:
		return fmt.Errorf("%d/%d blocks, %d/%d leaving, %d/%d moves, %d/%d loads", blocks, q.used, leavingBlocks, q.leaving, moves, q.moving, loads, q.loading)
	case known != len(q.byID) || known != len(q.running)+len(q.waiting)+moves:
		return fmt.Errorf("%d known, %d by number, %d run, %d wait, %d move", known, len(q.byID), len(q.running), len(q.waiting), moves)
	case q.used > q.cfg.Blocks || len(q.running)+q.loading > q.cfg.Slots:
		return fmt.Errorf("%d of %d blocks, %d of %d slots", q.used, q.cfg.Blocks, len(q.running)+q.loading, q.cfg.Slots)
	}
	return nil
}

// load drives a queue with requests of random lengths, some of which are cancelled.
type load struct {
	t      *testing.T
	q      *Queue
	r      *rand.Rand
	now    Time
	step   Step
	left   map[ID][2]int // tokens to think and to answer
	moving map[ID]Time
	next   ID
	back   bool // some are in the background
	done   int
}

func newLoad(t *testing.T, c Config, seed uint64) *load {
	t.Helper()
	q, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &load{t: t, q: q, r: rand.New(rand.NewPCG(seed, 0)), left: map[ID][2]int{}, moving: map[ID]Time{}}
}

func (l *load) add(prompt, think, answer int) (ID, error) {
	l.next++
	err := l.q.Add(l.now, Request{ID: l.next, Prompt: prompt, Cached: l.r.IntN(prompt), Thinks: think > 0, Background: l.back && l.next%4 == 0})
	if err == nil {
		l.left[l.next] = [2]int{think, answer}
	}
	return l.next, err
}

// one runs a step, and checks everything that it says.
func (l *load) one() {
	t, q := l.t, l.q
	l.now += Time(10 * time.Millisecond)
	for _, id := range slices.Sorted(maps.Keys(l.moving)) {
		if l.moving[id] <= l.now {
			delete(l.moving, id)
			q.Moved(l.now, id)
		}
	}
	q.Schedule(l.now, &l.step)
	if err := q.check(); err != nil {
		t.Fatal(err)
	}
	s, tokens, in := &l.step, len(l.step.Decode), map[ID]bool{}
	for _, c := range s.Prefill {
		tokens += c.Tokens
		if in[c.ID] || c.Tokens < 1 {
			t.Fatalf("%+v", s)
		}
		in[c.ID] = true
	}
	for _, id := range s.Decode {
		if in[id] {
			t.Fatalf("request %d is in the step twice", id)
		}
		in[id] = true
	}
	if tokens > q.cfg.StepTokens || len(s.Preempt) > MaxPreempt || len(s.Load) > MaxAdmit {
		t.Fatalf("%d of %d tokens, %d preempted, %d loaded", tokens, q.cfg.StepTokens, len(s.Preempt), len(s.Load))
	}
	for _, m := range s.Preempt {
		if in[m.ID] && m.Offload || m.Offload && !q.cfg.Offload {
			t.Fatalf("request %d is preempted, and in the step: %+v", m.ID, s)
		}
	}
	for _, m := range append(s.Preempt, s.Load...) {
		if q.all[q.byID[m.ID]].state == leaving || q.all[q.byID[m.ID]].state == loading {
			l.moving[m.ID] = l.now + Time(l.r.IntN(30))*Time(time.Millisecond)
		}
	}
	for _, id := range s.Stuck {
		q.Cancel(l.now, id)
		delete(l.left, id)
	}
	l.ran()
	if err := q.check(); err != nil {
		t.Fatal(err)
	}
}

// ran makes of the step what an engine would.
func (l *load) ran() {
	for _, c := range l.step.Prefill {
		l.q.Ran(l.now, c.ID, c.Tokens, 0, l.phase(c.ID))
	}
	for _, id := range l.step.Decode {
		x := l.left[id]
		if x[0] > 0 {
			x[0]--
		} else {
			x[1]--
		}
		l.left[id] = x
		l.q.Ran(l.now, id, 0, 1, l.phase(id))
		if x[1] <= 0 {
			delete(l.left, id)
			l.done++
		}
	}
}

func (l *load) phase(id ID) scheduler.Phase {
	x := l.left[id]
	switch {
	case x[0] > 0:
		return scheduler.ThinkDecode
	case x[1] > 0:
		return scheduler.OutputDecode
	}
	return scheduler.Complete
}

// Budgets are never exceeded, every admitted request ends, and at the end nothing is left,
// whatever the policy and the limits.
func TestEveryRequestEndsWithinTheBudgets(t *testing.T) {
	for _, p := range Policies() {
		for seed := range uint64(30) {
			r := rand.New(rand.NewPCG(seed, 7))
			c := Config{
				Policy: p, Slots: 1 + r.IntN(12), Blocks: 12 + r.IntN(60), BlockTokens: 1 + r.IntN(8), Requests: 40,
				Headroom: []float64{0, 0.1, 0.5}[r.IntN(3)], Offload: r.IntN(2) == 0, Partial: seed%4 > 1,
				MinResidency: []time.Duration{time.Millisecond, 200 * time.Millisecond}[r.IntN(2)],
				Buffer:       []time.Duration{time.Millisecond, 2 * time.Second}[r.IntN(2)], Aging: []time.Duration{50 * time.Millisecond, time.Hour}[r.IntN(2)],
			}
			c.StepTokens = c.Slots + r.IntN(40)
			l := newLoad(t, c, seed)
			l.back = seed%2 == 1
			for range 2000 {
				if l.r.IntN(6) == 0 {
					_, _ = l.add(1+l.r.IntN(c.Blocks*c.BlockTokens), l.r.IntN(3)*l.r.IntN(20), 1+l.r.IntN(20)) // some are refused
				}
				if l.r.IntN(50) == 0 {
					id := ID(l.r.IntN(int(l.next) + 1))
					l.q.Cancel(l.now, id)
					delete(l.left, id)
				}
				l.one()
			}
			for n := 0; len(l.q.byID) > 0; n++ {
				if n > 100_000 {
					t.Fatalf("%s, seed %d: not at an end: %+v of %+v", p, seed, l.q.Stats(), c)
				}
				l.one()
			}
			if s := l.q.Stats(); s.Blocks != 0 || s.Moving != 0 || len(l.left) != 0 || l.done == 0 || len(l.q.unused) != len(l.q.all) {
				t.Errorf("%s, seed %d: left behind: %+v, %d requests", p, seed, s, len(l.left))
			}
		}
	}
}

// flood keeps a queue full of requests of one kind, and says how long one of another kind
// takes to its end.
func flood(t *testing.T, c Config, one, many [3]int) time.Duration {
	t.Helper()
	l := newLoad(t, c, 1)
	fill := func() {
		for len(l.q.waiting) < 20 {
			if _, err := l.add(many[0], many[1], many[2]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 500 {
		fill()
		l.one()
	}
	id, err := l.add(one[0], one[1], one[2])
	if err != nil {
		t.Fatal(err)
	}
	from := l.now
	for n := 0; ; n++ {
		if _, runs := l.left[id]; !runs {
			return time.Duration(l.now - from)
		}
		if n > 200_000 {
			t.Fatalf("%s: not at its end after %v: %+v", c.Policy, time.Duration(l.now-from), l.q.Stats())
		}
		fill()
		l.one()
	}
}

// Whatever floods the queue, a request of another kind comes to its end.
func TestNobodyIsStarvedForEver(t *testing.T) {
	for _, p := range Policies() {
		for _, offload := range []bool{false, true} {
			c := Config{Policy: p, Slots: 6, StepTokens: 40, Blocks: 40, BlockTokens: 4, Requests: 100, Headroom: 0.1, Offload: offload, Aging: 2 * time.Second, MinResidency: 50 * time.Millisecond, Buffer: time.Second}
			thinker, chat := [3]int{20, 60, 10}, [3]int{10, 0, 15}
			t.Logf("%s, offload %v: a thinker among chats %v, a chat among thinkers %v", p, offload, flood(t, c, thinker, chat), flood(t, c, chat, thinker))
		}
	}
}

// Under output-first, an answer does not wait for thinking: not for a slot, not for room.
func TestAnswersDoNotWaitForThinking(t *testing.T) {
	for _, headroom := range []float64{0, 0.3} {
		c := Config{Slots: 6, StepTokens: 40, Blocks: 40, BlockTokens: 4, Requests: 100, Headroom: headroom, Offload: true, Aging: time.Hour, MinResidency: 50 * time.Millisecond}
		thinker, chat := [3]int{20, 60, 10}, [3]int{10, 0, 15}
		c.Policy = FCFS
		behind := flood(t, c, chat, thinker)
		c.Policy = OutputFirst
		first := flood(t, c, chat, thinker)
		// 15 tokens take 150 ms, its prompt one step, and an offload that makes room 30 ms.
		if first > 300*time.Millisecond || behind < 2*first {
			t.Errorf("headroom %v: an answer takes %v, first come first served %v", headroom, first, behind)
		}
	}
}

// Who is in the background comes to its end too, whatever floods the queue; others do not
// wait for it.
func TestTheBackgroundWaitsAndIsNotStarved(t *testing.T) {
	for _, p := range Policies() {
		c := Config{Policy: p, Slots: 4, StepTokens: 40, Blocks: 40, BlockTokens: 4, Requests: 100, Offload: true, Aging: 2 * time.Second, MinResidency: 50 * time.Millisecond}
		l := newLoad(t, c, 1)
		fill := func() {
			for len(l.q.waiting) < 20 {
				if _, err := l.add(10, 0, 15); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill()
		l.next = 1 << 20
		l.back = true
		for l.next%4 != 3 {
			l.next++
		}
		id, err := l.add(10, 0, 15)
		if err != nil {
			t.Fatal(err)
		}
		l.back = false
		for n := 0; ; n++ {
			if _, runs := l.left[id]; !runs {
				if behind := p != FCFS; behind != (l.now > Time(c.Aging)) {
					t.Errorf("%s: it ended after %v", p, time.Duration(l.now))
				}
				break
			}
			if n > 100_000 {
				t.Fatalf("%s: it is starved", p)
			}
			fill()
			l.one()
		}
	}
}

func TestAScheduleAllocatesNothing(t *testing.T) {
	for _, p := range Policies() {
		q, s := full(t, p)
		now := Time(time.Second)
		if n := testing.AllocsPerRun(100, func() {
			now += Time(time.Millisecond)
			q.Schedule(now, s)
		}); n != 0 {
			t.Errorf("%s: %v allocations", p, n)
		}
	}
}

// full is a queue with 1,024 requests, 256 of which run.
func full(t testing.TB, p Policy) (*Queue, *Step) {
	q, err := New(Config{Policy: p, Slots: 256, StepTokens: 2048, Blocks: 1 << 20, BlockTokens: 16, Requests: 2048, Offload: true, Headroom: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1024 {
		if err := q.Add(Time(i), Request{ID: ID(i), Prompt: 8, Thinks: i%5 < 2}); err != nil {
			t.Fatal(err)
		}
	}
	s := &Step{}
	for k := range 400 {
		q.Schedule(Time(2000+k), s)
		for _, c := range s.Prefill {
			q.Ran(Time(2000+k), c.ID, c.Tokens, 0, scheduler.ThinkDecode)
		}
	}
	if st := q.Stats(); st.Running < 180 || st.Waiting < 700 {
		t.Fatalf("%+v", st)
	}
	return q, s
}

func BenchmarkSchedule(b *testing.B) {
	for _, p := range Policies() {
		b.Run(string(p), func(b *testing.B) {
			q, s := full(b, p)
			now := Time(time.Second)
			b.ReportAllocs()
			for b.Loop() {
				now += Time(time.Millisecond)
				q.Schedule(now, s)
			}
		})
	}
}
