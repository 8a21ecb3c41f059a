package transfer

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"meridian/fabric"
	"meridian/wire"
)

// Bounds of a load.
const (
	batchItems    = 128      // blocks a pull
	minBatchBytes = 1 << 20  // body bytes below which a batch is not split over lanes
	maxBatchBytes = 16 << 20 // body bytes a pull
	loadAttempts  = 3        // a block, over all holders
	// pullPatience is how long a pull may take before another holder that has the
	// same blocks gets them; one of a block that slowPull does not bring in that time
	// may take as long as slowPull needs.
	pullPatience = 250 * time.Millisecond
	slowPull     = 100 << 20 // bytes a second
	// leaveGrace is how long a shared load whose context has ended waits for what
	// has arrived to be counted.
	leaveGrace = 250 * time.Millisecond
)

// source is a holder that has a block.
type source struct {
	holder int // in the load's inquiry
	h      fabric.Handle
	size   uint32
	tries  int
}

// want is one block on its way in.
type want struct {
	from   []source
	tries  int // failed pulls, over all holders
	flying bool
	done   bool
	rest   bool  // the holders were asked that are not Job.First
	hinted bool  // what became of the hint is counted
	err    error // of the last try, or the verdict
}

// pulling is a batch at one holder.
type pulling struct {
	holder int
	at     []int // in the load's wants
	from   []source
	passed []bool // another holder is asked for it meanwhile
	left   int    // not passed on
	freed  bool   // it does not count in the queue any more; under the queue's lock
	bytes  uint64
	due    time.Time // when it is looked at whether another holder gets it
	cancel context.CancelFunc
	items  []fabric.Item // set once it has ended
}

// load is one call's way through the room. Its goroutine alone touches it; pulls
// run in goroutines of their own and report by results.
type load struct {
	m       *Mover
	ctx     context.Context
	job     Job
	q       *inquiry
	verdict func(i int, err error) // hears of each want once; may be nil
	wants   []want
	left    int // wants without a verdict
	front   int // all wants before it have one
	batch   uint64
	running []int // pulls at each holder
	stalled []bool
	pulls   map[*pulling]struct{}
	results chan *pulling
	overdue *time.Timer

	queue  *turns
	ticket uint64
	kicked chan struct{} // it may be this load's turn
	over   bool          // under the queue's lock
	crowd  []int         // pulls of the whole queue at each holder
	hungry []bool        // at each holder: this load has more to pull there
}

// load finds, pulls and commits a job's keys; errs gets one entry a key. verdict, if
// there is one, hears of each as soon as it is known, from this goroutine.
func (m *Mover) load(ctx context.Context, job Job, errs []error, verdict func(i int, err error)) {
	if len(job.Keys) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, span := m.cfg.Tracer.Start(ctx, "meridian.load", trace.WithAttributes(attribute.Int("blocks", len(job.Keys)), attribute.Bool("transient", job.Transient)))
	defer span.End()
	q := m.ask(ctx, &job)
	defer q.close()
	n := len(q.holders)
	l := &load{
		m: m, ctx: ctx, job: job, q: q, verdict: verdict, wants: make([]want, len(job.Keys)), left: len(job.Keys),
		running: make([]int, n), stalled: make([]bool, n), crowd: make([]int, n), hungry: make([]bool, n),
		pulls: map[*pulling]struct{}{}, overdue: time.NewTimer(time.Hour), kicked: make(chan struct{}, 1),
	}
	l.queue, l.ticket = turnsOf(&job)
	defer l.queue.leave(l)
	defer l.overdue.Stop()
	l.look()
	job.Turn.begun()
	most := 0
	for i := range q.holders {
		most += l.width(i)
	}
	l.results = make(chan *pulling, most) // so that no pull waits for a load that has left
	l.run()
	l.hintsLeft()
	missing := 0
	for i := range l.wants {
		if errs[i] = l.wants[i].err; errs[i] != nil {
			missing++
		}
	}
	span.SetAttributes(attribute.Int("missing", missing))
}

// width is how many pulls run at a holder at the same time: one a lane, and one
// that is reserved while another is checked and committed.
func (l *load) width(holder int) int {
	return max(l.q.holders[holder].fabric.Caps().Lanes, 1) + 1
}

