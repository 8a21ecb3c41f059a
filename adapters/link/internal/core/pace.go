package core

import (
	"time"

	proto "meridian/wire/link"
)

// pace is when a request last made progress. docs/spec/link-v1.md, section 7,
// says what counts.
type pace struct {
	mark   time.Duration // the last progress
	fresh  uint64        // bytes of the request's own that moved since mark
	passed uint64        // bytes of others that moved since the last progress of its own
	seen   tally         // of its lane, at the last look
}

// tally counts the body bytes that a lane moved.
type tally struct {
	in  [4]uint64 // by class
	out uint64
}

// below sums the classes that are more urgent than c.
func (t *tally) below(c proto.Class) (n uint64) {
	for _, k := range t.in[:c] {
		n += k
	}
	return n
}

func (t *tally) total() uint64 { return t.below(proto.Class(len(t.in))) + t.out }

// progress notes that the request went on: an answer came, or was sent.
func (r *request) progress(now time.Duration) {
	r.pace = pace{mark: now, seen: r.lane.moved}
}

// movedOwn notes n bytes of the request's own, of which left are still to go.
func (r *request) movedOwn(now time.Duration, n int, left uint64) {
	r.pace.fresh += uint64(n)
	if r.pace.fresh >= minProgress || left == 0 {
		r.progress(now)
	}
}

// stuck reports whether the peer has let the request wait for too long. A lane
// that carries what goes first is not waited for: DATA of more urgent requests,
// what this side itself sends before it, and of anything else as much as round
// robin may put before it.
func (r *request) stuck(now time.Duration) bool {
	p, l := &r.pace, r.lane
	if r.out.dry() { // whatever the lane carries, none of it goes before these bytes
		return now-p.mark >= proto.NoProgress
	}
	if n := l.moved.total() - p.seen.total(); n >= minProgress {
		first := l.moved.below(r.class) - p.seen.below(r.class)
		if r.out.left > 0 {
			first += l.moved.out - p.seen.out
		}
		p.passed += n - first
		if first >= minProgress || p.passed <= maxPassed {
			p.mark = now
		}
		p.seen = l.moved
	}
	return now-p.mark >= proto.NoProgress
}
