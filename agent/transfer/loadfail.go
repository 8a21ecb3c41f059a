package transfer

import (
	"errors"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// failed decides whether a block is asked for again, and where. A holder that
// does not have it, sends nothing in time, or gave a length for which there is no
// room is not asked a second time; one that sent it wrong or cannot be reached is,
// where there is no other. The slot that a handle names may be gone
// after a reconnect, so the next try is by key.
func (l *load) failed(i int, s source, err error) {
	w := &l.wants[i]
	w.err = err
	w.tries++
	if s.holder == l.q.first {
		l.hintedBy(w, outcomeOf(err))
	}
	if l.ctx.Err() != nil {
		if gaveUp(err) { // leave cancels pulls whatever the reason
			err = fabric.ContextError(l.ctx, "")
		}
		l.finish(i, err)
		return
	}
	at := -1
	for k := range w.from {
		if w.from[k].holder == s.holder {
			at = k
		}
	}
	dead, stuck := errors.Is(err, wire.CodeUnreachable), errors.Is(err, wire.CodeNoProgress)
	if dead || stuck {
		l.q.askSkipped(l.ctx)
	}
	others := len(w.from) > 1 || l.q.waiting > 0 || s.holder == l.q.first && !l.job.Alone && !w.rest
	gone := dead && others || stuck || errors.Is(err, wire.CodeAbsent) || gaveUp(err) ||
		errors.Is(err, wire.CodeFull) || errors.Is(err, wire.CodeTooLarge) ||
		errors.Is(err, wire.CodeStale) && s.h == (fabric.Handle{})
	switch {
	case at < 0:
	case gone:
		w.from = append(w.from[:at], w.from[at+1:]...)
	default:
		w.from[at].h = fabric.Handle{}
		w.from[at].tries++
	}
	if len(w.from) == 0 {
		l.askRest()
	}
	if w.tries >= loadAttempts || len(w.from) == 0 && l.q.waiting == 0 {
		l.finish(i, err)
	}
}

// arm sets the timer to the next pull that may be passed on.
func (l *load) arm() {
	var first time.Time
	for p := range l.pulls {
		if p.left > 0 && (first.IsZero() || p.due.Before(first)) {
			first = p.due
		}
	}
	if !first.IsZero() {
		l.overdue.Reset(time.Until(first))
	}
}

// passOn looks at the pulls that are overdue. Blocks that another holder has are
// asked for there at once: neither the call nor its holder is waited for. A pull
// of which nothing is left is cancelled; else it is looked at again later.
func (l *load) passOn() {
	now := time.Now()
	for p := range l.pulls {
		if p.left == 0 || now.Before(p.due) {
			continue
		}
		p.due = now.Add(pullPatience)
		l.queue.ended(l, p) // a pull that stands still holds up nobody else
		l.askElsewhere(p)
		before := p.left
		for k, i := range p.at {
			w := &l.wants[i]
			if p.passed[k] || !l.elsewhere(w, p.holder) {
				continue
			}
			p.passed[k], w.flying = true, false
			if p.holder == l.q.first {
				l.hintedBy(w, HintSilent)
			}
			p.left--
			for j := range w.from {
				if w.from[j].holder == p.holder {
					w.from[j].tries++
				}
			}
		}
		if p.left < before {
			l.standsStill(p)
		}
		if p.left == 0 {
			p.cancel()
		}
	}
	l.arm()
}

// askElsewhere asks the other holders for what stands still at the one that was
// asked first.
func (l *load) askElsewhere(p *pulling) {
	if p.holder != l.q.first || l.job.Alone {
		return
	}
	var at []int
	for k, i := range p.at {
		if w := &l.wants[i]; !p.passed[k] && !w.done && !w.rest {
			w.rest, at = true, append(at, i)
		}
	}
	l.q.askRest(l.ctx, at)
}

// standsStill leaves a holder alone, in this load and in those to come.
func (l *load) standsStill(p *pulling) {
	l.stalled[p.holder] = true
	l.m.missed(&l.q.holders[p.holder], fabric.Item{NS: l.job.NS, Key: l.job.Keys[p.at[0]]}, true)
}

// elsewhere says whether another holder has a block, and does not stand still.
func (l *load) elsewhere(w *want, holder int) bool {
	for _, s := range w.from {
		if s.holder != holder && !l.stalled[s.holder] && !l.m.isSlow(l.q.holders[s.holder].name) {
			return true
		}
	}
	return false
}

// endMissing ends the wants that nobody can give.
func (l *load) endMissing() {
	for i := range l.wants {
		if w := &l.wants[i]; !w.done && !w.flying && len(w.from) == 0 {
			err := l.q.verdict(w.err)
			if l.job.Alone && w.err != nil {
				err = w.err // what that holder said is all that there is
			}
			l.finish(i, err)
		}
	}
}