func (l *load) run() {
	for l.left > 0 {
		l.shareOut()
		if l.q.waiting == 0 && !l.hopes() {
			l.endMissing()
			break
		}
		select {
		case a := <-l.q.answers:
			l.heard(a)
		case <-l.q.late.C:
			l.q.giveUp()
			l.askRest()
		case <-l.kicked:
		case p := <-l.results:
			l.ended(p)
		case <-l.overdue.C:
			l.passOn()
		case <-l.ctx.Done():
			l.leave()
			return
		}
	}
	l.leaveNothing()
}

// hopes says whether a block may still come.
func (l *load) hopes() bool {
	for p := range l.pulls {
		if p.left > 0 {
			return true
		}
	}
	for i := range l.wants {
		if w := &l.wants[i]; !w.done && len(w.from) > 0 {
			return true // its holder's lanes are not free yet
		}
	}
	return false
}

// heard takes what a holder has. A pull that is overdue may now have somewhere
// else to go.
func (l *load) heard(a answer) {
	l.q.heard(l.ctx, a)
	for i := range a.items {
		at := a.of(i)
		it, w := &a.items[i], &l.wants[at]
		switch {
		case w.done:
		case it.Err == nil:
			w.from = append(w.from, source{holder: a.holder, h: it.H, size: it.Head.BodyLen})
		default:
			w.err = worse(w.err, it.Err)
			if a.holder == l.q.first {
				l.hintedBy(w, outcomeOf(it.Err))
			}
		}
	}
	if a.holder == l.q.first {
		l.askRest()
	}
	if l.q.allAnswered() {
		l.endMissing()
	}
	if l.batch == 0 {
		l.sizeBatches()
	}
	l.arm()
}

// askRest asks the other holders for what the one that was asked first has not
// given, and will not.
func (l *load) askRest() {
	if l.q.first < 0 || l.job.Alone || l.q.stands[l.q.first] == awaited {
		return
	}
	var at []int
	for i := range l.wants {
		if w := &l.wants[i]; !w.done && !w.rest && !w.flying && len(w.from) == 0 {
			w.rest, at = true, append(at, i)
		}
	}
	l.q.askRest(l.ctx, at)
}

// sizeBatches makes batches small enough for every lane of every holder to get
// two of them, within the bounds.
func (l *load) sizeBatches() {
	var total uint64
	for i := range l.wants {
		if from := l.wants[i].from; len(from) > 0 {
			total += uint64(from[0].size)
		}
	}
	lanes := 0
	for i := range l.q.holders {
		lanes += l.width(i) - 1
	}
	if total > 0 {
		l.batch = min(max(total/uint64(2*lanes), minBatchBytes), maxBatchBytes)
	}
}

// shareOut gives batches to holders that have room for one, in turns, so that
// what is left at the end is spread as well.
func (l *load) shareOut() {
	for more := true; more && l.ctx.Err() == nil; {
		more = false
		l.queue.crowd(l)
		for i := range l.q.holders {
			if l.running[i] < l.width(i) && l.start(i) {
				more = true
			}
		}
	}
	l.look()
}

// look tells the queue where this load has something to pull, or may have once the
// holder has answered: there, later ones wait.
func (l *load) look() {
	left := 0
	for i := range l.hungry {
		l.hungry[i] = false
		switch {
		case l.running[i] >= l.width(i) || l.stalled[i] || l.ctx.Err() != nil:
		case l.q.stands[i] == awaited:
			l.hungry[i] = true
		default:
			left++
		}
	}
	for i := l.front; i < len(l.wants) && left > 0; i++ {
		w := &l.wants[i]
		if w.done || w.flying {
			continue
		}
		best := l.next(w)
		for k := range w.from {
			s := &w.from[k]
			if h := s.holder; !l.hungry[h] && s.tries == best.tries && !l.stalled[h] && l.running[h] < l.width(h) {
				l.hungry[h] = true
				left--
			}
		}
	}
	l.queue.want(l, l.hungry)
}

