package child

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Restarts of a child that ended: the first at once, later ones after a
// pause that doubles up to maxPause. One that served for settled starts anew.
const (
	firstPause = 250 * time.Millisecond
	maxPause   = 15 * time.Second
	settled    = time.Minute

	// A child that ends within quickDeath of its start without having served, for
	// mostDeaths times in a row, is not started again.
	quickDeath = 30 * time.Second
	mostDeaths = 3
)

// ErrFailed is matched by what another attempt would meet again.
var ErrFailed = errors.New("the program cannot be run")

// Failure says why, and what to do.
type Failure struct {
	Err    error
	Advice string
}

func (f *Failure) Error() string {
	if f.Advice == "" {
		return f.Err.Error()
	}
	return f.Err.Error() + ". What to do: " + f.Advice
}

// Unwrap returns the cause and ErrFailed.
func (f *Failure) Unwrap() []error { return []error{f.Err, ErrFailed} }

// Permanent is an error that another attempt would meet again.
func Permanent(advice string, err error) error { return &Failure{Err: err, Advice: advice} }

// Ours is a fault of this process and not of its child.
type Ours struct{ Err error }

func (e *Ours) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Ours) Unwrap() error { return e.Err }

// Restarts decides whether and when a child that ended is started again.
type Restarts struct {
	Name   string
	Advice func(d *Death) string // what a user can do about it
	Most   time.Duration         // of a pause; 0: maxPause

	pause time.Duration
	quick int // deaths in a row without having served
}

// After a run that ended with err, having served or not, and took so long.
func (r *Restarts) After(err error, served bool, took time.Duration) (time.Duration, *Failure) {
	var failure *Failure
	var ours *Ours
	var death *Death
	switch {
	case errors.As(err, &failure):
		return 0, failure
	case served:
		r.quick = 0
		if took > settled {
			r.pause = 0
		}
	case took < quickDeath && !errors.As(err, &ours):
		if r.quick++; r.quick == mostDeaths {
			failure = &Failure{Err: fmt.Errorf("%s failed %d times in a row before it served: %w", r.Name, r.quick, err)}
			if errors.As(err, &death) {
				failure.Advice = r.Advice(death)
			}
			return 0, failure
		}
	}
	pause := r.pause
	r.pause = min(max(2*r.pause, firstPause), cmp.Or(r.Most, maxPause))
	return pause, nil
}
