package scheduler

import (
	"math"
	"slices"
)

// nowhere is no position. Sequences are far shorter.
const nowhere uint32 = math.MaxUint32

// Part is what some tokens of a request are, by their positions.
type Part uint8

// The parts.
const (
	Rest     Part = iota // prompt or answer, or partly
	Thinking             // all of them are of a thinking that goes on
	Thought              // all of them are of a thinking that is over
)

// PartOf says what the n tokens from position pos on are, as the core knows it by
// now: thinking that goes on has no end yet. False for an id that is not tracked.
func (c *Core) PartOf(id ID, pos, n uint32) (Part, bool) {
	k := c.ids.find(id)
	if k < 0 {
		return Rest, false
	}
	s := &c.slots[k]
	begin := s.total - min(s.used, s.total) // of a thinking that goes on
	answer := c.answerAt[k]
	switch {
	case s.phase == ThinkDecode || s.phase == Prefill && s.open:
		if pos >= begin {
			return Thinking, true
		}
	case answer != nowhere:
		end := uint64(pos) + uint64(max(n, 1))
		if pos >= answer-min(s.used, answer) && end <= uint64(answer) {
			return Thought, true
		}
	}
	return Rest, true
}

// grow counts n more tokens of a request.
func (s *slot) grow(n int) { s.total = uint32(min(uint64(s.total)+uint64(n), uint64(nowhere))) }

// before is the position at which rest, the last of the tokens so far, begins.
func (s *slot) before(rest []int32) uint32 { return s.total - min(uint32(len(rest)), s.total) }

// resume takes in what was decoded before. Nothing is said about thinking that began
// and is over: a caller wants to know where the request stands. What is due is due
// now, as if the tokens had come in one input. Signals begin anew.
func (c *Core) resume(k int32, s *slot, decoded []int32) {
	at := len(c.events)
	c.tokens(k, s, decoded)
	if at < len(c.events) && c.events[at].Kind == EnterThink && s.phase != ThinkDecode {
		c.events = slices.Delete(c.events, at, at+1)
		c.counts.sub(atEvent+int(EnterThink), 1)
	}
}
