package think

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/scheduler"
	"meridian/scheduler/queue"
)

// Token ids of the stream that the real router follows.
const (
	tokStart, tokEnd, tokEOS, tokText = 1, 2, 3, 7
)

const modelName = "bench"

// run is an arm on one seed's requests.
type run struct {
	cfg    *Options
	cost   *Cost
	queue  loop
	mem    *memory
	core   *scheduler.Core
	ready  scheduler.Ready
	reqs   []request
	now    time.Duration
	moves  [2]line // offloads and loads, one after the other each way
	batch  []scheduler.Input
	ctx    context.Context
	n      Counts
	left   int       // requests that waited when the last one came
	warm   int       // requests that are not counted
	forces bool      // thinking may be cut short
	made   histogram // gaps between visible tokens
	read   histogram // and as their readers see them
	course *course   // nil: not wanted
}

// Tiers is what the blocks of the cache were at a second of virtual time.
type Tiers struct {
	Second   int
	Output   int // referenced ones of prompts and answers
	Thinking int // referenced ones of thinking that goes on
	Thought  int // referenced ones of thinking that is over
	Idle     int // in the prefix cache only
	Outside  int // copies outside that are remembered
}

// line is a path that carries one request's blocks after the other's.
type line struct {
	free  time.Duration // it is, from then on
	queue []moving      // by the time of their end
}

// moving is the blocks of a request that is preempted or comes back, or those that went
// cold, of which a copy is made while it runs.
type moving struct {
	id       queue.ID
	at       time.Duration
	cold     bool
	from, to int // of its blocks of thinking
}

// request is one as the arm sees it.
type request struct {
	arrival
	counted  bool // it did not come during the warm-up
	phase    scheduler.Phase
	forced   scheduler.Reason // its thinking was cut short, if so why
	context  int              // tokens
	computed int              // of them
	had      int              // of them, when its blocks were dropped
	loading  bool             // its blocks are on their way back
	decoded  int              // tokens
	thoughts time.Duration    // its thinking ended
	first    time.Duration    // its first token of any kind was made; 0: none yet
	answered time.Duration    // and its first visible one
	last     time.Duration    // and its last one so far
	read     time.Duration    // when its reader has that
	gaps     int              // between visible tokens
	late     int              // of them, those that were above the bound for a reader
	done     time.Duration
}

// kept is how many tokens have KV: that of the last one is made by the next step.
func (q *request) kept() int { return min(q.computed, q.context-1) }

func newRun(ctx context.Context, o *Options, arm Arm, reqs []arrival) (*run, error) {
	r := &run{cfg: o, cost: &o.Cost, ctx: ctx, reqs: make([]request, len(reqs))}
	var err error
	if r.queue, err = arm.loop(o, max(len(reqs), 1), r.hits); err != nil {
		return nil, err
	}
	if r.mem, err = newMemory(o.kvBlocks(), o.BlockTokens, len(reqs), !arm.OneTier, o.Keeps); err != nil {
		return nil, err
	}
	most := cmp.Or(arm.ThinkCap, uint32(1<<30))
	models, err := scheduler.NewModels([]scheduler.Model{{Name: modelName, Start: []int32{tokStart}, End: []int32{tokEnd}, EOS: []int32{tokEOS}, MaxThink: most, KeepsThinking: o.Keeps}})
	if err != nil {
		return nil, err
	}
	r.warm, r.forces = o.warm(len(reqs)), arm.ThinkCap > 0
	r.core = scheduler.New(scheduler.Config{Models: models, MaxRequests: len(reqs) + 1, MaxThink: most, OffloadThreshold: arm.ColdBatch, ReapAfter: scheduler.Time(forEver)})
	for i := range reqs {
		r.reqs[i].arrival, r.reqs[i].counted = reqs[i], i >= r.warm
	}
	return r, nil
}

var errStuck = errors.New("a request needs more KV memory than there is")

