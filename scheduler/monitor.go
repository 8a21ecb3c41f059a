package scheduler

import (
	"fmt"
	"math"
)

// SignalConfig says when signals end a request's thinking. Zero fields are
// values, not defaults: start from DefaultSignalConfig.
type SignalConfig struct {
	// Alpha is the weight of the newest sample in every moving average. No
	// average is looked at before 4/Alpha samples have followed its first.
	Alpha float64

	// VarianceThreshold: a moving variance below it is calm. In the square of
	// the signal's unit.
	VarianceThreshold float64

	// PEndLevel is what the moving average of SigPEnd must reach, besides being
	// calm, for Converged: a model that never thinks of ending is calm too.
	PEndLevel float64

	// EATLevel is what the moving average of SigEAT must not exceed, in nats,
	// besides being calm, for Converged. 0: any, which is the rule of the paper.
	EATLevel float64

	// TransitionEntropy: a token whose entropy is above it, in nats, is one
	// where the thought may turn.
	TransitionEntropy float64

	// RPDIThreshold: SigRPDIIndicator above it is Overthinking.
	RPDIThreshold float64

	// TransitionLevel is what the moving average of the indicator must reach
	// for that. Without it one uncertain token after a thousand certain ones
	// is fifty times the mean.
	TransitionLevel float64

	// RPDILambda: SigRPDI above it is Overthinking.
	RPDILambda float64

	// ProbeInterval is the thinking tokens between two samples of one signal.
	// Those that come sooner are left out, so that averages mean the same
	// however often an engine measures. SigRPDI has no average, and none is.
	ProbeInterval uint32

	MinThink uint32 // thinking tokens before which no signal forces
	MaxThink uint32 // thinking tokens at which thinking is forced without one
}

// DefaultSignalConfig returns the seed's values, the lambda of arXiv
// 2603.14251, and levels of one half: where ending is more probable than all
// that may come instead, and where most of the latest samples are transitions.
func DefaultSignalConfig() SignalConfig {
	return SignalConfig{
		Alpha:             0.05,
		VarianceThreshold: 0.001,
		PEndLevel:         0.5,
		TransitionEntropy: 2.5,
		RPDIThreshold:     3.0,
		TransitionLevel:   0.5,
		RPDILambda:        2.0,
		ProbeInterval:     32,
		MinThink:          512,
		MaxThink:          DefaultMaxThink,
	}
}

// SignalConfigError says what is wrong with a SignalConfig.
type SignalConfigError struct {
	Field string // of SignalConfig
	Text  string // what is wrong, with the values
}

// Error implements error.
func (e *SignalConfigError) Error() string { return "signals: " + e.Field + ": " + e.Text }

// Rules are a checked SignalConfig. They are immutable and may be shared.
type Rules struct {
	c    SignalConfig
	warm uint32 // samples that follow the first before an average counts
}

// NewRules checks a configuration. It returns a *SignalConfigError for the
// first field that is wrong.
func NewRules(c SignalConfig) (*Rules, error) {
	for _, f := range []struct {
		name, must string
		value      float64
		ok         bool
	}{
		{"Alpha", "above 0 and at most 1", c.Alpha, c.Alpha > 0 && c.Alpha <= 1},
		{"VarianceThreshold", "at least 0", c.VarianceThreshold, c.VarianceThreshold >= 0},
		{"PEndLevel", "above 0 and at most 1", c.PEndLevel, c.PEndLevel > 0 && c.PEndLevel <= 1},
		{"EATLevel", "at least 0", c.EATLevel, c.EATLevel >= 0},
		{"TransitionEntropy", "at least 0", c.TransitionEntropy, c.TransitionEntropy >= 0},
		{"RPDIThreshold", "above 1", c.RPDIThreshold, c.RPDIThreshold > 1},
		{"TransitionLevel", "above 0 and at most 1", c.TransitionLevel, c.TransitionLevel > 0 && c.TransitionLevel <= 1},
		{"RPDILambda", "above 1", c.RPDILambda, c.RPDILambda > 1},
		{"ProbeInterval", "at least 1", float64(c.ProbeInterval), c.ProbeInterval >= 1},
		{"MinThink", fmt.Sprintf("below MaxThink, which is %d", c.MaxThink), float64(c.MinThink), c.MinThink < c.MaxThink},
	} {
		if !f.ok || math.IsInf(f.value, 0) {
			return nil, &SignalConfigError{Field: f.name, Text: fmt.Sprintf("%v is not %s", f.value, f.must)}
		}
	}
	warm := min(math.Ceil(4/c.Alpha), math.MaxUint32)
	return &Rules{c: c, warm: uint32(warm)}, nil
}

// Monitor returns the monitor of one request.
func (r *Rules) Monitor() Monitor {
	return Monitor{rules: r, least: r.c.MinThink, most: r.c.MaxThink}
}

