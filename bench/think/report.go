package think

import (
	"fmt"
	"math"
	"strconv"
)

// Report is what a run found. Nothing in it depends on the machine.
type Report struct {
	Interrupted   string       `json:"interrupted,omitempty"` // why it is not the whole report
	Mode          string       `json:"mode"`
	Workload      Workload     `json:"workload"`
	Cost          Cost         `json:"step_cost"`
	Slots         int          `json:"slots"`
	StepTokens    int          `json:"step_tokens"`
	KVTokens      int          `json:"kv_tokens"`
	BlockTokens   int          `json:"block_tokens"`
	Requests      int          `json:"requests,omitempty"`   // of a seed
	DurationS     float64      `json:"duration_s,omitempty"` // of arrivals, in place of requests
	Warm          string       `json:"not_counted"`          // of a seed's requests, from the first on
	Seeds         []uint64     `json:"seeds"`
	FirstAnswerMS float64      `json:"slo_first_answer_ms"`
	ThinkPaceMS   float64      `json:"slo_think_token_ms"`
	OutputPaceMS  float64      `json:"slo_output_token_ms"`
	BoundMS       float64      `json:"late_after_ms"`
	Capacity      float64      `json:"capacity_rps,omitempty"` // of the first arm
	Sanity        []Sanity     `json:"sanity"`
	Arms          []Arm        `json:"arms"`
	Loads         []LoadReport `json:"loads"`
	Verdict       *Verdict     `json:"verdict,omitempty"` // nil: nothing to judge by
}

// SyntheticReplay is the mode of a report in virtual time.
const SyntheticReplay = "synthetic-replay"

// LoadReport is of one rate.
type LoadReport struct {
	Load  float64     `json:"load,omitempty"` // of the capacity; 0: the rate was given
	Rate  float64     `json:"rate_rps"`
	Seeds int         `json:"seeds"` // that every arm has played
	Arms  []ArmReport `json:"arms"`  // forcing is off: all decode the same tokens
	// Forced are arms that cut thinking, and decode fewer tokens. They are compared with the
	// first of Arms.
	Forced []ArmReport `json:"forced,omitempty"`
}

// ArmReport is means over the seeds, and the change against the first arm, paired seed by
// seed, of what the verdict is about.
type ArmReport struct {
	Name      string     `json:"name"`
	Means     []Mean     `json:"means"`
	Changes   []Change   `json:"changes,omitempty"` // against the first arm
	Tokens    uint64     `json:"decoded_tokens"`    // of all seeds
	ForceRate *Forced    `json:"force_rate,omitempty"`
	Seeds     []*Figures `json:"by_seed"`
}

// Mean is of one figure.
type Mean struct {
	Figure string `json:"figure"`
	Interval
}

// Change is of one figure that a verdict is about.
type Change struct {
	Figure string `json:"figure"`
	Points bool   `json:"points,omitempty"` // it is a difference of shares; else relative
	Interval
	Pairs int    `json:"pairs"` // seeds that are compared
	Says  string `json:"says"`  // Better, Worse, Same, Unclear or Absent
}

// What a change says at 95 %.
const (
	Better  = "better"
	Worse   = "worse"
	Same    = "same"        // in every seed
	Unclear = "cannot tell" // the interval has no change in it, or there is none
	Absent  = "absent"      // nothing to compare: no request has this figure
)

// figure is one of the report's.
type figure struct {
	name string
	of   func(*Figures) float64
}