// play runs until all requests are complete.
func (r *run) play() error {
	var s queue.Step
	next := 0
	for steps := 0; ; steps++ {
		if steps%4096 == 0 && r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		for next < len(r.reqs) && r.reqs[next].at <= r.now {
			if err := r.arrive(next); err != nil {
				return err
			}
			if next++; next == len(r.reqs) {
				r.left = r.queue.Stats().Waiting
			}
		}
		if err := r.tick(); err != nil {
			return err
		}
		if err := r.moved(); err != nil {
			return err
		}
		r.queue.Schedule(queue.Time(r.now), &s)
		if len(s.Stuck) > 0 {
			return fmt.Errorf("%w: number %d, with %d tokens of %d", errStuck, s.Stuck[0], r.reqs[s.Stuck[0]].context, r.cfg.KVTokens)
		}
		if err := r.place(&s); err != nil {
			return err
		}
		r.sample()
		if s.Empty() {
			at := r.nextEvent(next)
			if at < 0 {
				return r.whole()
			}
			r.now = max(at, r.now)
			continue
		}
		if err := r.step(&s); err != nil {
			return err
		}
	}
}

// sample notes what the queue has, and the memory.
func (r *run) sample() {
	st := r.queue.Stats()
	r.n.sample(st)
	if r.course != nil {
		r.course.sample(r.now, st, r.mem.sample)
	}
}

// whole says whether every request has been answered.
func (r *run) whole() error {
	for i := range r.reqs {
		if r.reqs[i].done == 0 {
			return fmt.Errorf("request %d was never completed: %+v", i, r.queue.Stats())
		}
	}
	return nil
}

func (r *run) arrive(i int) error {
	q := &r.reqs[i]
	in := scheduler.Input{Kind: scheduler.Arrive, ID: scheduler.ID(i), Model: modelName}
	if q.think > 0 {
		in.Tokens = []int32{tokText, tokStart} // the template opens the thinking
	} else {
		in.Tokens = []int32{tokText}
	}
	if err := r.queue.Add(queue.Time(r.now), queue.Request{ID: queue.ID(i), Prompt: q.prompt, Thinks: q.think > 0}); err != nil {
		return fmt.Errorf("request %d: %w", i, err)
	}
	in.First = uint32(max(q.prompt-len(in.Tokens), 0))
	q.context = q.prompt
	r.mem.arrive(q, i)
	return r.follow([]scheduler.Input{in})
}

// step takes its time, and then hands each request what it made.
func (r *run) step(s *queue.Step) error {
	tokens, context := len(s.Decode), 0
	for _, id := range s.Decode {
		context += r.reqs[id].context
	}
	for _, c := range s.Prefill {
		tokens += c.Tokens
	}
	r.now += r.cost.step(tokens, context)
	r.batch = r.batch[:0]
	for _, c := range s.Prefill {
		q := &r.reqs[c.ID]
		r.n.Prefilled += uint64(c.Tokens)
		r.n.Recomputed += uint64(max(min(q.computed+c.Tokens, q.had)-q.computed, 0))
		q.computed += c.Tokens
		if q.computed >= q.context {
			r.token(int(c.ID))
		}
	}
	for _, id := range s.Decode {
		r.token(int(id))
	}
	if err := r.follow(r.batch); err != nil {
		return err
	}
	for _, c := range s.Prefill {
		if err := r.ran(int(c.ID), c.Tokens); err != nil {
			return err
		}
	}
	for _, id := range s.Decode {
		if err := r.ran(int(id), 0); err != nil {
			return err
		}
	}
	return nil
}

var stream = [...][]int32{{tokText}, {tokEnd}, {tokText, tokEOS}}

// token is the next one of a request.
func (r *run) token(i int) {
	q := &r.reqs[i]
	q.decoded++
	r.n.Decoded++
	what := stream[0]
	switch {
	case q.decoded == q.think:
		what = stream[1]
	case q.decoded == q.think+q.answer:
		what = stream[2]
	}
	r.batch = append(r.batch, scheduler.Input{Kind: scheduler.Tokens, ID: scheduler.ID(i), Tokens: what})
	q.context++
	q.computed = q.context
}

