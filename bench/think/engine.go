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
	cfg   *Options
	cost  *Cost
	queue loop
	core  *scheduler.Core
	ready scheduler.Ready
	reqs  []request
	now   time.Duration
	moves [2]line // offloads and loads, one after the other each way
	batch []scheduler.Input
	ctx   context.Context
	n     Counts
	left  int     // requests that waited when the last one came
	depth []depth // nil: not wanted
}

// depth is how many requests waited in a second of virtual time.
type depth struct{ second, waiting int }

// line is a path that carries one request's blocks after the other's.
type line struct {
	free  time.Duration // it is, from then on
	queue []moving      // by the time of their end
}

type moving struct {
	id queue.ID
	at time.Duration
}

// request is one as the arm sees it.
type request struct {
	arrival
	phase    scheduler.Phase
	forced   scheduler.Reason // its thinking was cut short, if so why
	context  int              // tokens
	computed int              // of them
	decoded  int              // tokens
	thoughts time.Duration    // its thinking ended
	first    time.Duration    // its first token of any kind was made; 0: none yet
	answered time.Duration    // and its first visible one
	read     time.Duration    // when its reader has the last token that was made
	late     int              // visible tokens that came later than the bound after the one before
	gaps     []float32        // between visible tokens, ms
	done     time.Duration
}

func newRun(ctx context.Context, o *Options, arm Arm, reqs []arrival) (*run, error) {
	q, err := arm.loop(o, max(len(reqs), 1))
	if err != nil {
		return nil, err
	}
	most := cmp.Or(arm.ThinkCap, uint32(1<<30))
	models, err := scheduler.NewModels([]scheduler.Model{{Name: modelName, Start: []int32{tokStart}, End: []int32{tokEnd}, EOS: []int32{tokEOS}, MaxThink: most}})
	if err != nil {
		return nil, err
	}
	r := &run{cfg: o, cost: &o.Cost, queue: q, ctx: ctx, reqs: make([]request, len(reqs))}
	r.core = scheduler.New(scheduler.Config{Models: models, MaxRequests: len(reqs) + 1, MaxThink: most})
	for i := range reqs {
		r.reqs[i].arrival = reqs[i]
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
		r.moved()
		r.queue.Schedule(queue.Time(r.now), &s)
		if len(s.Stuck) > 0 {
			return fmt.Errorf("%w: number %d, with %d tokens of %d", errStuck, s.Stuck[0], r.reqs[s.Stuck[0]].context, r.cfg.KVTokens)
		}
		r.move(&s)
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

// sample notes what the queue has.
func (r *run) sample() {
	st := r.queue.Stats()
	r.n.sample(st)
	if at := int(r.now / time.Second); r.depth != nil && r.depth[len(r.depth)-1].second < at {
		r.depth = append(r.depth, depth{at, st.Waiting})
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
	q.context = q.prompt
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
		q.computed += c.Tokens
		r.n.Prefilled += uint64(c.Tokens)
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
		r.ran(int(c.ID), c.Tokens)
	}
	for _, id := range s.Decode {
		r.ran(int(id), 0)
	}
	return nil
}

var stream = [...][]int32{{tokText}, {tokEnd}, {tokText, tokEOS}}

// token is the next one of a request.
func (r *run) token(i int) {
	q := &r.reqs[i]
	q.decoded++
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
func (r *run) ran(i, prefilled int) {
	q := &r.reqs[i]
	decoded := 0
	if prefilled == 0 || q.computed >= q.context {
		decoded = 1
		r.visible(q)
	}
	if q.phase == scheduler.Prefill && decoded > 0 {
		q.phase = scheduler.OutputDecode // the router says nothing of it
	}
	r.queue.Ran(queue.Time(r.now), queue.ID(i), prefilled, decoded, q.phase)
	if q.phase == scheduler.Complete {
		q.done = r.now
		_ = r.follow([]scheduler.Input{{Kind: scheduler.Done, ID: scheduler.ID(i)}})
	}
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
		q.answered, q.read = r.now, r.now
		return
	}
	at := max(r.now, q.read+r.cfg.OutputPace)
	q.gaps = append(q.gaps, float32(float64(at-q.read)/float64(time.Millisecond)))
	if at-q.read > r.cfg.Bound {
		q.late++
	}
	q.read = at
}

// move starts offloads and loads, and makes requests whose blocks were dropped begin anew.
func (r *run) move(s *queue.Step) {
	for _, m := range s.Preempt {
		q := &r.reqs[m.ID]
		if !m.Offload {
			r.n.Recomputed += uint64(q.computed)
			q.computed = 0
			continue
		}
		r.n.OffloadedBytes += uint64(q.context) * uint64(r.cost.TokenBytes)
		r.moves[0].add(r.now, m.ID, r.cost.move(q.context))
	}
	for _, m := range s.Load {
		q := &r.reqs[m.ID]
		r.n.PulledBytes += uint64(q.context) * uint64(r.cost.TokenBytes)
		r.moves[1].add(r.now, m.ID, r.cost.move(q.context))
	}
}

func (l *line) add(now time.Duration, id queue.ID, takes time.Duration) {
	l.free = max(l.free, now) + takes
	l.queue = append(l.queue, moving{id, l.free})
}

// moved tells the queue what has arrived.
func (r *run) moved() {
	for k := range r.moves {
		l := &r.moves[k]
		n := 0
		for n < len(l.queue) && l.queue[n].at <= r.now {
			r.queue.Moved(queue.Time(r.now), l.queue[n].id)
			n++
		}
		l.queue = slices.Delete(l.queue, 0, n)
	}
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
