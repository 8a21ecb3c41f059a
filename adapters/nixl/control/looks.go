package control

import "time"

const (
	// LookTime is how long a side looks for what comes before it sleeps: an idle processor
	// takes as long to wake.
	LookTime = 60 * time.Microsecond
	// mostSleeps are waits that sleep at once, after some that looked in vain.
	mostSleeps = 64
)

// Looks decides which waits begin with a look: those after one that was worth it. Each one
// in a row that was not makes twice as many of the next waits sleep at once.
type Looks struct{ misses, sleeps int }

// May says whether the wait that begins now is to look first.
func (l *Looks) May() bool {
	if l.sleeps > 0 {
		l.sleeps--
		return false
	}
	return true
}

// Hit is for a look in which something came.
func (l *Looks) Hit() { l.misses = 0 }

// Miss is for one in which nothing did.
func (l *Looks) Miss() {
	if l.sleeps = 2 << l.misses; l.sleeps < mostSleeps {
		l.misses++
	}
}