// follow gives inputs to the router and takes over what follows.
func (r *run) follow(in []scheduler.Input) error {
	r.core.Step(scheduler.Time(r.now), in)
	return r.events()
}

// tick does what the router has to do by now.
func (r *run) tick() error {
	if r.ready.Next > scheduler.Time(r.now) {
		return nil
	}
	r.core.Tick(scheduler.Time(r.now))
	return r.events()
}

func (r *run) events() error {
	r.core.Ready(&r.ready)
	for i := range r.ready.Events {
		e := &r.ready.Events[i]
		q := &r.reqs[e.ID]
		switch e.Kind {
		case scheduler.EnterThink:
			q.phase = scheduler.ThinkDecode
		case scheduler.ExitThink:
			q.phase, q.thoughts = scheduler.OutputDecode, r.now
			if int(e.Used) != q.think {
				return fmt.Errorf("request %d thought %d tokens, the router counted %d", e.ID, q.think, e.Used)
			}
			r.mem.exit(q, int(e.ID))
		case scheduler.Offload:
			r.cool(int(e.ID), int(e.Blocks))
		case scheduler.ForceBudget: // the engine appends the end marker in its next step
			q.think, q.forced = int(e.Used)+len(e.Inject), e.Reason
		case scheduler.Completed:
			q.phase = scheduler.Complete
		case scheduler.Refused:
			return fmt.Errorf("request %d: the router refused it: %s", e.ID, e.Reason)
		}
	}
	return nil
}

// ran tells the queue, and measures what the reader sees.
func (r *run) ran(i, prefilled int) error {
	q := &r.reqs[i]
	decoded := 0
	if prefilled == 0 || q.computed >= q.context {
		decoded = 1
		r.visible(q)
	}
	if q.phase == scheduler.Prefill && decoded > 0 {
		q.phase = scheduler.OutputDecode // the router says nothing of it
	}
	if err := r.publish(i); err != nil {
		return err
	}
	r.queue.Ran(queue.Time(r.now), queue.ID(i), prefilled, decoded, q.phase)
	if q.phase != scheduler.Complete {
		return nil
	}
	q.done = r.now
	r.mem.end(q, i)
	return r.follow([]scheduler.Input{{Kind: scheduler.Done, ID: scheduler.ID(i)}})
}

// visible notes a token that has just been made. A reader reads at the pace of the SLO,
// whatever the arm: a token that was made earlier waits for him.
func (r *run) visible(q *request) {
	if q.first == 0 {
		q.first = r.now
	}
	if q.decoded <= q.think {
		return
	}
	if q.answered == 0 {
		q.answered, q.last, q.read = r.now, r.now, r.now
		return
	}
	at := max(r.now, q.read+r.cfg.OutputPace)
	q.gaps++
	if at-q.read > r.cfg.Bound {
		q.late++
	}
	if q.counted {
		r.made.add(r.now - q.last)
		r.read.add(at - q.read)
	}
	if r.course != nil {
		r.course.gap(r.now, r.now-q.last)
	}
	q.last, q.read = r.now, at
}

// hits is what the prefix cache has of a request that the queue admits.
func (r *run) hits(id queue.ID) int { return r.mem.hits(&r.reqs[id], int(id)) }

// place moves blocks as the step says, starts offloads and loads, and gives each request
// the blocks that it needs: first who leaves, then all that is still there of those who
// come, then room.
func (r *run) place(s *queue.Step) error {
	for _, m := range s.Preempt {
		if err := r.preempt(m); err != nil {
			return err
		}
	}
	for _, m := range s.Load {
		q := &r.reqs[m.ID]
		tokens, err := r.mem.back(q, int(m.ID))
		if err != nil {
			return err
		}
		q.loading = true
		r.n.PulledBytes += r.bytes(tokens)
		r.moves[1].add(r.now, moving{id: m.ID}, r.cost.move(tokens))
	}
	for _, c := range s.Prefill {
		q := &r.reqs[c.ID]
		if q.computed > 0 || len(r.mem.holds[c.ID].slots) > 0 {
			continue
		}
		tokens, err := r.mem.enter(q, int(c.ID))
		if err != nil {
			return err
		}
		q.computed = tokens
		r.n.HitTokens += uint64(tokens)
		r.mem.grow(int(c.ID), q.context)
	}
	for _, id := range s.Decode {
		r.mem.grow(int(id), r.reqs[id].context)
	}
	return r.mem.reserve(r.now)
}

