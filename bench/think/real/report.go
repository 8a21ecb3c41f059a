package real

import (
	"fmt"
	"slices"
	"time"

	"meridian/bench/measure"
	"meridian/bench/think"
)

// Mode is what the flag calls this benchmark.
const Mode = "real-llamacpp"

// Report is what a run found: the model's report for what clients saw of real nodes.
type Report struct {
	Mode    string       `json:"mode"`
	Partial string       `json:"partial,omitempty"` // why it is not the whole, and what it has
	Host    measure.Host `json:"host"`
	Loads   []float64    `json:"load_average"` // of a minute, before and after; empty: not told
	Version string       `json:"version"`
	Server  string       `json:"llama_server_build,omitempty"`
	Model   string       `json:"model"`

	Workload      think.Workload `json:"workload"`
	Interactive   int            `json:"interactive_clients"`
	Background    int            `json:"background_clients"`
	Requests      int            `json:"requests_of_a_client"`
	Rounds        int            `json:"rounds"`
	Seed          uint64         `json:"seed"`
	Slots         int            `json:"slots,omitempty"`
	Context       int            `json:"context_tokens,omitempty"`
	Threads       int            `json:"threads,omitempty"`
	Storm         Storm          `json:"storm"`
	FirstAnswerMS float64        `json:"slo_first_answer_ms"`
	ThinkPaceMS   float64        `json:"slo_think_token_ms"`
	OutputPaceMS  float64        `json:"slo_output_token_ms"`
	BoundMS       float64        `json:"late_after_ms"`

	Done   int         `json:"rounds_done"`
	Left   []Left      `json:"left_out,omitempty"` // of the round that was not finished
	Arms   []ArmReport `json:"arms"`
	Equal  Equality    `json:"equality"`
	Absent []Absent    `json:"absent"`
}

// Left is how many of an arm's counted requests had been answered in a round that was not
// finished: no figure has them.
type Left struct {
	Arm      string `json:"arm"`
	Answered int    `json:"answered"`
	Of       int    `json:"of"`
}

// played says how much of a run that has ended early there is, and what is left out.
func (r *Report) played() string {
	text := fmt.Sprintf("%d of %d rounds were played by every arm", r.Done, r.Rounds)
	if r.Done == 0 {
		text = fmt.Sprintf("no round of %d was finished, so there is no figure", r.Rounds)
	}
	for i, l := range r.Left {
		sep := ","
		if i == 0 {
			sep = fmt.Sprintf("; left out is what was answered in round %d:", r.Done+1)
		}
		text += fmt.Sprintf("%s %d of %d requests of %s", sep, l.Answered, l.Of, l.Arm)
	}
	return text
}

// Equality is how many answers are the same text, or as long, in every arm: which requests
// share a batch changes the last bits of its numbers, and with them, now and then, a token.
type Equality struct {
	Equal   int `json:"equal"`
	Lengths int `json:"equal_lengths"` // as many tokens of thinking and of answer
	Answers int `json:"answers"`       // that every arm gave
}

// Absent is a figure of the model's report that this one does not have.
type Absent struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// ArmReport is what one arm's clients saw, and what its daemon counted. Changes are against
// the first arm, round by round.
type ArmReport struct {
	Arm
	Tiers       bool        `json:"service_tiers"` // background requests asked for the tier "flex"
	Interactive Class       `json:"interactive"`
	Background  Class       `json:"background"`
	Daemon      Figures     `json:"daemon"`
	Held        *uint64     `json:"turns_held,omitempty"` // quanta and pieces of prompts that the policy made wait
	Seconds     float64     `json:"mean_round_s"`
	Stall       StormReport `json:"prefill_storm"`
	Changes     []Change    `json:"changes,omitempty"`
}

// Change of a figure, paired by round.
type Change struct {
	Figure string         `json:"figure"`
	Change think.Interval `json:"change"`
	Rounds int            `json:"rounds"`
}

