package think

import (
	"slices"
	"time"
)

// histogram counts durations by the microsecond: a run has a million gaps between tokens,
// and to keep and sort them all would cost more than the run.
type histogram struct {
	n     int
	fine  []uint32 // by microsecond
	above []time.Duration
}

// histogramEnd is where values are kept one by one.
const histogramEnd = 1 << 18 // µs, a quarter of a second

func (h *histogram) add(d time.Duration) {
	h.n++
	us := int((d + time.Microsecond/2) / time.Microsecond)
	if us >= histogramEnd {
		h.above = append(h.above, d)
		return
	}
	if h.fine == nil {
		h.fine = make([]uint32, histogramEnd)
	}
	h.fine[max(us, 0)]++
}

// percentiles are by nearest rank, to a microsecond.
func (h *histogram) percentiles() Percentiles {
	slices.Sort(h.above)
	var out [3]float64
	at, seen := -1, 0
	for i, p := range []float64{.50, .95, .99} {
		want := rank(h.n, p)
		for at+1 < len(h.fine) && seen < want {
			at++
			seen += int(h.fine[at])
		}
		switch {
		case h.n == 0:
		case seen >= want:
			out[i] = float64(at) / 1000
		default:
			out[i] = ms(h.above[want-seen-1])
		}
	}
	return Percentiles{round(out[0]), round(out[1]), round(out[2])}
}
