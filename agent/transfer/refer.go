package transfer

import (
	"context"
	"errors"
	"sync/atomic"

	"meridian/fabric"
	"meridian/wire"
)

// Hint is where an engine was told that a block is.
type Hint struct {
	Agent [16]byte
	Inc   uint64
}

// HintOutcome is what became of a block for which there was a hint.
type HintOutcome uint8

// The outcomes.
const (
	HintServed  HintOutcome = iota // the holder gave it
	HintUnknown                    // no peer that may be asked is that agent
	HintOther                      // the agent runs in another incarnation
	HintAbsent                     // the holder has no such block
	HintStale                      // the holder's slot has another block
	HintSilent                     // the holder did not answer in time, or stood still
	HintFailed                     // anything else
	HintOutcomes
)

var hintOutcomes = [HintOutcomes]string{"served", "unknown", "incarnation", "absent", "stale", "silent", "failed"}

// String is the label of metrics.
func (o HintOutcome) String() string { return hintOutcomes[o] }

// hintCounts are the blocks by outcome.
type hintCounts [HintOutcomes]atomic.Uint64

// hintedBy notes what the holder that was asked first said of a block.
func (l *load) hintedBy(w *want, o HintOutcome) {
	if l.job.First == "" || w.hinted {
		return
	}
	w.hinted = true
	l.m.hinted[o].Add(1)
}

// hintsLeft counts the blocks of which that holder has said nothing.
func (l *load) hintsLeft() {
	o := HintSilent
	if l.q.first >= 0 && l.q.stands[l.q.first] == answered {
		o = HintFailed // this load has ended before
	}
	for i := range l.wants {
		l.hintedBy(&l.wants[i], o)
	}
}

// Hinted counts the blocks for which there was a hint, by what became of it.
func (m *Mover) Hinted(o HintOutcome) uint64 { return m.hinted[o].Load() }

// FetchFrom is Fetch of blocks of which the asker was told a holder, which is asked
// first and alone. refs name them there; a zero one names its block by key. The other
// holders are asked for the rest where rest says so; else what this holder does not
// give has an error that says why. A hint leads only to a configured peer that is
// connected and has proved the namespace's tenant. Of others it tells the same
// whether they exist or not.
func (m *Mover) FetchFrom(ctx context.Context, job Job, at Hint, refs []wire.Ref, rest bool) []error {
	name, handle, err := m.refer(job.NS, at)
	if err != nil {
		o := HintUnknown
		if err != errNoSuchHolder {
			o = HintOther
		}
		m.hinted[o].Add(uint64(len(job.Keys)))
		if rest {
			return m.fetchUnhinted(ctx, job, err)
		}
		job.Turn.begun()
		errs := make([]error, len(job.Keys))
		for i := range errs {
			errs[i] = err
			job.each(i, err)
		}
		return errs
	}
	job.First, job.Alone = name, !rest
	job.Refs = make([]fabric.Handle, len(job.Keys))
	for i := range job.Refs {
		if i < len(refs) && refs[i].Gen != 0 {
			job.Refs[i] = handle(refs[i].Slot, refs[i].Gen)
		}
	}
	return m.Fetch(ctx, job)
}

// fetchUnhinted is Fetch of blocks whose hint led nowhere, because of why. Who is told
// that nobody has one is told of the hint too.
func (m *Mover) fetchUnhinted(ctx context.Context, job Job, why error) []error {
	told := func(err error) error {
		if err == error(wire.CodeAbsent) {
			return &hintError{wire.CodeAbsent, why.Error() + ", and no other has the block"}
		}
		return err
	}
	if each := job.Each; each != nil {
		job.Each = func(i int, err error) { each(i, told(err)) }
	}
	errs := m.Fetch(ctx, job)
	for i := range errs {
		errs[i] = told(errs[i])
	}
	return errs
}

// FindAt is Find at the holder that at names, alone; at all for the zero one.
func (m *Mover) FindAt(ctx context.Context, ns wire.Namespace, at Hint, keys []wire.Key) []Found {
	if at == (Hint{}) || len(keys) == 0 {
		return m.Find(ctx, ns, keys)
	}
	name, _, err := m.refer(ns, at)
	if err == nil {
		return m.find(ctx, &Job{NS: ns, Keys: keys, First: name, Alone: true})
	}
	out := make([]Found, len(keys))
	for i := range out {
		out[i].Err = err
	}
	return out
}

// refer finds the registry name of the peer that a hint names. A peer that is not
// known, and one that may not be asked for the namespace, are the same to an engine.
func (m *Mover) refer(ns wire.Namespace, at Hint) (name string, handle func(slot, gen uint32) fabric.Handle, err error) {
	err = errNoSuchHolder
	for _, of := range m.cfg.Fabrics.Names() {
		f, ok := m.cfg.Fabrics.Get(of)
		r, refers := f.(fabric.Referrer)
		if !ok || !refers {
			continue
		}
		peer, handle, why := r.Refer(at.Agent, at.Inc)
		name := fabric.PeerName(of, peer)
		to, ok := m.cfg.Fabrics.Get(name)
		switch {
		case peer == "" || !ok || usable(to, ns) != nil:
		case why == nil:
			return name, handle, nil
		case errors.Is(why, wire.CodeIncarnation):
			err = errLaterIncarnation
		case errors.Is(why, wire.CodeStale):
			err = errOtherIncarnation
		}
	}
	return "", nil, err
}

// What an engine is told of a hint that leads nowhere. They match ABSENT: the block
// is not there, as far as this daemon may look. One that also matches INCARNATION says
// that it never will be.
var (
	errNoSuchHolder     = &hintError{wire.CodeAbsent, "no peer that may be asked is that holder"}
	errOtherIncarnation = &hintError{wire.CodeStale, "the holder runs in another incarnation"}
	errLaterIncarnation = &hintError{wire.CodeIncarnation, "the holder runs in another incarnation, a later one"}
	errNotThere         = &hintError{wire.CodeAbsent, "the holder has no such block"}
	errAnotherBlock     = &hintError{wire.CodeStale, "the holder has another block in that slot"}
)

// hintError is ABSENT, and why.
type hintError struct {
	code wire.Code // what else it matches
	text string
}

func (e *hintError) Error() string { return e.text }

// Unwrap returns ABSENT first.
func (e *hintError) Unwrap() []error { return []error{wire.CodeAbsent, e.code} }

// alone is what the asker is told of a block for which only one holder may be asked.
func alone(err error) error {
	switch outcomeOf(err) {
	case HintAbsent:
		return errNotThere
	case HintStale:
		return errAnotherBlock
	}
	return err
}

// outcomeOf is a hint's, of a block that its holder did not give because of err.
func outcomeOf(err error) HintOutcome {
	switch wire.CodeOf(err) {
	case wire.CodeAbsent, wire.CodeNSUnknown:
		return HintAbsent
	case wire.CodeStale:
		return HintStale
	case wire.CodeNoProgress:
		return HintSilent
	}
	return HintFailed
}
