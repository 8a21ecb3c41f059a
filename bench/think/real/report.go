package real

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"meridian/bench/measure"
	"meridian/bench/think"
	"meridian/scheduler"
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
	Arms   []ArmReport `json:"arms"`
	Equal  Equality    `json:"equality"`
	Absent []Absent    `json:"absent"`
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
					same = same && s.text == all[i].text
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

// Rows is the report for people: a figure a row, an arm a column. Two arms leave room for a
// column of changes, further ones have them in their cells.
func (r Report) Rows() (head []string, rows [][]string) {
	head = []string{"figure"}
	for _, a := range r.Arms {
		head = append(head, a.Name)
	}
	two := len(r.Arms) == 2
	if two {
		head = append(head, "change")
	}
	add := func(name string, of func(*ArmReport) string, figure string) {
		row, change := []string{name}, ""
		for i := range r.Arms {
			cell := of(&r.Arms[i])
			change = r.Arms[i].change(figure)
			switch {
			case cell == "":
				cell = "not measured"
			case change != "" && !two:
				cell += " (" + change + ")"
			}
			row = append(row, cell)
		}
		if two {
			row = append(row, change)
		}
		rows = append(rows, row)
	}
	for _, c := range []struct {
		name string
		of   func(*ArmReport) *Class
	}{{"interactive", func(a *ArmReport) *Class { return &a.Interactive }}, {"background", func(a *ArmReport) *Class { return &a.Background }}} {
		for _, f := range timed {
			if c.name == "interactive" && (f.thinks || f.name == "ttft") { // which does not think
				continue
			}
			add(c.name+" "+f.label, func(a *ArmReport) string {
				if x := c.of(a).Figures; x.have[f.name] {
					p := f.of(&x)
					return triple(p)
				}
				return ""
			}, c.name+" "+f.name+" p95")
		}
		add(c.name+" late, good", func(a *ArmReport) string {
			if x := c.of(a).Figures; x.have["late_share"] && x.have["goodput_share"] {
				return fmt.Sprintf("%.1f %%, %.0f %%", 100*x.Late, 100*x.Goodput)
			}
			return ""
		}, "")
		add(c.name+" answered", func(a *ArmReport) string { return c.of(a).count() }, "")
	}
	add("think tokens mean, p95", func(a *ArmReport) string {
		if x := a.Background.Figures; x.have["think_tokens_mean"] {
			return fmt.Sprintf("%.0f, %.0f", x.ThinkMean, x.ThinkP95)
		}
		return ""
	}, "")
	add("thinking ended by node", func(a *ArmReport) string { return forcedText(a.Background.Figures.Forced) }, "")
	add("storm, itl alone", func(a *ArmReport) string { return tripleOf(a.Stall.Alone) }, "")
	add("storm, itl", func(a *ArmReport) string { return tripleOf(a.Stall.Storm) }, "prefill storm itl p95")
	add("storm, longest gap", func(a *ArmReport) string {
		if a.Stall.Storm == nil {
			return ""
		}
		return fmt.Sprintf("%.3g", a.Stall.Longest/1000)
	}, "")
	add("storm, its prompts", func(a *ArmReport) string { return tripleOf(a.Stall.Answer) }, "prefill storm prompts p95")
	for _, f := range []struct {
		label, name string
		of          func(*Figures) uint64
	}{
		{"prompt tokens computed", "prefilled_tokens", func(f *Figures) uint64 { return f.Prefilled }},
		{"tokens decoded", "decoded_tokens", func(f *Figures) uint64 { return f.Decoded }},
		{"preempted", "preempted", func(f *Figures) uint64 { return f.Preempted }},
		{"cold bytes", "cold_bytes", func(f *Figures) uint64 { return f.ColdBytes }},
		{"pulled bytes", "pulled_bytes", func(f *Figures) uint64 { return f.PulledBytes }},
		{"critical evictions", "output_critical_eviction_events", func(f *Figures) uint64 { return f.EvictedOutput }},
	} {
		add(f.label, func(a *ArmReport) string {
			if !a.Daemon.have[f.name] {
				return ""
			}
			return fmt.Sprint(f.of(&a.Daemon))
		}, "")
	}
	add("turns held", func(a *ArmReport) string {
		if a.Held == nil {
			return ""
		}
		return fmt.Sprint(*a.Held)
	}, "")
	add("a round", func(a *ArmReport) string { return fmt.Sprintf("%.3g", a.Seconds) }, "")
	return head, rows
}

// timed are the figures that are times, as a table has them.
var timed = []struct {
	label, name string
	thinks      bool // only who thinks has it
	of          func(*Figures) think.Percentiles
}{
	{"itl", "output_itl", false, func(f *Figures) think.Percentiles { return f.ITL }},
	{"first token", "ttft", false, func(f *Figures) think.Percentiles { return f.TTFT }},
	{"answer, chat", "chat_answer", false, func(f *Figures) think.Percentiles { return f.ChatAnswer }},
	{"answer, thinks", "reason_answer", true, func(f *Figures) think.Percentiles { return f.ReasonAnswer }},
	{"after thought", "ttot_end_tag", true, func(f *Figures) think.Percentiles { return f.TTOT }},
	{"whole", "end_to_end", false, func(f *Figures) think.Percentiles { return f.EndToEnd }},
}