// Class is what one class's clients saw in all rounds.
type Class struct {
	Failed     int       `json:"failed"`
	Unfinished int       `json:"unfinished"` // when the time of a round was over
	Error      string    `json:"first_error,omitempty"`
	Figures    Figures   `json:"figures"`
	ByRound    []Figures `json:"by_round"`
}

// StormReport is a stream's times between tokens, alone and while long prompts come.
type StormReport struct {
	Alone   *think.Percentiles `json:"itl_alone,omitempty"`
	Storm   *think.Percentiles `json:"itl_storm,omitempty"`
	Longest float64            `json:"longest_gap_ms,omitempty"` // in the storm
	Prompts int                `json:"prompts"`                  // computed
	Tokens  int                `json:"prompt_tokens"`            // of them
	Answer  *think.Percentiles `json:"prompt_ttft,omitempty"`    // of them
	Failed  int                `json:"failed"`                   // streams and prompts without an answer
}

// summarise makes an arm's report of its parts, one a round.
func (o *Options) summarise(n *node, parts []*part) ArmReport {
	a := ArmReport{Arm: n.arm, Tiers: n.flex}
	for c, to := range []*Class{&a.Interactive, &a.Background} {
		var all []*sample
		var took time.Duration
		for _, p := range parts {
			all = append(all, p.samples[c]...)
			to.ByRound = append(to.ByRound, o.see(p.samples[c]).figures(p.took))
			took += p.took
		}
		var first error
		if to.Failed, to.Unfinished, first = failures(all); first != nil {
			to.Error = first.Error()
		}
		to.Figures = o.see(all).figures(took)
	}
	for _, c := range counted {
		if v, ok := grown(parts, c.series); ok {
			put(&a.Daemon, c.name, c.to(&a.Daemon), v)
		}
	}
	if pulled, ok := pulledBytes(parts); ok {
		put(&a.Daemon, "pulled_bytes", &a.Daemon.PulledBytes, pulled)
	}
	if held, ok := grown(parts, "meridian_llama_turns_held_total"); ok {
		a.Held = &held
	}
	for _, p := range parts {
		a.Seconds += p.took.Seconds() / float64(len(parts))
	}
	a.Stall = stallOf(parts)
	return a
}

func pulledBytes(parts []*part) (n uint64, ok bool) {
	for _, p := range parts {
		for _, all := range p.samples {
			for _, s := range all {
				n, ok = n+s.pulled, ok || s.err == nil
			}
		}
	}
	return n, ok
}

func stallOf(parts []*part) (r StormReport) {
	var alone, under, answers []float64
	for _, p := range parts {
		for _, s := range []*sample{p.alone, p.storm} {
			switch {
			case s == nil:
			case s.err != nil:
				r.Failed++
			case s == p.alone:
				alone = append(alone, gapsOf(s.visible)...)
			default:
				under = append(under, gapsOf(s.visible)...)
			}
		}
		for _, s := range p.prompts {
			if s.err != nil {
				r.Failed++
				continue
			}
			r.Prompts, r.Tokens, answers = r.Prompts+1, r.Tokens+s.prompt, append(answers, ms(s.done))
		}
	}
	of := func(v []float64) *think.Percentiles {
		if len(v) == 0 {
			return nil
		}
		p := think.PercentilesOf(v)
		return &p
	}
	if r.Alone, r.Storm, r.Answer = of(alone), of(under), of(answers); len(under) > 0 {
		r.Longest = slices.Max(under)
	}
	return r
}