// Monitor decides, from the signals of one request, whether its thinking is to
// be ended. It is a value, allocates nothing, and decides once. The zero value
// decides nothing.
type Monitor struct {
	rules   *Rules
	least   uint32 // thinking tokens before which no signal forces
	most    uint32 // thinking tokens at which none is needed
	next    uint32 // thinking tokens from which a probe is due
	above   uint32 // samples of turns that were 1
	decided bool

	pEnd, eat, turns average // turns: of [entropy > TransitionEntropy]
}

// Due says whether ProbeInterval has passed, at that many thinking tokens, since
// the last sample of any signal but SigRPDI. Until then, and after a decision,
// a row that costs something need not be had.
func (m *Monitor) Due(at uint32) bool {
	return m.rules != nil && !m.decided && at >= m.next
}

// Probe takes what was measured at that many thinking tokens, and returns why
// thinking is to end: Converged, Overthinking, HardCap, or NoReason. After a
// reason it returns NoReason for ever: a request is forced once. A signal that
// Check refuses is left out.
//
// A reason needs a sample of this probe: an average that was calm before
// MinThink is looked at again with the first sample after it.
func (m *Monitor) Probe(at uint32, s ...Signal) Reason {
	if m.rules == nil || m.decided {
		return NoReason
	}
	why := NoReason
	for _, x := range s {
		// Of two reasons at once the smaller number is told, in whatever order
		// the signals come.
		if got, _ := m.sample(at, x); got != NoReason && (why == NoReason || got < why) {
			why = got
		}
	}
	if at >= m.most {
		why = HardCap
	}
	m.decided = why != NoReason
	return why
}

// sample takes one signal and says what follows from it alone, and whether it
// was used. The caller has rules and has not decided.
func (m *Monitor) sample(at uint32, s Signal) (why Reason, used bool) {
	if !s.valid() {
		return NoReason, false
	}
	r, x := m.rules, max(float64(s.Value), 0)
	switch s.Name {
	case SigPEnd:
		if !m.pEnd.take(at, r, min(x, 1)) {
			return NoReason, false
		}
		if m.pEnd.calm(r) && m.pEnd.mean >= r.c.PEndLevel {
			why = Converged
		}
	case SigEAT:
		if !m.eat.take(at, r, x) {
			return NoReason, false
		}
		if m.eat.calm(r) && (r.c.EATLevel == 0 || m.eat.mean <= r.c.EATLevel) {
			why = Converged
		}
	case SigEntropy:
		turn := x > r.c.TransitionEntropy
		v := 0.0
		if turn {
			v = 1
		}
		if !m.turns.take(at, r, v) {
			return NoReason, false
		}
		if turn {
			m.above++
		}
		if m.turns.warm(r) && m.turns.mean >= r.c.TransitionLevel && m.indicator() > r.c.RPDIThreshold {
			why = Overthinking
		}
	case SigRPDI:
		if x > r.c.RPDILambda {
			why = Overthinking
		}
	}
	if s.Name != SigRPDI {
		m.next = max(m.next, later(at, r.c.ProbeInterval))
	}
	if at < m.least {
		why = NoReason
	}
	return why, true
}

// indicator is SigRPDIIndicator. Its mean is over samples, not over tokens, and
// above 0 wherever the moving average is.
func (m *Monitor) indicator() float64 {
	return m.turns.mean * float64(m.turns.n) / float64(m.above)
}

// average is the moving average and variance of arXiv 2509.26522:
//
//	M_0 = x_0    M_i = a x_i + (1-a) M_(i-1)
//	V_0 = 0      V_i = a (x_i - M_i)^2 + (1-a) V_(i-1)
type average struct {
	mean     float64
	variance float64
	n        uint32 // samples; never more than tokens
	next     uint32 // thinking tokens from which the next sample is taken
}

// take adds a sample, unless it comes within ProbeInterval of the last.
func (v *average) take(at uint32, r *Rules, x float64) bool {
	if v.n > 0 && at < v.next {
		return false
	}
	v.next = later(at, r.c.ProbeInterval)
	v.n++
	if v.n == 1 {
		v.mean = x
		return true
	}
	// The conversions keep a compiler from fusing the sums, so that every
	// architecture decides alike.
	a := r.c.Alpha
	v.mean = float64(a*x) + float64((1-a)*v.mean)
	d := x - v.mean
	v.variance = float64(a*d*d) + float64((1-a)*v.variance)
	return true
}

// warm says whether the first sample has been followed by enough others.
func (v *average) warm(r *Rules) bool { return v.n > r.warm }

// calm says whether the samples have settled somewhere.
func (v *average) calm(r *Rules) bool { return v.warm(r) && v.variance < r.c.VarianceThreshold }

// later is at+n, without wrapping.
func later(at, n uint32) uint32 {
	if at > math.MaxUint32-n {
		return math.MaxUint32
	}
	return at + n
}