// start takes the next batch for a holder off the wants, if there is one.
func (l *load) start(holder int) bool {
	for l.front < len(l.wants) && l.wants[l.front].done {
		l.front++
	}
	caps := l.q.holders[holder].fabric.Caps()
	items := batchItems
	if caps.MaxBatch > 0 {
		items = min(items, caps.MaxBatch)
	}
	p := &pulling{holder: holder}
	for i := l.front; i < len(l.wants) && len(p.at) < items; i++ {
		w := &l.wants[i]
		if w.done || w.flying {
			continue
		}
		s := l.next(w)
		if s == nil || s.holder != holder {
			continue
		}
		if len(p.at) > 0 && p.bytes+uint64(s.size) > l.batch {
			break
		}
		p.at, p.from, p.bytes = append(p.at, i), append(p.from, *s), p.bytes+uint64(s.size)
	}
	if len(p.at) == 0 || !l.m.take(p.bytes, len(l.pulls) == 0) {
		return false
	}
	if !l.queue.start(l, p) {
		l.m.give(p.bytes)
		return false
	}
	for _, i := range p.at {
		l.wants[i].flying = true
	}
	p.passed, p.left = make([]bool, len(p.at)), len(p.at)
	l.running[holder]++
	l.pulls[p] = struct{}{}
	p.due = time.Now().Add(max(pullPatience, time.Duration(p.bytes)*time.Second/slowPull))
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(l.ctx)
	l.m.wg.Go(func() {
		defer p.cancel()
		l.m.pull(ctx, l.job, &l.q.holders[holder], p)
		l.m.give(p.bytes)
		l.queue.ended(l, p)
		l.results <- p
	})
	l.arm()
	return true
}

// next chooses where a block is asked for: where it failed least, and of those
// where least is running; not at a holder that stands still if there is another.
func (l *load) next(w *want) *source {
	var best *source
	for i := range w.from {
		s := &w.from[i]
		if best == nil || l.cost(s) < l.cost(best) {
			best = s
		}
	}
	return best
}

func (l *load) cost(s *source) int {
	const more = 1 << 20 // than the pulls at one holder
	c := max(l.running[s.holder], l.crowd[s.holder]) + more*s.tries
	if l.stalled[s.holder] {
		c += more * loadAttempts
	}
	return c
}

// ended takes a finished pull's verdicts. What was passed on counts only where it
// came after all.
func (l *load) ended(p *pulling) {
	delete(l.pulls, p)
	l.running[p.holder]--
	good := false
	for k, i := range p.at {
		w, err := &l.wants[i], p.items[k].Err
		good = good || err == nil
		if !p.passed[k] {
			w.flying = false
		}
		switch {
		case w.done:
		case err == nil:
			if p.holder == l.q.first {
				l.hintedBy(w, HintServed)
			}
			l.finish(i, nil)
		case !p.passed[k]:
			l.failed(i, p.from[k], err)
		}
	}
	switch {
	case p.left == 0:
	case good:
		l.m.answered(l.q.holders[p.holder].name, true)
	case errors.Is(p.items[0].Err, wire.CodeNoProgress):
		l.standsStill(p)
	}
	l.arm()
}

func (l *load) finish(i int, err error) {
	w := &l.wants[i]
	if err != nil && l.job.Alone {
		err = alone(err)
	}
	w.done, w.err = true, err
	l.left--
	if l.verdict != nil {
		l.verdict(i, err)
	}
}

// leave ends a load whose context has ended. Pulls end with it; what they brought
// is counted.
func (l *load) leave() {
	for p := range l.pulls {
		p.cancel()
	}
	grace := time.NewTimer(leaveGrace)
	defer grace.Stop()
	for waiting := true; waiting && len(l.pulls) > 0; {
		select {
		case p := <-l.results:
			l.ended(p)
		case <-grace.C:
			waiting = l.job.Transient // its slots are the engine's own: see leaveNothing
		}
	}
	for i := range l.wants {
		if w := &l.wants[i]; !w.done {
			l.finish(i, fabric.ContextError(l.ctx, ""))
		}
	}
}

// leaveNothing waits for the cancelled pulls of a transient load: they write to
// slots of an owner that may go as soon as its request has ended.
func (l *load) leaveNothing() {
	for l.job.Transient && len(l.pulls) > 0 {
		l.ended(<-l.results)
	}
}
