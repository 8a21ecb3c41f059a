package control

import (
	"sync/atomic"
	"time"
)

// Pace is how fast the transfers of one direction to one peer go, to guess how long one
// takes.
type Pace struct {
	mib atomic.Int64 // nanoseconds of a MiB, a mean of the last transfers; 0: none was made
}

// paceWeight is that of the mean, to 1 of the last transfer.
const paceWeight = 7

// Took takes what a transfer has taken; one that was held up counts for no more than twice
// the mean.
func (p *Pace) Took(bytes uint64, d time.Duration) {
	now := int64(float64(d) / float64(bytes) * (1 << 20))
	if was := p.mib.Load(); was > 0 {
		now = (was*paceWeight + min(now, 2*was)) / (paceWeight + 1)
	}
	p.mib.Store(max(now, 1))
}

// Takes is how long a transfer should take; false: nobody knows.
func (p *Pace) Takes(bytes uint64) (time.Duration, bool) {
	mib := p.mib.Load()
	return time.Duration(float64(mib) * float64(bytes) / (1 << 20)), mib > 0
}
