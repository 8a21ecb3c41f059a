package measure

import (
	"syscall"
	"time"
)

// Ran is where a run that does not depend on the machine was done, and how long it took:
// what stands in a file beside its report.
type Ran struct {
	Host
	Version      string    `json:"version"`
	Began        time.Time `json:"began"`
	WallS        float64   `json:"wall_s"`
	ProcessorS   float64   `json:"processor_s"` // of this process, both kinds
	began        time.Time
	processorUse time.Duration
}

// Begin starts to measure.
func Begin() *Ran { return &Ran{began: time.Now(), processorUse: processor()} }

// End is what has passed since.
func (r *Ran) End(version string) Ran {
	return Ran{Host: ThisHost(), Version: version, Began: r.began.UTC().Truncate(time.Second), WallS: time.Since(r.began).Seconds(), ProcessorS: (processor() - r.processorUse).Seconds()}
}

// processor is the time that this process has had.
func processor() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
