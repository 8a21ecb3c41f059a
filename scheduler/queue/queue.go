package queue

import (
	"fmt"
	"slices"

	"meridian/scheduler"
)

// Chunk is a run of a prompt's tokens, or of tokens that are computed anew.
type Chunk struct {
	ID     ID
	Tokens int
}

// Move is a request whose blocks go: elsewhere, back, or nowhere.
type Move struct {
	ID     ID
	Blocks int
	// Offload, of one that is preempted: its blocks are to be copied away, and are in use
	// until Moved. Otherwise they are free now.
	Offload bool
}

// Step is what the engine does next. Its memory is reused.
type Step struct {
	Decode  []ID    // a token each
	Prefill []Chunk // and after its last one, a token
	Preempt []Move
	Load    []Move // to be loaded from where they were offloaded: Moved says when they are back
	Stuck   []ID   // need more memory than there is, and can only be ended
}

func (s *Step) reset() {
	*s = Step{Decode: s.Decode[:0], Prefill: s.Prefill[:0], Preempt: s.Preempt[:0], Load: s.Load[:0], Stuck: s.Stuck[:0]}
}

// Empty reports that there is nothing to run.
func (s *Step) Empty() bool { return len(s.Decode)+len(s.Prefill) == 0 }

// Queue is the requests of one engine. It is not safe for concurrent use.
type Queue struct {
	cfg     Config
	all     []entry
	unused  []int32 // of all
	byID    map[ID]int32
	running []int32 // in order of admission
	waiting []int32
	moving  int // loading and leaving
	loading int
	used    int // blocks
	leaving int // of them, of requests that are being offloaded
	clock   Time
	arrived uint64

	sinceOld int // requests admitted since one that had waited for Aging
	n        Stats
}

// Stats counts. Sums never go down.
type Stats struct {
	Running, Waiting, Moving, Blocks int
	Admitted, Completed, Cancelled   uint64
	Offloaded, Recomputed            uint64 // preempted, by what becomes of their blocks
	LostTokens                       uint64 // that were computed once more
}

// New returns an empty queue, or a *ConfigError.
func New(c Config) (*Queue, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	if c.StepTokens < c.Slots {
		return nil, &ConfigError{"StepTokens", fmt.Sprintf("%d: below Slots, %d: each that runs takes one", c.StepTokens, c.Slots)}
	}
	return &Queue{cfg: c, byID: map[ID]int32{}}, nil
}

// Config is what the queue schedules for, with the defaults.
func (q *Queue) Config() Config { return q.cfg }

// Stats are the counts now.
func (q *Queue) Stats() Stats {
	s := q.n
	s.Running, s.Waiting, s.Moving, s.Blocks = len(q.running), len(q.waiting), q.moving, q.used
	return s
}

func (q *Queue) need(tokens int) int {
	return (tokens + q.cfg.BlockTokens - 1) / q.cfg.BlockTokens
}

func (q *Queue) free() int { return q.cfg.Blocks - q.used }

func (q *Queue) now(t Time) Time {
	q.clock = max(q.clock, t)
	return q.clock
}

// Add takes a request, or refuses it with an error that says why.
func (q *Queue) Add(now Time, r Request) error {
	now = q.now(now)
	if _, known := q.byID[r.ID]; known {
		return ErrDuplicate
	}
	if r.Prompt < 1 || r.Cached < 0 || r.Cached >= r.Prompt || r.Prompt > 1<<30 {
		return fmt.Errorf("%w: %d tokens, %d cached", ErrInvalid, r.Prompt, r.Cached)
	}
	if n := q.need(r.Prompt + 1); n > q.cfg.Blocks {
		return tooLong(n, q.cfg.Blocks)
	}
	if len(q.byID) >= q.cfg.Requests {
		return fmt.Errorf("%w: %d", ErrFull, q.cfg.Requests)
	}
	i := int32(len(q.all))
	if n := len(q.unused); n > 0 {
		i, q.unused = q.unused[n-1], q.unused[:n-1]
	} else {
		q.all = append(q.all, entry{})
	}
	q.arrived++
	q.all[i] = entry{id: r.ID, arrived: now, order: q.arrived, thinks: r.Thinks, back: r.Background, ctx: r.Prompt, todo: r.Prompt - r.Cached, began: now}
	q.byID[r.ID] = i
	q.all[i].reckon(&q.cfg)
	q.wait(now, i)
	return nil
}

