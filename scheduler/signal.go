package scheduler

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// SignalName says what was measured. The numbers are stable.
type SignalName uint8

// The signals. Several of them go by one name in the literature; here each has
// its own.
const (
	// SigEntropy is the entropy of the next token, in nats: [Entropy].
	SigEntropy SignalName = 1
	// SigPEnd is the probability of the next token being an end id: [PEnd].
	SigPEnd SignalName = 2
	// SigEAT is the entropy, in nats, of the token that would follow an end
	// marker and a newline appended now (arXiv 2509.26522). Its value is
	// [Entropy] of one extra row, which the model must be run for.
	SigEAT SignalName = 3
	// SigRPDI is the mean entropy of the last tokens over that of all tokens
	// (arXiv 2603.14251): [RPDI].
	SigRPDI SignalName = 4
	// SigRPDIIndicator is the moving average of [entropy > threshold] over its
	// running mean. A Monitor makes it of SigEntropy; it is nothing to send.
	SigRPDIIndicator SignalName = 5

	signalNames = 6
)

var nameOfSignal = [signalNames]string{"none", "entropy", "p_end", "eat", "rpdi", "rpdi_indicator"}

// String is the signal's name as metric labels use it.
func (n SignalName) String() string {
	if n < signalNames {
		return nameOfSignal[n]
	}
	return "signal(" + strconv.Itoa(int(n)) + ")"
}

// Signal is one measurement of a request that thinks.
type Signal struct {
	Name  SignalName
	Value float32
}

// Check returns a *SignalError for a value that the signal cannot have, and for
// a name that is nothing to send.
func (s Signal) Check() error {
	if s.valid() {
		return nil
	}
	return &SignalError{Signal: s.Name, Text: fmt.Sprintf("%v is not a value of it", s.Value)}
}

// valid is false for NaN, for no comparison with it holds.
func (s Signal) valid() bool {
	switch s.Name {
	case SigEntropy, SigEAT:
		return s.Value >= -slack && s.Value <= maxNats
	case SigRPDI:
		return s.Value >= -slack && s.Value <= math.MaxFloat32
	case SigPEnd:
		return s.Value >= -slack && s.Value <= 1+slack
	}
	return false
}

// SignalError says why a signal cannot be had from what was given.
type SignalError struct {
	Signal SignalName
	Text   string // what is wrong, with the values
}

// Error implements error.
func (e *SignalError) Error() string { return e.Signal.String() + ": " + e.Text }

// maxNats is more than the entropy of any vocabulary: that of e^64 tokens.
const maxNats = 64

// What rounding may do to a row of float32, or of a shorter type before it.
const (
	slack     = 1e-3 // to one value
	massSlack = 1e-2 // to the sum of a whole row
)

// Entropy is the entropy in nats of a whole distribution, given as natural
// log-probabilities in any order. A row whose probabilities do not sum to 1 (to
// a hundredth) is an error and not a small entropy: for the first of many, take
// EntropyLowerBound. Minus infinity is a probability of 0.
//
// Errors of this and the functions below are *SignalError.
func Entropy(logprobs []float32) (nats float64, err error) {
	w, err := whole(SigEntropy, logprobs)
	if err != nil {
		return 0, err
	}
	return w.entropy(), nil
}

// EntropyOfLogits is the entropy in nats of softmax(logits).
func EntropyOfLogits(logits []float32) (nats float64, err error) {
	m, err := highest(SigEntropy, logits)
	if err != nil {
		return 0, err
	}
	var w weights
	for _, x := range logits {
		w.add(float64(x) - m)
	}
	return w.entropy(), nil
}

// EntropyLowerBound is what is known of the entropy when only the most probable
// tokens are: no distribution with these log-probabilities at its top has less.
// mass is the probability they cover. The bound takes each of the others for as
// probable as the least one listed, so it is exact for a uniform distribution
// and for a list of all tokens; rounding of float32 moves it by up to 1e-4.
//
// Some engines append the sampled token to the K best. It must be left out
// where it is not one of them.
func EntropyLowerBound(top []float32) (nats, mass float64, err error) {
	w, least, err := partial(SigEntropy, top)
	if err != nil {
		return 0, 0, err
	}
	nats, mass = -w.zd, min(w.z, 1)
	if rest := 1 - mass; rest > 0 && least > 0 {
		nats -= rest * math.Log(min(least, rest))
	}
	return max(nats, 0), mass, nil
}

// PEnd is the probability, of a whole distribution of log-probabilities by
// token id, that the next token is one of the end ids. An end marker of several
// tokens is represented by its first.
func PEnd(logprobs []float32, end []int32) (float64, error) {
	w, err := whole(SigPEnd, logprobs)
	if err != nil {
		return 0, err
	}
	return endShare(logprobs, end, 0, w.z)
}

