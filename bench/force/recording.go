package force

import (
	"fmt"
	"math"

	"meridian/scheduler"
)

// Version is that of the format of recordings.
const Version = 1

// Bounds of a recording. The longest line that they allow is below maxLine.
const (
	maxLine        = 4 << 20  // bytes
	maxTokens      = 1 << 17  // thinking tokens of a request
	maxRequests    = 4096     // of a recording
	maxTotalTokens = 1 << 22  // of a recording
	maxBytes       = 64 << 20 // of a recording, once unpacked
	maxText        = 4096     // bytes of a name or a description
	maxNats        = 64       // more than the entropy of any vocabulary
)

// Kind says where a recording comes from.
type Kind string

// The kinds.
const (
	Recorded  Kind = "recorded"  // by running a model
	Synthetic Kind = "synthetic" // made by a generator
)

// Ended says how a request's thinking ended.
type Ended string

// The ways.
const (
	ByMarker Ended = "marker" // the model decoded the end marker
	ByEOS    Ended = "eos"    // the model ended the sequence while it thought
	ByCut    Ended = "cut"    // the recording stops: how long it would have thought is not known
)

// Header is the first line of a recording: its provenance.
type Header struct {
	Version     int     `json:"meridian_signals"`
	Name        string  `json:"name"`
	Kind        Kind    `json:"kind"`
	Source      string  `json:"source"`                 // what made it, and how
	Model       string  `json:"model,omitempty"`        // that was run
	Engine      string  `json:"engine,omitempty"`       // that ran it
	Sampling    string  `json:"sampling,omitempty"`     // how tokens were drawn
	Top         int     `json:"top,omitempty"`          // most likely tokens that entropy and probabilities were computed from; 0: all
	Vocabulary  int     `json:"vocabulary,omitempty"`   // tokens of the model
	LeastMass   float64 `json:"least_mass,omitempty"`   // the smallest share of a distribution that those tokens had
	End         string  `json:"end,omitempty"`          // the end marker; p_end is of its first token
	EndTokens   int     `json:"end_tokens,omitempty"`   // in the end marker; 0: 1
	NotThinking string  `json:"not_thinking,omitempty"` // why what was recorded is no thinking in the strict sense; empty: it is
	Requests    int     `json:"requests,omitempty"`     // lines that follow; 0: not said
}

// Request is one request's thinking. A series has a value for each thinking token,
// or none at all; EAT has values at the positions of EATAt only.
type Request struct {
	ID      string    `json:"id"`
	Prompt  string    `json:"prompt,omitempty"`
	Ended   Ended     `json:"ended"`
	Note    string    `json:"note,omitempty"`    // why it was cut, where it was not by the limit
	Entropy []float32 `json:"entropy,omitempty"` // nats
	PEnd    []float32 `json:"p_end,omitempty"`   // of the end marker's first token
	PEOS    []float32 `json:"p_eos,omitempty"`   // of the ids that end the sequence
	EATAt   []uint32  `json:"eat_at,omitempty"`  // thinking tokens, ascending
	EAT     []float32 `json:"eat,omitempty"`     // nats
	// Sentences are the positions of tokens at which a sentence ends, ascending: rpdi
	// is computed there. None: it is not.
	Sentences []uint32 `json:"sentences,omitempty"`
}

// Recording is a set of requests with one provenance.
type Recording struct {
	Header   Header
	Requests []Request
}

// Tokens is how many thinking tokens were recorded.
func (r *Request) Tokens() int { return max(len(r.Entropy), len(r.PEnd), len(r.PEOS)) }

// endTokens is how many tokens the end marker has.
func (h *Header) endTokens() int { return max(h.EndTokens, 1) }

