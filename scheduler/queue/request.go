package queue

import (
	"errors"
	"fmt"
	"time"

	"meridian/scheduler"
)

// Request is what is known of a request when it comes.
type Request struct {
	ID     ID
	Prompt int  // tokens, at least 1
	Cached int  // of them, from the front, that the prefix cache has; never all
	Thinks bool // it is expected to think before it answers
	// Background: nobody looks at its tokens. All others come before it, and it yields
	// its place to them. fcfs makes no difference.
	Background bool
}

// Errors of Add. ErrTooLong and ErrFull come with the numbers.
var (
	ErrDuplicate = errors.New("queue: a request of that number is known")
	ErrInvalid   = errors.New("queue: a prompt has at least one token, of which at least one is not cached")
	ErrTooLong   = errors.New("queue: the prompt needs more memory than there is")
	ErrFull      = errors.New("queue: as many requests are known as may be")
)

// state is where a request is.
type state uint8

const (
	waiting state = iota // for its turn; away says whether its blocks are elsewhere
	loading              // they come back
	running
	leaving // they are being offloaded
	gone    // cancelled, or complete, while its blocks move
)

// entry is a request.
type entry struct {
	id      ID
	arrived Time
	order   uint64 // of arrival
	state   state
	phase   scheduler.Phase
	thinks  bool
	back    bool // in the background
	away    bool // its blocks are offloaded
	old     bool // it has waited for Aging, and it is the turn of one that has
	aged    bool // it was admitted as such, once
	fresh   bool // it was admitted so, and nothing has been made of it yet
	ctx     int  // tokens that are computed, or were before they were dropped
	todo    int  // tokens to be computed before it decodes again
	had     int  // tokens that were computed when its blocks were dropped
	blocks  int  // it has

	since Time // it waits, or has been in the batch
	began Time // of the phase
	made  int  // tokens of the phase
	due   Time // of the next one, by its SLO
	rank  rank // while it waits
}

// rank is a place in the order of admission: lower goes first. It stays as it is while a
// request waits.
type rank struct {
	class uint8
	due   Time
}

func (e *entry) thinking() bool { return e.phase < scheduler.OutputDecode && e.thinks }

func (e *entry) answering() bool { return e.phase == scheduler.OutputDecode }

// reckon says when the request's next token is due by its SLO. It changes with its tokens
// only.
func (e *entry) reckon(c *Config) {
	switch {
	case e.phase == scheduler.Prefill:
		e.due = e.arrived + Time(c.FirstAnswer)
	case e.answering():
		e.due = e.began + Time(e.made)*Time(c.OutputPace)
	default:
		e.due = e.began + Time(e.made)*Time(c.ThinkPace)
	}
}

// ahead is how long a reader of an answer goes on without another token.
func (e *entry) ahead(now Time) time.Duration {
	if !e.answering() {
		return 0
	}
	return time.Duration(e.due - now)
}

// behind is added to the class of a request in the background: more than any class.
const behind = 4

// place says where a request stands in the order of admission from now on.
func (c *Config) place(e *entry) rank {
	r := c.placeInClass(e)
	if e.back && c.Policy != FCFS {
		r.class += behind
	}
	return r
}

func (c *Config) placeInClass(e *entry) rank {
	switch c.Policy {
	case OutputFirst:
		if e.thinking() {
			return rank{2, e.arrived}
		}
		return rank{1, e.arrived}
	case ReasonFirst:
		if e.answering() {
			return rank{2, e.due - Time(loadLead)}
		}
		return rank{1, e.arrived}
	case SLOSlack:
		return rank{1, e.due - Time(loadLead)}
	}
	return rank{1, e.arrived}
}

// early reports whether it is too early for an offloaded answer to come back, where
// anybody else waits.
func (c *Config) early(e *entry, now Time) bool {
	return e.away && e.answering() && (c.Policy == ReasonFirst || c.Policy == SLOSlack) && e.due-Time(loadLead) > now
}

// worse reports whether a is preempted before b.
func (c *Config) worse(a, b *entry, now Time) bool {
	// Who has just come back stays, while there is another.
	if x, y := c.settled(a, now), c.settled(b, now); x != y {
		return x
	}
	if a.back != b.back && c.Policy != FCFS {
		return a.back
	}
	switch c.Policy {
	case OutputFirst:
		if a.thinking() != b.thinking() {
			return a.thinking()
		}
	case ReasonFirst:
		x, y := a.ahead(now) >= c.Buffer, b.ahead(now) >= c.Buffer
		if x != y {
			return x
		}
		if x && a.due != b.due {
			return a.due > b.due
		}
	case SLOSlack:
		if x, y := a.due, b.due; x != y {
			return x > y
		}
	}
	return a.order > b.order
}

// yields reports whether a running request makes room for one that waits.
func (c *Config) yields(running, waits *entry, now Time) bool {
	if waits.old {
		return true
	}
	if running.back != waits.back {
		return running.back // fcfs asks for nobody's place
	}
	switch c.Policy {
	case OutputFirst: // thinking is nothing that anybody looks at
		return running.thinking() && !waits.thinking()
	case ReasonFirst:
		return running.ahead(now) >= c.Buffer && !waits.answering()
	case SLOSlack: // one that would not be late if it were away and back
		return running.due > max(waits.due, now)+Time(c.MinResidency+2*loadLead)
	}
	return false
}

func (c *Config) settled(e *entry, now Time) bool {
	return !e.fresh && now-e.since >= Time(c.MinResidency)
}

func tooLong(need, have int) error {
	return fmt.Errorf("%w: %d blocks of %d", ErrTooLong, need, have)
}
