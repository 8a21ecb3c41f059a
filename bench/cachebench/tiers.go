package cachebench

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"time"

	"meridian/bench/trace"
	"meridian/blocks"
	"meridian/wire"
)

// Thinking is how a trace's requests think, which the traces do not say: a share of them
// does, for so many tokens before the answer, evenly distributed. A request runs for as
// long as its tokens take.
type Thinking struct {
	Ratio    float64       `json:"reasoning_ratio"`
	Least    int           `json:"least_think_tokens"`
	Most     int           `json:"most_think_tokens"`
	PerToken time.Duration `json:"token_ns"`
	Seed     uint64        `json:"seed"`
}

// Arm is a way of keeping blocks.
type Arm string

// The arms of the study of tiers.
const (
	OneTier Arm = "one tier"             // think blocks are kept as prompt and output are
	Tiers   Arm = "tiers"                // ThinkComplete < ThinkActive < OutputCritical
	Dropped Arm = "tiers, think dropped" // and think blocks go when their request completes
	NoThink Arm = "think not stored"     // the bound: nothing has to be told apart
)

// Arms are all of them.
func Arms() []Arm { return []Arm{OneTier, Tiers, Dropped, NoThink} }

// Kept is what became of a trace's blocks in an arm.
type Kept struct {
	Arm      Arm     `json:"arm"`
	HitRatio float64 `json:"hit_ratio"` // of the prompts' blocks
	// LiveEvictions are of prompt and output blocks of requests that ran: where the
	// engine needs one again, it computes it anew.
	LiveEvictions int `json:"live_evictions"`
}

// replay runs a trace in time: requests come, think, answer and complete.
type replay struct {
	s     *store
	arm   Arm
	think Thinking

	due     schedule
	fresh   int            // blocks that no prompt names were given so many numbers
	live    map[int]int    // requests that run and have a block as prompt or output, by its id
	in      map[uint32]int // the block in a slot
	ready   blocks.Ready
	evicted int // of live ones
	lookups int
	hits    int
}

// request is one that runs.
type request struct {
	prompt          []int
	thought, answer []int // blocks so far
}

func runArm(ctx context.Context, reqs []trace.Request, capacity int, arm Arm, th Thinking) (Kept, error) {
	s, err := newStore(capacity)
	if err != nil {
		return Kept{}, err
	}
	r := &replay{s: s, arm: arm, think: th, live: map[int]int{}, in: map[uint32]int{}}
	draw := rand.New(rand.NewPCG(th.Seed, 0))
	for i := range reqs {
		// Each request takes two numbers, so that the ratio changes no length.
		thinks, tokens := draw.Float64() < th.Ratio, th.Least+draw.IntN(th.Most-th.Least+1)
		if !thinks {
			tokens = 0
		}
		r.due.add(reqs[i].At, func() error { return r.arrive(&reqs[i], tokens) })
	}
	for n := 0; r.due.Len() > 0; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return Kept{}, ctx.Err()
		}
		if err := r.due.next(); err != nil {
			return Kept{}, err
		}
	}
	return Kept{Arm: arm, HitRatio: ratio(r.hits, r.lookups), LiveEvictions: r.evicted}, nil
}

// arrive looks the prompt up, stores the rest of it, and plans what the request writes.
func (r *replay) arrive(from *trace.Request, thinkTokens int) error {
	q := &request{prompt: from.Blocks}
	for _, id := range q.prompt {
		r.live[id]++
	}
	hits, err := r.s.take(q.prompt, r.commit(wire.OutputCritical), func(id int, slot uint32) { r.note(id, slot) })
	if err != nil {
		return err
	}
	r.hits += hits
	r.lookups += len(q.prompt)
	thought := from.At + time.Duration(thinkTokens)*r.think.PerToken
	if r.arm != NoThink {
		r.write(from.At, thinkTokens, func() error { return r.store(&q.thought, wire.ThinkActive) })
	}
	r.write(thought, from.OutputTokens, func() error { return r.store(&q.answer, wire.OutputCritical) })
	r.due.add(thought, func() error { r.lower(q.thought); return nil })
	r.due.add(thought+time.Duration(from.OutputTokens)*r.think.PerToken, func() error { r.complete(q); return nil })
	return nil
}

// write plans a store for each block that tokens fill from a time on, the last one
// partly.
func (r *replay) write(from time.Duration, tokens int, do func() error) {
	for done := 0; done < tokens; {
		done = min(done+trace.BlockTokens, tokens)
		r.due.add(from+time.Duration(done)*r.think.PerToken, do)
	}
}

func (r *replay) commit(t wire.Tier) blocks.Commit {
	if r.arm == OneTier {
		t = wire.OutputCritical
	}
	return blocks.Commit{Tier: t}
}

// store keeps a block that no prompt names.
func (r *replay) store(list *[]int, t wire.Tier) error {
	r.fresh--
	id := r.fresh
	*list = append(*list, id)
	if t == wire.OutputCritical {
		r.live[id]++
	}
	slot, ok, err := r.s.put(id, r.commit(t))
	if ok {
		r.note(id, slot)
	}
	return err
}

// note takes what had to go for a block into account, and then where that is.
func (r *replay) note(id int, slot uint32) {
	r.s.core.Step(0, blocks.Input{}, &r.ready)
	for _, e := range r.ready.Evicted {
		if r.live[r.in[e.Ref.Slot]] > 0 {
			r.evicted++
		}
	}
	r.in[slot] = id
}

// lower makes blocks ThinkComplete.
func (r *replay) lower(ids []int) {
	if r.arm != OneTier {
		r.s.core.Retier(r.s.ns, r.s.named(ids), wire.ThinkComplete)
	}
}

func (r *replay) complete(q *request) {
	for _, ids := range [][]int{q.prompt, q.answer} {
		done := ids[:0:0]
		for _, id := range ids {
			if r.live[id]--; r.live[id] == 0 {
				delete(r.live, id)
				done = append(done, id)
			}
		}
		r.lower(done)
	}
	if r.arm == Dropped {
		r.s.core.Discard(r.s.ns, r.s.named(q.thought))
	}
}

// schedule is what happens when: what is added first of the same time comes first.
type schedule struct {
	events []event
	seq    int
}

type event struct {
	at  time.Duration
	seq int
	do  func() error
}

func (s *schedule) add(at time.Duration, do func() error) {
	s.seq++
	heap.Push(s, event{at, s.seq, do})
}

func (s *schedule) next() error { return heap.Pop(s).(event).do() }

func (s *schedule) Len() int { return len(s.events) }
func (s *schedule) Less(i, j int) bool {
	a, b := &s.events[i], &s.events[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
func (s *schedule) Swap(i, j int) { s.events[i], s.events[j] = s.events[j], s.events[i] }
func (s *schedule) Push(x any)    { s.events = append(s.events, x.(event)) }
func (s *schedule) Pop() any {
	last := len(s.events) - 1
	x := s.events[last]
	s.events = s.events[:last]
	return x
}