// PEndOfLogits is the same for softmax(logits).
func PEndOfLogits(logits []float32, end []int32) (float64, error) {
	m, err := highest(SigPEnd, logits)
	if err != nil {
		return 0, err
	}
	var z float64
	for _, x := range logits {
		z += math.Exp(float64(x) - m)
	}
	return endShare(logits, end, m, z)
}

// endShare is the share of the end ids in z, which is the sum of e^(x-m).
func endShare(row []float32, end []int32, m, z float64) (float64, error) {
	if len(end) == 0 {
		return 0, &SignalError{SigPEnd, "no end ids"}
	}
	var ends float64
	for i, id := range end {
		if id < 0 || int(id) >= len(row) {
			return 0, &SignalError{SigPEnd, fmt.Sprintf("end id %d in a row of %d", id, len(row))}
		}
		if !slices.Contains(end[:i], id) {
			ends += math.Exp(float64(row[id]) - m)
		}
	}
	return min(ends/z, 1), nil
}

// PEndBounds is what is known of PEnd when only the most probable tokens are:
// top[i] is the log-probability of ids[i]. An end id that is not listed may
// have as much as the least listed one, all of them together no more than what
// the list leaves. What is said of the sampled token above holds here too.
func PEndBounds(ids []int32, top []float32, end []int32) (low, high float64, err error) {
	if len(ids) != len(top) {
		return 0, 0, &SignalError{SigPEnd, fmt.Sprintf("%d ids, %d log-probabilities", len(ids), len(top))}
	}
	if len(end) == 0 {
		return 0, 0, &SignalError{SigPEnd, "no end ids"}
	}
	w, least, err := partial(SigPEnd, top)
	if err != nil {
		return 0, 0, err
	}
	missing := 0
	for i, id := range end {
		if slices.Contains(end[:i], id) {
			continue
		}
		at := slices.Index(ids, id)
		if at < 0 {
			missing++
			continue
		}
		if slices.Contains(ids[at+1:], id) {
			return 0, 0, &SignalError{SigPEnd, fmt.Sprintf("end id %d is listed twice", id)}
		}
		low += math.Exp(float64(top[at]))
	}
	high = low + min(float64(missing)*least, max(1-w.z, 0))
	return min(low, 1), min(high, 1), nil
}

// highest returns the largest of a row, which softmax is shifted by.
func highest(of SignalName, row []float32) (float64, error) {
	if len(row) == 0 {
		return 0, &SignalError{of, "an empty row"}
	}
	m := float32(math.Inf(-1))
	for i, x := range row {
		if x != x || x > math.MaxFloat32 {
			return 0, &SignalError{of, fmt.Sprintf("value %d of the row is %v", i, x)}
		}
		m = max(m, x)
	}
	if m < -math.MaxFloat32 {
		return 0, &SignalError{of, "every value of the row is -Inf"}
	}
	return float64(m), nil
}

// weights are the sums over a row that its entropy is made of.
type weights struct {
	z  float64 // of e^d
	zd float64 // of e^d d
}

func (w *weights) add(d float64) {
	// e^-800 is 0 in float64, and 0 times minus infinity is not.
	if d > -800 {
		e := math.Exp(d)
		w.z += e
		w.zd += e * d
	}
}

// entropy is ln Z - sum(e^d d)/Z, which does not depend on what d was shifted
// by.
func (w *weights) entropy() float64 { return max(math.Log(w.z)-w.zd/w.z, 0) }

// total sums up log-probabilities, and returns the least.
func total(of SignalName, logprobs []float32) (w weights, least float32, err error) {
	if len(logprobs) == 0 {
		return w, 0, &SignalError{of, "no log-probabilities"}
	}
	for i, x := range logprobs {
		if !(x <= slack) {
			return weights{}, 0, &SignalError{of, fmt.Sprintf("log-probability %d is %v", i, x)}
		}
		if x < least {
			least = x
		}
		w.add(float64(x))
	}
	return w, least, nil
}

// whole sums up log-probabilities that must be those of all tokens.
func whole(of SignalName, logprobs []float32) (weights, error) {
	w, _, err := total(of, logprobs)
	if err == nil && math.Abs(w.z-1) > massSlack {
		err = &SignalError{of, fmt.Sprintf("the probabilities sum to %.4g", w.z)}
	}
	return w, err
}

// partial sums up log-probabilities that must be those of the most probable
// tokens, and returns the probability of the least.
func partial(of SignalName, top []float32) (w weights, least float64, err error) {
	w, lowest, err := total(of, top)
	if err != nil {
		return w, 0, err
	}
	least = math.Exp(float64(lowest))
	switch {
	case w.z == 0 || w.z > 1+massSlack:
		err = &SignalError{of, fmt.Sprintf("the probabilities sum to %.4g", w.z)}
	case least == 0 && w.z < 1-massSlack:
		err = &SignalError{of, fmt.Sprintf("a token of probability 0 is listed while %.4g are not", 1-w.z)}
	}
	return w, least, err
}
