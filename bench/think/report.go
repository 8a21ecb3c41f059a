package think

import (
	"fmt"
	"strconv"

	"meridian/bench/plot"
)

// Report is what a run found. Nothing in it depends on the machine.
type Report struct {
	Workload      Workload     `json:"workload"`
	Cost          Cost         `json:"step_cost"`
	Slots         int          `json:"slots"`
	StepTokens    int          `json:"step_tokens"`
	KVTokens      int          `json:"kv_tokens"`
	BlockTokens   int          `json:"block_tokens"`
	Requests      int          `json:"requests"`
	Warm          int          `json:"not_counted"`
	Seeds         int          `json:"seeds"`
	Seed          uint64       `json:"first_seed"`
	FirstAnswerMS float64      `json:"slo_first_answer_ms"`
	ThinkPaceMS   float64      `json:"slo_think_token_ms"`
	OutputPaceMS  float64      `json:"slo_output_token_ms"`
	BoundMS       float64      `json:"late_after_ms"`
	Capacity      float64      `json:"capacity_rps,omitempty"` // of the first arm
	Sanity        []Sanity     `json:"sanity"`
	Arms          []Arm        `json:"arms"`
	Loads         []LoadReport `json:"loads"`
}

// LoadReport is of one rate.
type LoadReport struct {
	Load float64     `json:"load,omitempty"` // of the capacity; 0: the rate was given
	Rate float64     `json:"rate_rps"`
	Arms []ArmReport `json:"arms"`
}

// ArmReport is means over the seeds, and the change against the first arm, paired seed by
// seed, of what the verdict is about.
type ArmReport struct {
	Name           string    `json:"name"`
	TTFT           Interval  `json:"ttft_p95_ms"`
	ChatAnswer     Interval  `json:"chat_answer_p95_ms"`
	ReasonAnswer   Interval  `json:"reason_answer_p95_ms"`
	TTOT           Interval  `json:"ttot_p95_ms"`
	ITL            Interval  `json:"itl_p99_ms"`
	EndToEnd       Interval  `json:"end_to_end_p95_ms"`
	Late           Interval  `json:"late_share"`
	Goodput        Interval  `json:"goodput_share"`
	Recomputed     Interval  `json:"recomputed_tokens"`
	Offloaded      Interval  `json:"offloaded_bytes"`
	ChatChange     Interval  `json:"chat_answer_change"`
	ReasonChange   Interval  `json:"reason_answer_change"`
	EndToEndChange Interval  `json:"end_to_end_change"`
	Seeds          []Figures `json:"by_seed"`
}

func summarise(name string, base, f []Figures) ArmReport {
	of := func(get func(*Figures) float64) Interval {
		var v []float64
		for i := range f {
			v = append(v, get(&f[i]))
		}
		return interval(v)
	}
	chat := func(x *Figures) float64 { return x.ChatAnswer.P95 }
	reason := func(x *Figures) float64 { return x.ReasonAnswer.P95 }
	end := func(x *Figures) float64 { return x.EndToEnd.P95 }
	return ArmReport{
		Name: name, TTFT: of(func(x *Figures) float64 { return x.TTFT.P95 }), ChatAnswer: of(chat), ReasonAnswer: of(reason),
		TTOT: of(func(x *Figures) float64 { return x.TTOT.P95 }), ITL: of(func(x *Figures) float64 { return x.ITL.P99 }), EndToEnd: of(end),
		Late: of(func(x *Figures) float64 { return x.Late }), Goodput: of(func(x *Figures) float64 { return x.Goodput }),
		Recomputed: of(func(x *Figures) float64 { return float64(x.Recomputed) }), Offloaded: of(func(x *Figures) float64 { return float64(x.OffloadedBytes) }),
		ChatChange: paired(base, f, chat), ReasonChange: paired(base, f, reason), EndToEndChange: paired(base, f, end), Seeds: f,
	}
}