// figures that are shown as means, in the order of the report.
var figures = []figure{
	{"ttft_p50_ms", func(f *Figures) float64 { return f.TTFT.P50 }},
	{"ttft_p95_ms", func(f *Figures) float64 { return f.TTFT.P95 }},
	{"ttft_p99_ms", func(f *Figures) float64 { return f.TTFT.P99 }},
	{"ttot_end_tag_p50_ms", func(f *Figures) float64 { return f.TTOT.P50 }},
	{"ttot_end_tag_p95_ms", func(f *Figures) float64 { return f.TTOT.P95 }},
	{"ttot_end_tag_p99_ms", func(f *Figures) float64 { return f.TTOT.P99 }},
	{"ttot_arrival_p50_ms", func(f *Figures) float64 { return f.Answer.P50 }},
	{"ttot_arrival_p95_ms", func(f *Figures) float64 { return f.Answer.P95 }},
	{"ttot_arrival_p99_ms", func(f *Figures) float64 { return f.Answer.P99 }},
	{"chat_answer_p95_ms", func(f *Figures) float64 { return f.ChatAnswer.P95 }},
	{"reason_answer_p95_ms", func(f *Figures) float64 { return f.ReasonAnswer.P95 }},
	{"output_itl_p50_ms", func(f *Figures) float64 { return f.ITL.P50 }},
	{"output_itl_p95_ms", func(f *Figures) float64 { return f.ITL.P95 }},
	{"output_itl_p99_ms", func(f *Figures) float64 { return f.ITL.P99 }},
	{"read_itl_p99_ms", func(f *Figures) float64 { return f.ReadITL.P99 }},
	{"late_share", func(f *Figures) float64 { return f.Late }},
	{"end_to_end_p95_ms", func(f *Figures) float64 { return f.EndToEnd.P95 }},
	{"think_tokens_mean", func(f *Figures) float64 { return f.ThinkMean }},
	{"think_tokens_p95", func(f *Figures) float64 { return f.ThinkP95 }},
	{"first_answer_met_share", func(f *Figures) float64 { return f.FirstMet }},
	{"itl_met_share", func(f *Figures) float64 { return f.ITLMet }},
	{"goodput_share", func(f *Figures) float64 { return f.Goodput }},
	{"goodput_rps", func(f *Figures) float64 { return f.GoodputRate }},
	{"recomputed_tokens", func(f *Figures) float64 { return float64(f.Recomputed) }},
	{"prefix_hit_tokens", func(f *Figures) float64 { return float64(f.HitTokens) }},
	{"output_critical_eviction_events", func(f *Figures) float64 { return float64(f.EvictedOutput) }},
	{"evicted_think_active", func(f *Figures) float64 { return float64(f.EvictedThinking) }},
	{"evicted_think_complete", func(f *Figures) float64 { return float64(f.EvictedThought) }},
	{"cold_bytes", func(f *Figures) float64 { return float64(f.ColdBytes) }},
	{"offloaded_bytes", func(f *Figures) float64 { return float64(f.OffloadedBytes) }},
	{"pulled_bytes", func(f *Figures) float64 { return float64(f.PulledBytes) }},
	{"preempted", func(f *Figures) float64 { return float64(f.Preempted) }},
}

// judged are the figures that arms are compared by. Of shares the difference counts, as
// they may be 0; more of good is better.
var judged = []struct {
	figure
	points, more bool
}{
	{figureOf("chat_answer_p95_ms"), false, false},
	{figureOf("reason_answer_p95_ms"), false, false},
	{figureOf("ttft_p95_ms"), false, false},
	{figureOf("ttot_end_tag_p95_ms"), false, false},
	{figureOf("end_to_end_p95_ms"), false, false},
	{figureOf("late_share"), true, false},
	{figureOf("goodput_share"), true, true},
}

func figureOf(name string) figure {
	for _, f := range figures {
		if f.name == name {
			return f
		}
	}
	panic("no figure " + name)
}

// Mean of a figure, or no number.
func (a *ArmReport) Mean(name string) Interval {
	for _, m := range a.Means {
		if m.Figure == name {
			return m.Interval
		}
	}
	return Interval{math.NaN(), math.NaN(), math.NaN()}
}

// Change of a figure against the first arm; nil: there is none.
func (a *ArmReport) Change(name string) *Change {
	for i := range a.Changes {
		if a.Changes[i].Figure == name {
			return &a.Changes[i]
		}
	}
	return nil
}

func newReport(o *Options) Report {
	r := Report{
		Mode: SyntheticReplay, Workload: o.Workload, Cost: o.Cost, Slots: o.Slots, StepTokens: o.StepTokens, KVTokens: o.KVTokens, BlockTokens: o.BlockTokens,
		Seeds: o.Seeds, FirstAnswerMS: ms(o.FirstAnswer), ThinkPaceMS: ms(o.ThinkPace), OutputPaceMS: ms(o.OutputPace), BoundMS: ms(o.Bound), Arms: o.Arms,
		Warm: "a quarter",
	}
	if o.Warm >= 0 {
		r.Warm = strconv.Itoa(o.Warm)
	}
	if r.DurationS = o.Duration.Seconds(); o.Duration == 0 {
		r.Requests = o.Requests
	}
	return r
}

// summarise takes over what all arms made of the same seeds. A seed that an arm has not
// played is left out of all.
func (l *LoadReport) summarise(o *Options, all [][]*Figures) {
	played := make([][]*Figures, len(all))
	for seed := range o.Seeds {
		whole := true
		for arm := range all {
			whole = whole && all[arm][seed] != nil
		}
		if !whole {
			continue
		}
		l.Seeds++
		for arm := range all {
			played[arm] = append(played[arm], all[arm][seed])
		}
	}
	if l.Seeds == 0 {
		return
	}
	for i := range o.Arms {
		a := summary(o.Arms[i].Name, played[0], played[i], i > 0)
		if o.Arms[i].ThinkCap > 0 {
			l.Forced = append(l.Forced, a)
		} else {
			l.Arms = append(l.Arms, a)
		}
	}
}