func (r *run) bytes(tokens int) uint64 { return uint64(tokens) * uint64(r.cost.TokenBytes) }

// preempt takes a request out of the memory: its blocks are copied away, or dropped.
func (r *run) preempt(m queue.Move) error {
	q := &r.reqs[m.ID]
	if !m.Offload {
		q.had, q.computed = max(q.had, q.computed), 0
		r.mem.leave(int(m.ID))
		return nil
	}
	tokens, err := r.mem.away(r.now, q, int(m.ID))
	r.n.OffloadedBytes += r.bytes(tokens)
	r.moves[0].add(r.now, moving{id: m.ID}, r.cost.move(tokens))
	return err
}

// cool copies blocks away that went cold. Who answers still reads them: they leave when
// the request is preempted or ends, and are copied no second time.
func (r *run) cool(i, n int) {
	from, to, copies := r.mem.cool(i, n)
	r.n.ColdBytes += r.bytes(copies * r.cfg.BlockTokens)
	r.moves[0].add(r.now, moving{id: queue.ID(i), cold: true, from: from, to: to}, r.cost.move(copies*r.cfg.BlockTokens))
}

// publish makes the blocks of a request findable that are full, and tells the router.
func (r *run) publish(i int) error {
	q := &r.reqs[i]
	to := q.kept() / r.cfg.BlockTokens
	if to <= r.mem.holds[i].full {
		return nil
	}
	n, err := r.mem.publish(r.now, q, i, to, func(at int) bool { return r.thinking(i, at) })
	if n == 0 || err != nil {
		return err
	}
	return r.follow([]scheduler.Input{{Kind: scheduler.KV, ID: scheduler.ID(i), Blocks: uint32(n), Think: true}})
}

// thinking reports whether a block is of thinking, by its place.
func (r *run) thinking(i, at int) bool {
	p, known := r.core.PartOf(scheduler.ID(i), uint32(at*r.cfg.BlockTokens), uint32(r.cfg.BlockTokens))
	return known && p != scheduler.Rest
}

func (l *line) add(now time.Duration, m moving, takes time.Duration) {
	l.free = max(l.free, now) + takes
	m.at = l.free
	l.queue = append(l.queue, m)
}

// moved takes over what has arrived.
func (r *run) moved() error {
	for k := range r.moves {
		l := &r.moves[k]
		n := 0
		for n < len(l.queue) && l.queue[n].at <= r.now {
			if err := r.arrived(&l.queue[n]); err != nil {
				return err
			}
			n++
		}
		l.queue = slices.Delete(l.queue, 0, n)
	}
	return nil
}

func (r *run) arrived(m *moving) error {
	i := int(m.id)
	q := &r.reqs[i]
	switch {
	case m.cold:
		r.mem.cooled(q, i, m.from, m.to)
		return nil
	case !q.loading:
		r.mem.left(q, i)
	default:
		q.loading = false
		if err := r.mem.arrived(r.now, q, i, func(at int) bool { return r.thinking(i, at) }); err != nil {
			return err
		}
	}
	r.queue.Moved(queue.Time(r.now), m.id)
	return nil
}

// nextEvent is when something happens to an engine that has nothing to run; -1: never.
func (r *run) nextEvent(next int) time.Duration {
	at := time.Duration(-1)
	sooner := func(t time.Duration) {
		if at < 0 || t < at {
			at = t
		}
	}
	if next < len(r.reqs) {
		sooner(r.reqs[next].at)
	}
	for k := range r.moves {
		if l := &r.moves[k]; len(l.queue) > 0 {
			sooner(l.queue[0].at)
		}
	}
	if at < 0 && r.queue.Stats().Waiting > 0 { // an answer that may wait, and nobody else
		return r.now + time.Millisecond
	}
	return at
}
