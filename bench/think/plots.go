package think

import (
	"fmt"

	"meridian/bench/plot"
)

// Plots are the report's pictures by file name: of the first seed, at each load.
func (r Report) Plots() map[string]string {
	out := map[string]string{}
	for i := range r.Loads {
		l := &r.Loads[i]
		d := drawer{arms: l.Arms, note: fmt.Sprintf("%s workload, %.2f requests a second, seed %d", r.Workload.Name, l.Rate, r.Seeds[0])}
		for file, svg := range map[string]string{
			"ttft":   d.cdf("Time to the first token", func(f *Figures) []float64 { return f.ttft }),
			"ttot":   d.cdf("From the end of thinking to the first visible token", func(f *Figures) []float64 { return f.ttot }),
			"chat":   d.cdf("First visible token of who does not think", func(f *Figures) []float64 { return f.chat }),
			"reason": d.cdf("First visible token of who thinks", func(f *Figures) []float64 { return f.reason }),
			"itl":    d.itl(),
			"queue":  d.queue(),
		} {
			if svg != "" {
				out[fmt.Sprintf("%s-%s-%s.svg", file, r.Workload.Name, l.name())] = svg
			}
		}
		for k, a := range l.Arms {
			if svg := d.tiers(&l.Arms[k]); svg != "" {
				out[fmt.Sprintf("tiers-%s-%s-%s.svg", r.Workload.Name, l.name(), a.Name)] = svg
			}
		}
	}
	return out
}

// drawer draws the arms of a load.
type drawer struct {
	arms []ArmReport
	note string
}

// plot has a line for each arm whose first seed's course was kept.
func (d *drawer) plot(p plot.Plot, of func(*Figures) []plot.Point) string {
	p.Note = d.note
	for i, a := range d.arms {
		if len(a.Seeds) > 0 && a.Seeds[0].course != nil {
			p.Lines = append(p.Lines, plot.Line{Name: a.Name, Color: 2 * i, Bare: true, Points: of(a.Seeds[0])})
		}
	}
	return p.SVG()
}

func (d *drawer) cdf(title string, of func(*Figures) []float64) string {
	return d.plot(plot.Plot{Title: title, X: plot.Log10("seconds"), Y: plot.Linear("share of requests")},
		func(f *Figures) []plot.Point { return distribution(of(f)) })
}

func (d *drawer) itl() string {
	return d.plot(plot.Plot{Title: "Time between visible tokens, p95", X: plot.Linear("seconds"), Y: plot.Log10("ms")},
		func(f *Figures) (p []plot.Point) {
			at, v := f.course.p95()
			for i := range at {
				p = append(p, plot.Point{X: at[i], Y: v[i]})
			}
			return p
		})
}

func (d *drawer) queue() string {
	return d.plot(plot.Plot{Title: "Requests that wait", X: plot.Linear("seconds"), Y: plot.Linear("requests")},
		func(f *Figures) (p []plot.Point) {
			for _, x := range f.course.depth {
				p = append(p, plot.Point{X: float64(x.second), Y: float64(x.waiting)})
			}
			return thinned(p)
		})
}

// tiers is what the blocks of the cache are in the course of an arm: one picture an arm, as
// what matters is their share of one memory.
func (d *drawer) tiers(a *ArmReport) string {
	if len(a.Seeds) == 0 || a.Seeds[0].course == nil {
		return ""
	}
	p := plot.Plot{Title: "Blocks of the cache: " + a.Name, Note: d.note, X: plot.Linear("seconds"), Y: plot.Linear("blocks")}
	for i, x := range []struct {
		name string
		of   func(Tiers) int
	}{
		{"prompts, answers", func(t Tiers) int { return t.Output }}, {"thinking", func(t Tiers) int { return t.Thinking }},
		{"thinking, over", func(t Tiers) int { return t.Thought }}, {"idle", func(t Tiers) int { return t.Idle }},
	} {
		line := plot.Line{Name: x.name, Color: 2 * i, Bare: true}
		for _, t := range a.Seeds[0].course.tiers {
			line.Points = append(line.Points, plot.Point{X: float64(t.Second), Y: float64(x.of(t))})
		}
		line.Points = thinned(line.Points)
		p.Lines = append(p.Lines, line)
	}
	return p.SVG()
}

// coursePoints is how many points of a course are drawn: about two a pixel of the width.
const coursePoints = 600

// thinned leaves the lowest and the highest point of each part of a long course, so that
// no peak is lost.
func thinned(p []plot.Point) []plot.Point {
	if len(p) <= coursePoints {
		return p
	}
	var out []plot.Point
	parts := coursePoints / 2
	for k := range parts {
		part := p[k*len(p)/parts : (k+1)*len(p)/parts]
		low, high := part[0], part[0]
		for _, q := range part {
			if q.Y < low.Y {
				low = q
			}
			if q.Y > high.Y {
				high = q
			}
		}
		if low.X > high.X {
			low, high = high, low
		}
		if out = append(out, low); low != high {
			out = append(out, high)
		}
	}
	return out
}

// cdfPoints is how many points of a distribution are drawn.
const cdfPoints = 200

// distribution is the share of requests, by time in seconds, of sorted times in ms.
func distribution(v []float64) (p []plot.Point) {
	for k := 1; k <= cdfPoints && len(v) > 0; k++ {
		share := float64(k) / cdfPoints
		p = append(p, plot.Point{X: percentile(v, share) / 1000, Y: share})
	}
	return p
}
