package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// answer is what one holder said about all blocks of an inquiry.
type answer struct {
	holder int   // in the inquiry's holders
	at     []int // of the inquiry's keys that it was asked for; nil: all
	round  int   // of the inquiry when it was asked
	items  []fabric.Item
}

// of is the key that item i is about.
func (a *answer) of(i int) int {
	if a.at == nil {
		return i
	}
	return a.at[i]
}

// inquiry asks holders for blocks. Slow ones are not asked at first.
type inquiry struct {
	m       *Mover
	ns      wire.Namespace
	keys    []wire.Key
	holders []holder
	down    []string   // holders that cannot be asked
	stands  []standing // of each holder
	first   int        // the holder that is asked alone at first; -1: none
	refs    []fabric.Handle
	round   int   // counts the times that the waiting was given up
	owes    []int // questions of this round that a holder has not answered
	waiting int   // questions of this round that nobody has answered
	answers chan answer
	ended   chan struct{} // nobody reads answers any more
	late    *time.Timer   // when nobody is waited for any more
}

// standing is how a holder stands in an inquiry.
type standing uint8

const (
	skipped  standing = iota // slow before it began, so not asked
	awaited                  // asked, and waited for
	overdue                  // asked, and not waited for any more
	answered                 // it said what it has
)

// ask asks all holders of a job's namespace, or those among, at the same time; or the
// one that is to be asked first alone. The questions end with ctx.
func (m *Mover) ask(ctx context.Context, job *Job) *inquiry {
	q := &inquiry{m: m, ns: job.NS, keys: job.Keys, refs: job.Refs, first: -1, ended: make(chan struct{}), late: time.NewTimer(m.cfg.FindWithin)}
	q.holders, q.down = m.holders(job.NS)
	if among := job.among(); among != nil {
		q.holders = slices.DeleteFunc(q.holders, func(h holder) bool { return !slices.Contains(among, h.name) })
		q.down = nil
	}
	q.answers = make(chan answer)
	q.stands, q.owes = make([]standing, len(q.holders)), make([]int, len(q.holders))
	if job.First != "" {
		q.first = slices.IndexFunc(q.holders, func(h holder) bool { return h.name == job.First })
		if q.first >= 0 && (job.Alone || !m.isSlow(job.First)) {
			q.askOne(ctx, q.first, nil)
			return q
		}
		q.first = -1
	}
	for i := range q.holders {
		if !m.isSlow(q.holders[i].name) {
			q.askOne(ctx, i, nil)
		}
	}
	return q
}

// askOne asks a holder for the keys at those places; nil: for all.
func (q *inquiry) askOne(ctx context.Context, i int, at []int) {
	h := &q.holders[i]
	q.stands[i] = awaited
	q.waiting++
	q.owes[i]++
	a := answer{holder: i, at: at, round: q.round}
	if at == nil {
		a.items = make([]fabric.Item, len(q.keys))
	} else {
		a.items = make([]fabric.Item, len(at))
	}
	for k := range a.items {
		a.items[k] = fabric.Item{NS: q.ns, Key: q.keys[a.of(k)]}
		if i == q.first && q.refs != nil {
			a.items[k].H = q.refs[a.of(k)]
		}
	}
	go func() { // not waited for by Close: it touches nothing but its own items
		findAll(ctx, h, a.items)
		select {
		case q.answers <- a:
		case <-q.ended:
		}
	}()
}

// askRest asks the holders for some keys that were not asked first, but for those that
// are too slow.
func (q *inquiry) askRest(ctx context.Context, at []int) {
	if len(at) == 0 {
		return
	}
	for i := range q.holders {
		if i == q.first || q.stands[i] == overdue || q.stands[i] == skipped && q.m.isSlow(q.holders[i].name) {
			continue
		}
		q.askOne(ctx, i, at)
		q.late.Reset(q.m.cfg.FindWithin)
	}
}

// askSkipped asks those that were left alone because they were slow: one that has
// a block has died or stands still, and nobody else may have it.
func (q *inquiry) askSkipped(ctx context.Context) {
	for i := range q.stands {
		if q.stands[i] == skipped && q.first < 0 {
			q.askOne(ctx, i, nil)
			q.late.Reset(q.m.cfg.FindWithin)
		}
	}
}

// findAll asks in calls of as many items as the fabric takes.
func findAll(ctx context.Context, h *holder, items []fabric.Item) {
	n := h.fabric.Caps().MaxBatch
	if n <= 0 {
		n = len(items)
	}
	for at := 0; at < len(items); at += n {
		h.find.Find(ctx, items[at:min(at+n, len(items))])
	}
}