func summary(name string, base, f []*Figures, compare bool) ArmReport {
	a := ArmReport{Name: name, Seeds: f}
	for _, x := range figures {
		var v []float64
		for i := range f {
			v = append(v, x.of(f[i]))
		}
		a.Means = append(a.Means, Mean{x.name, interval(v)})
	}
	var forced [3][]float64
	for _, x := range f {
		a.Tokens += x.Decoded
		if x.Forced != nil {
			for i, v := range [...]float64{x.Forced.Converged, x.Forced.Overthinking, x.Forced.HardCap} {
				forced[i] = append(forced[i], v)
			}
		}
	}
	if len(forced[0]) > 0 {
		a.ForceRate = &Forced{interval(forced[0]).Mean, interval(forced[1]).Mean, interval(forced[2]).Mean}
	}
	if compare {
		a.Changes = changes(base, f)
	}
	return a
}

// changes of what arms are judged by.
func changes(base, arm []*Figures) (all []Change) {
	for _, j := range judged {
		c := Change{Figure: j.name, Points: j.points}
		if j.points {
			c.Interval, c.Pairs = differing(base, arm, j.of)
		} else {
			c.Interval, c.Pairs = paired(base, arm, j.of)
		}
		c.Says = c.says(j.more)
		all = append(all, c)
	}
	return all
}

func (c *Change) says(more bool) string {
	switch {
	case c.Pairs == 0:
		return Absent
	case c.Pairs < 2:
		return Unclear
	case c.Low == 0 && c.High == 0:
		return Same
	case c.Low <= 0 && c.High >= 0:
		return Unclear
	case c.Mean > 0 == more:
		return Better
	}
	return Worse
}

// text is the change for people, in percent, or in percentage points.
func (c *Change) text() string {
	mean, half, unit := 100*c.Mean, 50*(c.High-c.Low), "%"
	if c.Points {
		unit = "points"
	}
	digits := 0
	if v := math.Max(math.Abs(mean), half); v > 0 && v < 10 {
		digits = 1
		if v < 0.1 {
			digits = 3
		}
	}
	if c.Pairs < 2 {
		return fmt.Sprintf("%+.*f %s", digits, mean, unit)
	}
	return fmt.Sprintf("%+.*f±%.*f %s", digits, mean, digits, half, unit)
}

// name of a load for people and for files.
func (l *LoadReport) name() string {
	if l.Load > 0 {
		return strconv.FormatFloat(l.Load, 'f', 2, 64)
	}
	return fmt.Sprintf("%.2frps", l.Rate)
}

// Rows is the report for people.
func (r Report) Rows() (head []string, rows [][]string) {
	head = []string{"load", "arm", "chat", "thinkers", "late", "whole", "anew"}
	for _, l := range r.Loads {
		for _, a := range append(l.Arms[:len(l.Arms):len(l.Arms)], l.Forced...) {
			name := a.Name
			if a.ForceRate != nil {
				name += " *"
			}
			of := func(figure string) string {
				s := fmt.Sprintf("%.2f s", a.Mean(figure).Mean/1000)
				if c := a.Change(figure); c != nil && c.Pairs > 0 {
					s += " (" + c.text() + ")"
				}
				return s
			}
			rows = append(rows, []string{l.name(), name, of("chat_answer_p95_ms"), of("reason_answer_p95_ms"), fmt.Sprintf("%.1f %%", 100*a.Mean("late_share").Mean),
				fmt.Sprintf("%.1f s", a.Mean("end_to_end_p95_ms").Mean/1000), fmt.Sprintf("%.0f k", a.Mean("recomputed_tokens").Mean/1000)})
		}
	}
	return head, rows
}

// size is how many requests a seed has, for people.
func (r *Report) size() string {
	if r.DurationS > 0 {
		return fmt.Sprintf("arrivals in %.4g s", r.DurationS)
	}
	return fmt.Sprintf("%d requests", r.Requests)
}

// Note says what the figures are.
func (r Report) Note() string {
	of, spread := fmt.Sprintf("means of %d seeds", len(r.Seeds)), " with a 95 % interval"
	if len(r.Seeds) < 2 {
		of, spread = "one seed", "; of one seed there is no interval"
	}
	note := fmt.Sprintf("Virtual time, %s of %s, %s workload, step costs %s, %d slots, %d KV tokens. "+
		"chat and thinkers: p95 from arrival to the first visible token, and its change against %s%s. "+
		"late: visible tokens over %.0f ms after the one before, of readers at %.0f ms a token. whole: p95 from arrival to the last token. anew: tokens computed again.",
		of, r.size(), r.Workload.Name, r.Cost.Name, r.Slots, r.KVTokens, r.Arms[0].Name, spread, r.BoundMS, r.OutputPaceMS)
	note += " Forcing is off but where there is a *: those decode fewer tokens."
	for _, s := range r.Sanity {
		note += fmt.Sprintf(" M/D/1 at %v: %+.1f %% of theory.", s.Utilisation, 100*s.Error)
	}
	if r.Verdict != nil {
		for _, line := range r.Verdict.Text {
			note += "\n" + line
		}
	}
	if r.Interrupted != "" {
		note += "\nNOT THE WHOLE REPORT: " + r.Interrupted + "."
	}
	return note
}
