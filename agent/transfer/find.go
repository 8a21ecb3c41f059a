package transfer

import (
	"context"
	"errors"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// answer is what one holder said about all blocks of an inquiry.
type answer struct {
	holder int // in the inquiry's holders
	items  []fabric.Item
}

// inquiry asks holders for blocks. Slow ones are not asked.
type inquiry struct {
	m       *Mover
	holders []holder
	silent  []bool // asked, and no answer yet
	skipped []bool // slow before it began, so not asked
	waiting int    // silent holders that are still waited for
	answers chan answer
	late    *time.Timer // when nobody is waited for any more
	about   fabric.Item // of the question, for askAgain
}

// ask asks all holders of ns at the same time. The questions end with ctx.
func (m *Mover) ask(ctx context.Context, ns wire.Namespace, keys []wire.Key) *inquiry {
	q := &inquiry{m: m, holders: m.holders(ns), about: fabric.Item{NS: ns, Key: keys[0]}}
	q.answers = make(chan answer, len(q.holders)) // a late answer never waits
	q.silent, q.skipped = make([]bool, len(q.holders)), make([]bool, len(q.holders))
	for i := range q.holders {
		h := &q.holders[i]
		if q.skipped[i] = m.isSlow(h.name); q.skipped[i] {
			continue
		}
		q.silent[i] = true
		q.waiting++
		items := make([]fabric.Item, len(keys))
		for k := range keys {
			items[k] = fabric.Item{NS: ns, Key: keys[k]}
		}
		go func() { // not waited for by Close: it touches nothing but its own items
			findAll(ctx, h, items)
			q.answers <- answer{i, items}
		}()
	}
	q.late = time.NewTimer(m.cfg.FindWithin)
	return q
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
	if q.silent[a.holder] && q.waiting > 0 {
		q.waiting--
	}
	q.silent[a.holder] = false
	if ctx.Err() == nil {
		q.m.answered(q.holders[a.holder].name, false)
	}
}

// giveUp ends the waiting: who has not answered is slow.
func (q *inquiry) giveUp() {
	q.waiting = 0
	for i := range q.silent {
		if q.silent[i] {
			q.m.missed(&q.holders[i], q.about, false)
		}
	}
}

// close forgets the inquiry.
func (q *inquiry) close() { q.late.Stop() }

// verdict is why a block that nobody offered could not be had: ABSENT if all
// holders said so, else why one could not say.
func (q *inquiry) verdict(why error) error {
	if why != nil && !saysAbsent(why) {
		return why
	}
	for i := range q.holders {
		if q.silent[i] || q.skipped[i] {
			return &fabric.Error{Code: wire.CodeNoProgress, Fabric: q.holders[i].name, Text: "the holder does not answer, and is not waited for"}
		}
	}
	return wire.CodeAbsent
}

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
	out := make([]Found, len(keys))
	if len(keys) == 0 {
		return out
	}
	ctx, cancel := m.bound(ctx)
	defer cancel()
	q := m.ask(ctx, ns, keys)
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