// check says what is wrong with a header.
func (h *Header) check() error {
	switch {
	case h.Version == 0:
		return fmt.Errorf("no meridian_signals: the first line of a recording says its version, %d", Version)
	case h.Version != Version:
		return fmt.Errorf("meridian_signals is %d: this build reads version %d", h.Version, Version)
	case h.Kind != Recorded && h.Kind != Synthetic:
		return fmt.Errorf("kind is %q: it is %s or %s", h.Kind, Recorded, Synthetic)
	case h.Source == "":
		return fmt.Errorf("no source: a recording says where it comes from")
	case h.EndTokens < 0 || h.EndTokens > scheduler.MaxMarker:
		return fmt.Errorf("end_tokens is %d: from 1 to %d", h.EndTokens, scheduler.MaxMarker)
	case h.Requests < 0 || h.Requests > maxRequests:
		return fmt.Errorf("requests is %d: from 1 to %d", h.Requests, maxRequests)
	case h.Top < 0 || h.Vocabulary < 0:
		return fmt.Errorf("top is %d, vocabulary %d: neither can be below 0", h.Top, h.Vocabulary)
	case !(h.LeastMass >= 0 && h.LeastMass <= 1.01):
		return fmt.Errorf("least_mass is %v: a share from 0 to 1", h.LeastMass)
	}
	for name, s := range map[string]string{"name": h.Name, "source": h.Source, "model": h.Model, "engine": h.Engine, "sampling": h.Sampling, "end": h.End, "not_thinking": h.NotThinking} {
		if len(s) > maxText {
			return fmt.Errorf("%s has %d bytes: at most %d", name, len(s), maxText)
		}
	}
	return nil
}

// check says what is wrong with a request.
func (r *Request) check(h *Header) error {
	n := r.Tokens()
	switch {
	case r.ID == "" || len(r.ID) > maxText || len(r.Prompt) > maxText || len(r.Note) > maxText:
		return fmt.Errorf("id has %d bytes, prompt %d, note %d: id from 1, each at most %d", len(r.ID), len(r.Prompt), len(r.Note), maxText)
	case r.Ended != ByMarker && r.Ended != ByEOS && r.Ended != ByCut:
		return fmt.Errorf("ended is %q: it is %s, %s or %s", r.Ended, ByMarker, ByEOS, ByCut)
	case n == 0:
		return fmt.Errorf("no entropy, p_end or p_eos: a request has at least one of them")
	case n > maxTokens:
		return fmt.Errorf("%d thinking tokens: at most %d", n, maxTokens)
	case r.Ended == ByMarker && n < h.endTokens():
		return fmt.Errorf("ended by a marker of %d tokens after %d", h.endTokens(), n)
	case len(r.EAT) != len(r.EATAt):
		return fmt.Errorf("%d values of eat at %d positions", len(r.EAT), len(r.EATAt))
	}
	for _, s := range []struct {
		name   string
		values []float32
		most   float32
		whole  bool
	}{{"entropy", r.Entropy, maxNats, true}, {"p_end", r.PEnd, 1, true}, {"p_eos", r.PEOS, 1, true}, {"eat", r.EAT, maxNats, false}} {
		if s.whole && len(s.values) > 0 && len(s.values) != n {
			return fmt.Errorf("%s has %d values, another series %d", s.name, len(s.values), n)
		}
		for i, v := range s.values {
			if !(v >= 0 && v <= s.most) {
				return fmt.Errorf("value %d of %s is %v: from 0 to %v", i+1, s.name, v, s.most)
			}
		}
	}
	for name, at := range map[string][]uint32{"eat_at": r.EATAt, "sentences": r.Sentences} {
		for i, p := range at {
			if p < 1 || int64(p) > int64(n) || i > 0 && p <= at[i-1] {
				return fmt.Errorf("value %d of %s is %d: ascending positions from 1 to %d", i+1, name, p, n)
			}
		}
	}
	return nil
}

// eosSet ends the name of a set in which p_eos stands for p_end.
const eosSet = "/eos"

// sets are what a recording is replayed as: as it is, and, of the requests that have
// p_eos, with that in place of p_end: a model without an end marker ends what it has to
// say by ending the sequence.
func (r *Recording) sets() []Recording {
	all := []Recording{*r}
	eos := Recording{Header: r.Header}
	eos.Header.Name += eosSet
	for _, q := range r.Requests {
		if len(q.PEOS) > 0 {
			q.PEnd = q.PEOS
			eos.Requests = append(eos.Requests, q)
		}
	}
	if len(eos.Requests) > 0 {
		all = append(all, eos)
	}
	return all
}

// round keeps so many significant digits of a value, for a file that compresses. What
// is below least is 0.
func round(v float64, digits int, least float64) float32 {
	if v < least {
		return 0
	}
	scale := math.Pow(10, float64(digits-1)-math.Floor(math.Log10(v)))
	return float32(math.Round(v*scale) / scale)
}
