package scheduler

import "fmt"

// MaxRPDIWindow is the window W of the paper, and the largest there is.
const MaxRPDIWindow = 512

// RPDI follows the entropies of one request's thinking tokens and makes SigRPDI
// of them (arXiv 2603.14251): the mean of the last W over the mean of all. The
// zero value has the W of the paper. It is a value of 2 KiB and allocates
// nothing.
type RPDI struct {
	ring   [MaxRPDIWindow]float32
	window uint64 // W; 0: MaxRPDIWindow
	n      uint64 // tokens
	recent float64
	all    float64
}

// NewRPDI returns an RPDI with a window of that many tokens. One that is not
// between 1 and MaxRPDIWindow is a *SignalError.
func NewRPDI(window int) (RPDI, error) {
	if window < 1 || window > MaxRPDIWindow {
		return RPDI{}, &SignalError{SigRPDI, fmt.Sprintf("a window of %d tokens, not between 1 and %d", window, MaxRPDIWindow)}
	}
	return RPDI{window: uint64(window)}, nil
}

// Token takes the entropy of the next thinking token. The signal is there, and
// ok true, at the end of a sentence once a whole window has been seen, unless
// no token has had any entropy. A value that no entropy has is a *SignalError
// and changes nothing.
func (r *RPDI) Token(nats float32, sentenceEnd bool) (rpdi float64, ok bool, err error) {
	if s := (Signal{SigEntropy, nats}); !s.valid() {
		return 0, false, s.Check()
	}
	nats = max(nats, 0)
	w := r.window
	if w == 0 {
		w = MaxRPDIWindow
	}
	old := &r.ring[r.n%w]
	r.recent += float64(nats) - float64(*old)
	r.all += float64(nats)
	*old = nats
	r.n++
	if !sentenceEnd || r.n < w || r.all <= 0 {
		return 0, false, nil
	}
	return max(r.recent, 0) / float64(w) / (r.all / float64(r.n)), true, nil
}
