package think

// PercentilesOf sorts times in ms and takes their percentiles, for a report of times that
// were measured.
func PercentilesOf(v []float64) Percentiles { return percentiles(v) }

// Paired is the relative change from base to arm, pair by pair, as a mean with its 95 %
// interval; pairs of which base is 0 are left out.
func Paired(base, arm []float64) Interval {
	var d []float64
	for i, b := range base {
		if b > 0 {
			d = append(d, arm[i]/b-1)
		}
	}
	return interval(d)
}