// heard notes an answer. One that came because the question was cancelled counts
// neither way.
func (q *inquiry) heard(ctx context.Context, a answer) {
	if a.round == q.round {
		q.waiting--
		q.owes[a.holder]--
	}
	if q.owes[a.holder] == 0 {
		q.stands[a.holder] = answered
	}
	if ctx.Err() == nil {
		q.m.answered(q.holders[a.holder].name, false)
	}
}

// allAnswered says whether nobody is left who might have a block after all.
func (q *inquiry) allAnswered() bool {
	for _, st := range q.stands {
		if st != answered {
			return false
		}
	}
	return true
}

// giveUp ends the waiting: who has not answered is slow.
func (q *inquiry) giveUp() {
	q.waiting = 0
	q.round++
	clear(q.owes)
	for i := range q.stands {
		if q.stands[i] == awaited {
			q.stands[i] = overdue
			q.m.missed(&q.holders[i], fabric.Item{NS: q.ns, Key: q.keys[0]}, false)
		}
	}
}

// close forgets the inquiry.
func (q *inquiry) close() {
	q.late.Stop()
	close(q.ended)
}

// verdict is why a block that nobody offered could not be had: ABSENT if all
// holders that can be asked said so, which names the others; else why one could
// not say.
func (q *inquiry) verdict(why error) error {
	if why != nil && !saysAbsent(why) {
		return why
	}
	for i := range q.holders {
		if q.stands[i] != answered {
			return &fabric.Error{Code: wire.CodeNoProgress, Fabric: q.holders[i].name, Text: "the holder does not answer, and is not waited for"}
		}
	}
	if len(q.down) == 0 {
		return wire.CodeAbsent
	}
	return &absentError{q.down}
}

// absentError is ABSENT where some holders could not be asked.
type absentError struct{ down []string }

// namedDown is how many holders an absentError names.
const namedDown = 4

func (e *absentError) Error() string {
	n := min(len(e.down), namedDown)
	s := "could not be asked: " + strings.Join(e.down[:n], ", ")
	if more := len(e.down) - n; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// Unwrap is ABSENT.
func (e *absentError) Unwrap() error { return wire.CodeAbsent }

// worse keeps the error that says more: one that is not about absence.
func worse(have, next error) error {
	if have == nil || saysAbsent(have) && !saysAbsent(next) {
		return next
	}
	return have
}

// saysAbsent says whether an answer means that the holder has no such block, as
// far as it will tell.
func saysAbsent(err error) bool {
	return errors.Is(err, wire.CodeAbsent) || errors.Is(err, wire.CodeNSUnknown) || errors.Is(err, wire.CodeStale)
}

// Found is a block that a holder has, or why none could be found.
type Found struct {
	Head wire.Header
	Att  wire.Attest
	Err  error
}

// Find asks the holders of ns for blocks, without moving them. It takes the first
// good answer for each, and waits for nobody beyond Config.FindWithin.
func (m *Mover) Find(ctx context.Context, ns wire.Namespace, keys []wire.Key) []Found {
	if len(keys) == 0 {
		return nil
	}
	return m.find(ctx, &Job{NS: ns, Keys: keys})
}

// find asks for all keys of a job.
func (m *Mover) find(ctx context.Context, job *Job) []Found {
	keys := job.Keys
	out := make([]Found, len(keys))
	ctx, cancel := m.bound(ctx)
	defer cancel()
	q := m.ask(ctx, job)
	defer q.close()
	left := len(keys)
	have := make([]bool, len(keys))
	for left > 0 && q.waiting > 0 && ctx.Err() == nil {
		select {
		case a := <-q.answers:
			q.heard(ctx, a)
			for k := range a.items {
				it := &a.items[k]
				switch {
				case have[k]:
				case it.Err == nil:
					have[k], out[k] = true, Found{Head: it.Head, Att: it.Att}
					left--
				default:
					out[k].Err = worse(out[k].Err, it.Err)
				}
			}
		case <-q.late.C:
			q.giveUp()
		case <-ctx.Done():
		}
	}
	for k := range out {
		if have[k] {
			continue
		}
		if out[k].Err = q.verdict(out[k].Err); ctx.Err() != nil {
			out[k].Err = fabric.ContextError(ctx, "")
		}
	}
	return out
}
