package plot

import (
	"math"
	"strconv"
)

// Axis is how values lie along a side of a plot.
type Axis struct {
	Unit  string
	Log   bool // to the base of Base; else linear from 0
	Base  float64
	Every int                  // powers of the base from one grid line to the next; 0: 1
	Ticks []float64            // of each power, the multiples that have a line too; nil: 1
	Wide  bool                 // covers a whole power at least: less would make noise look large
	Label func(float64) string // of a grid line; nil: three digits
}

// Log2 has a grid line at every second power of two.
func Log2(unit string, label func(float64) string) Axis {
	return Axis{Unit: unit, Log: true, Base: 2, Every: 2, Label: label}
}

// Log10 has grid lines at 1, 2 and 5 of every power of ten.
func Log10(unit string) Axis {
	return Axis{Unit: unit, Log: true, Base: 10, Ticks: []float64{1, 2, 5}, Wide: true}
}

// Linear begins at 0.
func Linear(unit string) Axis { return Axis{Unit: unit} }

// scale is an axis that covers some values.
type scale struct {
	Axis
	lo, hi float64 // powers of the base where it is logarithmic
}

func (a Axis) power(v float64) float64 {
	switch a.Base {
	case 2:
		return math.Log2(v)
	case 10:
		return math.Log10(v)
	}
	return math.Log(v) / math.Log(a.Base)
}

// cover makes a scale on which least and most lie. tight: it ends there.
func (a Axis) cover(least, most float64, tight bool) scale {
	if !a.Log {
		step := a.step(most)
		return scale{a, 0, math.Max(math.Ceil(most/step-1e-9), 1) * step}
	}
	lo, hi := a.power(least), a.power(most)
	switch {
	case tight && lo == hi:
		return scale{a, lo - 2, hi + 2}
	case tight:
		return scale{a, lo, hi}
	}
	below, above := math.Floor(lo), math.Ceil(hi)
	for _, m := range a.ticks() {
		if e := math.Floor(lo) + a.power(m); e <= lo {
			below = e
		}
		if e := math.Floor(hi) + a.power(m); e >= hi {
			above = min(above, e)
		}
	}
	if a.Wide && above-below < 1 || above == below {
		above = below + 1
	}
	return scale{a, below, above}
}

// at is where a value lies: 0 at the scale's least, 1 at its most.
func (s scale) at(v float64) float64 {
	if s.Log {
		v = s.power(v)
	}
	return (v - s.lo) / (s.hi - s.lo)
}

// lines are the values that have a grid line.
func (s scale) lines() (v []float64) {
	if !s.Log {
		step := s.step(s.hi)
		for i := 0; float64(i)*step <= s.hi+step/1e6; i++ {
			v = append(v, float64(i)*step)
		}
		return v
	}
	from, every := math.Floor(s.lo), float64(max(s.Every, 1))
	if s.Ticks == nil {
		from = math.Ceil(s.lo)
	}
	for e := from; e <= s.hi; e += every {
		for _, m := range s.ticks() {
			if at := e + s.power(m); at >= s.lo-1e-9 && at <= s.hi+1e-9 {
				v = append(v, m*math.Pow(s.Base, e))
			}
		}
	}
	return v
}

func (a Axis) ticks() []float64 {
	if a.Ticks == nil {
		return []float64{1}
	}
	return a.Ticks
}

// step is the distance of grid lines on a linear axis: 1, 2 or 5 of a power of ten, so
// that there are four to ten of them.
func (Axis) step(most float64) float64 {
	if most <= 0 || math.IsInf(most, 0) || math.IsNaN(most) {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(most)))
	for _, m := range []float64{0.1, 0.2, 0.5} {
		if most/(p*m) <= 10 {
			return p * m
		}
	}
	return p
}

func (a Axis) label(v float64) string {
	if a.Label != nil {
		return a.Label(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
