package measure

import (
	"slices"
	"time"
)

// Quantile is the nearest-rank quantile of d, 0 <= q < 1; 0 of nothing.
func Quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

// Latency writes seconds for people, with about three digits.
func Latency(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(100 * time.Nanosecond).String()
	}
}

// Median is the middle of v, or the mean of the two in the middle; 0 of nothing.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}

// MinMax is the least and the greatest of v; 0 of nothing.
func MinMax(v []float64) (lo, hi float64) {
	if len(v) == 0 {
		return 0, 0
	}
	return slices.Min(v), slices.Max(v)
}

// Bound is the rate that nobody who verifies can exceed: what a plain socket
// carries and what all cores hash, one after the other. 0 where one of them was
// not measured.
func Bound(socket, hash float64, cores int) float64 {
	if socket <= 0 || hash <= 0 {
		return 0
	}
	return 1 / (1/socket + 1/(float64(cores)*hash))
}