// wait puts a request among those that wait to be admitted.
func (q *Queue) wait(now Time, i int32) {
	e := &q.all[i]
	e.state, e.since, e.rank = waiting, now, q.cfg.place(e)
	q.waiting = append(q.waiting, i)
}

// Ran says what a step made of a request that was in it: tokens of its prompt, decoded
// ones, and the phase that it is in now. Complete ends it. A request that is not known
// any more is no error.
func (q *Queue) Ran(now Time, id ID, prefilled, decoded int, p scheduler.Phase) {
	now = q.now(now)
	i, known := q.byID[id]
	if !known {
		return
	}
	e := &q.all[i]
	if e.state != running {
		return
	}
	q.begin(now, e)
	from := e.ctx - e.todo
	e.todo -= min(max(prefilled, 0), e.todo)
	q.n.LostTokens += uint64(max(min(e.ctx-e.todo, e.had)-from, 0))
	e.ctx += max(decoded, 0)
	e.made += max(decoded, 0)
	if p > e.phase {
		e.phase, e.began, e.made = p, now, 0
	}
	e.reckon(&q.cfg)
	if p == scheduler.Complete {
		q.n.Completed++
		q.end(i)
	}
}

// Began says that a running request has its turn: who was admitted because it had waited
// for Aging is not preempted before, and has its residency from then on. Ran says so too.
func (q *Queue) Began(now Time, id ID) {
	now = q.now(now)
	if i, known := q.byID[id]; known && q.all[i].state == running {
		q.begin(now, &q.all[i])
	}
}

func (q *Queue) begin(now Time, e *entry) {
	if e.fresh {
		e.fresh, e.since = false, now
	}
}

// Aged reports whether a request that runs has its residency because it had waited for
// Aging: others made room for it.
func (q *Queue) Aged(now Time, id ID) bool {
	now = q.now(now)
	i, known := q.byID[id]
	return known && q.all[i].aged && q.all[i].state == running && !q.cfg.settled(&q.all[i], now)
}

// Moved says that the offload or the load of a request has ended.
func (q *Queue) Moved(now Time, id ID) {
	now = q.now(now)
	i, known := q.byID[id]
	if !known {
		return
	}
	e := &q.all[i]
	switch e.state {
	case leaving:
		q.moving--
		q.leaving -= e.blocks
		q.give(e)
		e.away = true
		q.wait(now, i)
	case loading:
		q.moving--
		q.loading--
		e.state, e.since, e.away = running, now, false
		q.running = append(q.running, i)
	case gone:
		q.moving--
		if e.away { // it was loading
			q.loading--
		} else {
			q.leaving -= e.blocks
		}
		q.forget(i)
	}
}

// Cancel takes a request out, wherever it is. Blocks that move stay in use until Moved.
func (q *Queue) Cancel(now Time, id ID) {
	q.now(now)
	i, known := q.byID[id]
	if !known || q.all[i].state == gone {
		return
	}
	q.n.Cancelled++
	q.end(i)
}

// end takes a request off its list.
func (q *Queue) end(i int32) {
	e := &q.all[i]
	switch e.state {
	case running:
		q.running = remove(q.running, i)
	case waiting:
		q.waiting = remove(q.waiting, i)
	default:
		e.state = gone
		return
	}
	q.forget(i)
}

func remove(l []int32, i int32) []int32 {
	at := slices.Index(l, i)
	return slices.Delete(l, at, at+1)
}

func (q *Queue) forget(i int32) {
	q.give(&q.all[i])
	delete(q.byID, q.all[i].id)
	q.all[i] = entry{}
	q.unused = append(q.unused, i)
}

// give frees a request's blocks.
func (q *Queue) give(e *entry) {
	q.used -= e.blocks
	e.blocks = 0
}