func tripleOf(p *think.Percentiles) string {
	if p == nil {
		return ""
	}
	return triple(*p)
}

// triple is p50, p95 and p99 in seconds.
func triple(p think.Percentiles) string {
	return fmt.Sprintf("%.3g / %.3g / %.3g", p.P50/1000, p.P95/1000, p.P99/1000)
}

// change of a figure, for a table; "" where there is none.
func (a *ArmReport) change(figure string) string {
	at := slices.IndexFunc(a.Changes, func(c Change) bool { return c.Figure == figure })
	if at < 0 {
		return ""
	}
	c := a.Changes[at]
	if c.Rounds < 2 {
		return fmt.Sprintf("%+.0f %%", 100*c.Change.Mean)
	}
	return fmt.Sprintf("%+.0f±%.0f %%", 100*c.Change.Mean, 50*(c.Change.High-c.Change.Low))
}

func (c *Class) count() string {
	s := fmt.Sprint(c.Figures.Requests)
	if c.Failed > 0 {
		s += fmt.Sprintf(", %d failed", c.Failed)
	}
	if c.Unfinished > 0 {
		s += fmt.Sprintf(", %d unfinished", c.Unfinished)
	}
	return s
}

// forcedText is the share of thinking requests by why the node ended their thinking.
func forcedText(f *think.Forced) string {
	if f == nil {
		return ""
	}
	var parts []string
	for _, x := range []struct {
		why   scheduler.Reason
		share float64
	}{{scheduler.Converged, f.Converged}, {scheduler.Overthinking, f.Overthinking}, {scheduler.HardCap, f.HardCap}} {
		if x.share > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f %%", x.why, 100*x.share))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// Note says what was measured on what, and what is missing.
func (r Report) Note() string {
	var b strings.Builder
	if r.Partial != "" {
		fmt.Fprintf(&b, "PARTIAL: %s\n", r.Partial)
	}
	fmt.Fprintf(&b, "%s\nload average of a minute: %v. meridian %s, llama-server %s, model %s, %d slots of %d tokens, %d threads.\n",
		r.Host.Text(), r.Loads, r.Version, orUnknown(r.Server), r.Model, r.Slots, r.Context, r.Threads)
	fmt.Fprintf(&b, "%d of %d rounds, seed %d: %d interactive and %d background clients, each with %d counted requests a round and further ones until all are done; %.0f %% of the background thinks, until its budget is over. ",
		r.Done, r.Rounds, r.Seed, r.Interactive, r.Background, r.Requests, 100*r.Workload.ReasoningRatio)
	fmt.Fprintf(&b, "Times are in seconds, the clients', p50 / p95 / p99; a change is of p95, the mean over the rounds with its 95 %% interval. itl: between visible tokens as they came. answer: from the request to the first visible token. after thought: to it from the last thinking token. late: over %.0f ms after the one before, of readers at %.0f ms a token. good: first answer in %.0f ms and %.0f ms a thinking token, and 99 of 100 tokens in time. ",
		r.BoundMS, r.OutputPaceMS, r.FirstAnswerMS, r.ThinkPaceMS)
	b.WriteString("The daemon's counts have in them what is not counted, and the storm not. ")
	if r.Storm.Answer > 0 {
		fmt.Fprintf(&b, "storm: one stream of %d tokens, into which %d clients send %d prompts each of %d to %d words; how long its prompts took. ",
			r.Storm.Answer, r.Storm.Clients, r.Storm.Prompts, r.Storm.Prompt.Least, r.Storm.Prompt.Most)
	}
	if len(r.Arms) > 1 {
		fmt.Fprintf(&b, "%d of %d answers have as many tokens in all arms, %d are the same text. ", r.Equal.Lengths, r.Equal.Answers, r.Equal.Equal)
	}
	for _, a := range r.Arms {
		if !a.Tiers {
			fmt.Fprintf(&b, "The node of %s has no tiers of service: it was not told which requests are background. ", a.Name)
		}
		for _, c := range []Class{a.Interactive, a.Background} {
			if c.Error != "" {
				fmt.Fprintf(&b, "First error of %s: %s. ", a.Name, c.Error)
			}
		}
	}
	b.WriteString("\n")
	for _, a := range r.Absent {
		fmt.Fprintf(&b, "no %s: %s\n", a.Name, a.Why)
	}
	return strings.TrimSpace(b.String())
}

func orUnknown(s string) string {
	if s == "" {
		return "of a build that is not told"
	}
	return s
}

// Markdown is the table and the note as a page.
func (r Report) Markdown() string {
	var b strings.Builder
	head, rows := r.Rows()
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	for line := range strings.Lines(r.Note()) {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(line))
	}
	return b.String()
}
