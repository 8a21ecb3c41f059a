package real

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"meridian/bench/think"
	"meridian/scheduler"
)

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
		fmt.Fprintf(&b, "PARTIAL: %s\n", plain(r.Partial))
	}
	fmt.Fprintf(&b, "%s\nload average of a minute: %v. meridian %s, llama-server %s, model %s, %d slots of %d tokens, %d threads.\n",
		r.Host.Text(), r.Loads, r.Version, orUnknown(plain(r.Server)), plain(r.Model), r.Slots, r.Context, r.Threads)
	fmt.Fprintf(&b, "%d of %d rounds, seed %d: %d interactive and %d background clients, each with %d counted requests a round and further ones until all are done; %.0f %% of the background thinks, until its budget is over. ",
		r.Done, r.Rounds, r.Seed, r.Interactive, r.Background, r.Requests, 100*r.Workload.ReasoningRatio)
	if len(r.Arms) == 0 { // there is no figure to explain
		return strings.TrimSpace(b.String())
	}
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
				fmt.Fprintf(&b, "First error of %s: %s. ", a.Name, plain(c.Error))
			}
		}
	}
	b.WriteString("\n")
	for _, a := range r.Absent {
		fmt.Fprintf(&b, "no %s: %s\n", a.Name, a.Why)
	}
	return strings.TrimSpace(b.String())
}

// plain is what a server says in one line, without control characters: a terminal would
// obey those.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r):
			return '?'
		}
		return r
	}, s)
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
	if len(r.Arms) > 0 {
		head, rows := r.Rows()
		fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
		for _, row := range rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
	}
	for line := range strings.Lines(r.Note()) {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(line))
	}
	return b.String()
}
