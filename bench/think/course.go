package think

import (
	"slices"
	"time"

	"meridian/scheduler/queue"
)

// course is what a run looked like over time, for the plots.
type course struct {
	depth []depth
	tiers []Tiers
	gaps  []gap
	end   time.Duration
}

// depth is how many requests waited in a second of virtual time.
type depth struct{ second, waiting int }

// gap is one between two visible tokens, as they were made.
type gap struct {
	at float32 // seconds
	ms float32
}

func (c *course) sample(now time.Duration, s queue.Stats, tiers func(second int) Tiers) {
	c.end = now
	if at := int(now / time.Second); len(c.depth) == 0 || c.depth[len(c.depth)-1].second < at {
		c.depth = append(c.depth, depth{at, s.Waiting})
		c.tiers = append(c.tiers, tiers(at))
	}
}

func (c *course) gap(now, took time.Duration) {
	c.gaps = append(c.gaps, gap{float32(now.Seconds()), float32(ms(took))})
}

// windows are the parts of a run whose gaps are shown as one point.
const windows = 120

// p95 is that of the gaps in each window, by its middle in seconds. Gaps are in order of
// time.
func (c *course) p95() (at, ms []float64) {
	width := c.end.Seconds() / windows
	for k, from := 0, 0; k < windows && from < len(c.gaps); k++ {
		var v []float64
		for from < len(c.gaps) && (float64(c.gaps[from].at) < float64(k+1)*width || k == windows-1) {
			v = append(v, float64(c.gaps[from].ms))
			from++
		}
		if len(v) > 0 {
			slices.Sort(v)
			at, ms = append(at, (float64(k)+0.5)*width), append(ms, percentile(v, .95))
		}
	}
	return at, ms
}