// compared are the figures of which the report has the change.
var compared = []struct {
	name string
	of   func(*Options, *part) (float64, bool)
}{
	{"interactive output_itl p95", byFigure(interactive, "output_itl", func(f *Figures) float64 { return f.ITL.P95 })},
	{"interactive chat_answer p95", byFigure(interactive, "chat_answer", func(f *Figures) float64 { return f.ChatAnswer.P95 })},
	{"interactive end_to_end p95", byFigure(interactive, "end_to_end", func(f *Figures) float64 { return f.EndToEnd.P95 })},
	{"background reason_answer p95", byFigure(background, "reason_answer", func(f *Figures) float64 { return f.ReasonAnswer.P95 })},
	{"background end_to_end p95", byFigure(background, "end_to_end", func(f *Figures) float64 { return f.EndToEnd.P95 })},
	{"prefill storm itl p95", func(_ *Options, p *part) (float64, bool) {
		if p.storm == nil || p.storm.err != nil || len(p.storm.visible) < 2 {
			return 0, false
		}
		return think.PercentilesOf(gapsOf(p.storm.visible)).P95, true
	}},
	{"prefill storm prompts p95", func(_ *Options, p *part) (float64, bool) {
		r := stallOf([]*part{p})
		if r.Answer == nil {
			return 0, false
		}
		return r.Answer.P95, true
	}},
}

func byFigure(c class, name string, of func(*Figures) float64) func(*Options, *part) (float64, bool) {
	return func(o *Options, p *part) (float64, bool) {
		f := o.see(p.samples[c]).figures(p.took)
		return of(&f), f.have[name]
	}
}

// changes are those of an arm against the first one, in rounds in which both have the figure.
func (o *Options) changes(first, arm []*part) (all []Change) {
	for _, c := range compared {
		var base, mine []float64
		for i := range arm {
			x, ok := c.of(o, first[i])
			y, too := c.of(o, arm[i])
			if ok && too {
				base, mine = append(base, x), append(mine, y)
			}
		}
		if len(base) > 0 {
			all = append(all, Change{c.name, think.Paired(base, mine), len(base)})
		}
	}
	return all
}

// equality compares the answers of the arms, request by request.
func equality(arms [][]*part) (e Equality) {
	for round := range arms[0] {
		for c, all := range arms[0][round].samples {
			for i := range all {
				whole, same, long := true, true, true
				for _, parts := range arms {
					s := parts[round].samples[c][i]
					whole = whole && s.err == nil
					same = same && s.bytes == all[i].bytes && sumOf(s) == sumOf(all[i])
					long = long && s.completion == all[i].completion && s.thinking == all[i].thinking
				}
				if !whole {
					continue
				}
				e.Answers++
				if same {
					e.Equal++
				}
				if long {
					e.Lengths++
				}
			}
		}
	}
	return e
}

// sumOf stands for the text of a sample; one that was never asked has none.
func sumOf(s *sample) uint64 {
	if s.text == nil {
		return 0
	}
	return s.text.Sum64()
}

// why says of figures that are absent why they are.
var why = map[string]string{
	"recomputed_tokens":   "no daemon tells it",
	"offloaded_bytes":     "no daemon tells it of preempted requests",
	"cold_bytes":          "no daemon tells it: none of its fabrics takes offloads",
	"cold_blocks_kept":    "no daemon tells it",
	"cold_blocks_dropped": "no daemon tells it",
	"preempted":           "no daemon tells it",
	"prefix_hit_tokens":   "the prompts have nothing in common but the template's head",
	"peak_blocks":         "the KV of a slot is llama-server's, which tells no blocks",
	"peak_waiting":        "the node is not asked while it works: that would disturb it",
	"makespan_s":          "clients ask in a closed loop: mean_round_s is how long a round took",
}

// absent lists the figures of the model's report that no arm has.
func absent(arms []ArmReport) (all []Absent) {
	for _, name := range names() {
		has := func(a ArmReport) bool {
			return a.Interactive.Figures.have[name] || a.Background.Figures.have[name] || a.Daemon.have[name]
		}
		if slices.ContainsFunc(arms, has) {
			continue
		}
		reason, ok := why[name]
		if !ok {
			reason = "no daemon tells it"
		}
		all = append(all, Absent{name, reason})
	}
	return all
}