// Rows is the report for people.
func (r Report) Rows() (head []string, rows [][]string) {
	head = []string{"load", "arm", "chat", "thinkers", "late", "whole", "anew"}
	for _, l := range r.Loads {
		name := fmt.Sprintf("%.2f/s", l.Rate)
		if l.Load > 0 {
			name = strconv.FormatFloat(l.Load, 'f', 2, 64)
		}
		for i, a := range l.Arms {
			of := func(v, change Interval) string {
				s := fmt.Sprintf("%.2f s", v.Mean/1000)
				switch {
				case i > 0 && r.Seeds < 2: // no interval of one value
					s += fmt.Sprintf(" (%+.0f %%)", 100*change.Mean)
				case i > 0:
					s += fmt.Sprintf(" (%+.0f±%.0f %%)", 100*change.Mean, 50*(change.High-change.Low))
				}
				return s
			}
			rows = append(rows, []string{name, a.Name, of(a.ChatAnswer, a.ChatChange), of(a.ReasonAnswer, a.ReasonChange),
				fmt.Sprintf("%.1f %%", 100*a.Late.Mean), fmt.Sprintf("%.1f s", a.EndToEnd.Mean/1000), fmt.Sprintf("%.0f k", a.Recomputed.Mean/1000)})
		}
	}
	return head, rows
}

// Note says what the figures are.
func (r Report) Note() string {
	of, spread := fmt.Sprintf("means of %d seeds", r.Seeds), " with a 95 % interval"
	if r.Seeds < 2 {
		of, spread = "one seed", "; of one seed there is no interval"
	}
	note := fmt.Sprintf("Virtual time, %s of %d requests, %s workload, step costs %s, %d slots, %d KV tokens. "+
		"chat and thinkers: p95 from arrival to the first visible token, and its change against %s%s. "+
		"late: visible tokens over %.0f ms after the one before, of readers at %.0f ms a token. whole: p95 from arrival to the last token. anew: tokens computed again.",
		of, r.Requests, r.Workload.Name, r.Cost.Name, r.Slots, r.KVTokens, r.Arms[0].Name, spread, r.BoundMS, r.OutputPaceMS)
	for _, s := range r.Sanity {
		note += fmt.Sprintf(" M/D/1 at %v: %+.1f %% of theory.", s.Utilisation, 100*s.Error)
	}
	return note
}

// Plots are the report's pictures by file name: of the first seed, at each load.
func (r Report) Plots() map[string]string {
	out := map[string]string{}
	for _, l := range r.Loads {
		name := fmt.Sprintf("-%s-%.2f.svg", r.Workload.Name, l.Load)
		if l.Load == 0 {
			name = fmt.Sprintf("-%s-%.2frps.svg", r.Workload.Name, l.Rate)
		}
		note := fmt.Sprintf("%s workload, %.2f requests a second, seed %d", r.Workload.Name, l.Rate, r.Seed)
		cdf := func(title string, of func(*Figures) []float64) string {
			p := plot.Plot{Title: title, Note: note, X: plot.Log10("seconds"), Y: plot.Linear("share of requests")}
			for i, a := range l.Arms {
				p.Lines = append(p.Lines, plot.Line{Name: a.Name, Color: 2 * i, Bare: true, Points: distribution(of(&a.Seeds[0]))})
			}
			return p.SVG()
		}
		depth := plot.Plot{Title: "Requests that wait", Note: note, X: plot.Linear("seconds"), Y: plot.Linear("requests")}
		for i, a := range l.Arms {
			line := plot.Line{Name: a.Name, Color: 2 * i, Bare: true}
			for _, d := range a.Seeds[0].depth {
				line.Points = append(line.Points, plot.Point{X: float64(d.second), Y: float64(d.waiting)})
			}
			depth.Lines = append(depth.Lines, line)
		}
		for file, svg := range map[string]string{
			"chat":   cdf("First visible token of who does not think", func(f *Figures) []float64 { return f.chat }),
			"reason": cdf("First visible token of who thinks", func(f *Figures) []float64 { return f.reason }),
			"queue":  depth.SVG(),
		} {
			if svg != "" {
				out[file+name] = svg
			}
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
