package scheduler

import (
	"math/bits"
	"sync/atomic"
)

// Think-token histogram: upper bounds 64, 128, ... 65536, and one bucket above.
const (
	firstBound = 6 // 2^6
	lastBound  = 16
	buckets    = lastBound - firstBound + 2
)

// Stats are a core's counts since New. Arrays are indexed by Phase, EventKind
// and Reason.
type Stats struct {
	Phases [phases]uint64     // tracked requests now, a phase each
	Events [eventKinds]uint64 // events emitted, a kind each
	Reason [reasons]uint64    // ForceBudget, Completed, Refused by reason

	Arrived       uint64 // entries made
	Aborted       uint64 // entries freed by Abort
	Untracked     uint64 // inputs for an id that was not tracked
	AfterEnd      uint64 // tokens that came after the end of their request
	ThinkTokens   uint64 // decoded in ThinkDecode
	OutputTokens  uint64 // decoded in OutputDecode
	VocabFallback uint64 // arrivals whose ids came from the built-in table
	UnknownModel  uint64 // arrivals of a model that nobody knows; they never think

	Signals     uint64 // samples that a decision could follow from
	SignalsIdle uint64 // of requests that did not think or were forced already, too soon after the last, or without Config.Signals
	SignalsBad  uint64 // values that the signal cannot have, and names that are none

	Offloaded uint64 // think blocks offloaded
	Kept      uint64 // of these, at Complete, by models that keep thinking in the history
	Uncounted uint64 // think blocks beyond MaxBlocks of their request
	Dropped   uint64 // of these, at Complete, by models that do not: read again after preemption only

	Think Histogram // thinking tokens of requests that stopped thinking or ended in it
}

// Tracked is the number of entries now.
func (s Stats) Tracked() uint64 {
	var n uint64
	for _, v := range s.Phases {
		n += v
	}
	return n
}

// Add adds o to s, to sum sessions. Gone sessions must be added without their
// Phases.
func (s *Stats) Add(o *Stats) {
	for i := range s.Phases {
		s.Phases[i] += o.Phases[i]
	}
	for i := range s.Events {
		s.Events[i] += o.Events[i]
	}
	for i := range s.Reason {
		s.Reason[i] += o.Reason[i]
	}
	s.Arrived += o.Arrived
	s.Aborted += o.Aborted
	s.Untracked += o.Untracked
	s.AfterEnd += o.AfterEnd
	s.ThinkTokens += o.ThinkTokens
	s.OutputTokens += o.OutputTokens
	s.VocabFallback += o.VocabFallback
	s.UnknownModel += o.UnknownModel
	s.Signals += o.Signals
	s.SignalsIdle += o.SignalsIdle
	s.SignalsBad += o.SignalsBad
	s.Offloaded += o.Offloaded
	s.Kept += o.Kept
	s.Dropped += o.Dropped
	s.Uncounted += o.Uncounted
	for i := range s.Think.bucket {
		s.Think.bucket[i] += o.Think.bucket[i]
	}
	s.Think.Sum += o.Think.Sum
}

// Histogram counts requests by their thinking tokens.
type Histogram struct {
	Sum    uint64 // tokens
	bucket [buckets]uint64
}

// Count is the number of requests.
func (h Histogram) Count() uint64 {
	var n uint64
	for _, v := range h.bucket {
		n += v
	}
	return n
}

// Buckets returns the number of requests at or below each upper bound, in
// tokens. Those above the last bound are in Count only.
func (h Histogram) Buckets() map[float64]uint64 {
	m := make(map[float64]uint64, buckets-1)
	var n uint64
	for i, v := range h.bucket[:buckets-1] {
		n += v
		m[float64(uint64(1)<<(firstBound+i))] = n
	}
	return m
}

// bucketOf is the bucket of n tokens: bounds are inclusive.
func bucketOf(n uint32) int {
	if n <= 1<<firstBound {
		return 0
	}
	return min(bits.Len32(n-1)-firstBound, buckets-1)
}

// Places of the counts.
const (
	atPhase         = 0
	atEvent         = atPhase + phases
	atReason        = atEvent + eventKinds
	atBucket        = atReason + reasons
	atSum           = atBucket + buckets
	atArrived       = atSum + 1
	atAborted       = atSum + 2
	atUntracked     = atSum + 3
	atAfterEnd      = atSum + 4
	atVocabFallback = atSum + 5
	atUnknownModel  = atSum + 6
	atOffloaded     = atSum + 7
	atKept          = atSum + 8
	atDropped       = atSum + 9
	atUncounted     = atSum + 10
	atSignals       = atSum + 11
	atSignalsIdle   = atSum + 12
	atSignalsBad    = atSum + 13
	cells           = atSum + 14
)

// Places of the counts that move with every token.
const (
	hotThink = iota
	hotOutput
	hots
)

// counts are kept plain by the core's goroutine and published once a Step: an
// atomic add a token would be a third of what a token may cost.
type counts struct {
	hot   [hots]uint64
	own   [cells]uint64
	dirty bool // own differs from what is published

	outHot [hots]atomic.Uint64
	out    [cells]atomic.Uint64
}

func (c *counts) add(at int, n uint64) { c.own[at] += n; c.dirty = true }
func (c *counts) sub(at int, n uint64) { c.own[at] -= n; c.dirty = true }

func (c *counts) observe(used uint32) {
	c.add(atBucket+bucketOf(used), 1)
	c.add(atSum, uint64(used))
}

func (c *counts) publish() {
	for i, v := range c.hot {
		if c.outHot[i].Load() != v {
			c.outHot[i].Store(v)
		}
	}
	if !c.dirty {
		return
	}
	c.dirty = false
	for i, v := range c.own {
		if c.out[i].Load() != v {
			c.out[i].Store(v)
		}
	}
}

func (c *counts) read() Stats {
	var own [cells]uint64
	for i := range own {
		own[i] = c.out[i].Load()
	}
	s := Stats{
		Arrived:       own[atArrived],
		Aborted:       own[atAborted],
		Untracked:     own[atUntracked],
		AfterEnd:      own[atAfterEnd],
		ThinkTokens:   c.outHot[hotThink].Load(),
		OutputTokens:  c.outHot[hotOutput].Load(),
		VocabFallback: own[atVocabFallback],
		UnknownModel:  own[atUnknownModel],
		Signals:       own[atSignals],
		SignalsIdle:   own[atSignalsIdle],
		SignalsBad:    own[atSignalsBad],
		Offloaded:     own[atOffloaded],
		Kept:          own[atKept],
		Dropped:       own[atDropped],
		Uncounted:     own[atUncounted],
	}
	copy(s.Phases[:], own[atPhase:])
	copy(s.Events[:], own[atEvent:])
	copy(s.Reason[:], own[atReason:])
	copy(s.Think.bucket[:], own[atBucket:])
	s.Think.Sum = own[atSum]
	return s
}
