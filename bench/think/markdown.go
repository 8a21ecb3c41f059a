package think

import (
	"fmt"
	"math"
	"strings"
)

// Markdown is the report as a page.
func (r Report) Markdown() string {
	var m page
	m.line("# Scheduling of requests that think: %s workload", r.Workload.Name)
	if r.Interrupted != "" {
		m.line("**This is not the whole report.** %s.", r.Interrupted)
	}
	m.setup(&r)
	if r.Verdict != nil {
		m.line("## Verdict")
		m.list(r.Verdict.Text)
	}
	for i := range r.Loads {
		m.load(&r, &r.Loads[i])
	}
	return m.String()
}

type page struct{ strings.Builder }

func (m *page) line(format string, args ...any) { fmt.Fprintf(m, format+"\n\n", args...) }

func (m *page) list(items []string) {
	for _, s := range items {
		fmt.Fprintf(m, "- %s\n", s)
	}
	_ = m.WriteByte('\n')
}

func (m *page) table(head []string, rows [][]string) {
	fmt.Fprintf(m, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, row := range rows {
		fmt.Fprintf(m, "| %s |\n", strings.Join(row, " | "))
	}
	_ = m.WriteByte('\n')
}

func (m *page) setup(r *Report) {
	w, c := &r.Workload, &r.Cost
	m.line("Mode %s: virtual time, real phase router and queue. %d seeds (%s) of %s, of which %s is not counted.",
		r.Mode, len(r.Seeds), seedList(r.Seeds), r.size(), r.Warm)
	items := []string{
		fmt.Sprintf("Requests: %.0f %% think, for %d to %d tokens.", 100*w.ReasoningRatio, w.Think.Least, w.Think.Most),
		fmt.Sprintf("Engine: %d slots, %d tokens a step, %d KV tokens in blocks of %d.", r.Slots, r.StepTokens, r.KVTokens, r.BlockTokens),
		fmt.Sprintf("Step costs %s: %.6g µs, %.6g µs a token, %.6g µs a token of context; offloads at %.4g GB/s. Source: %s.", c.Name, c.BaseUS, c.TokenUS, c.ContextUS, c.MoveGBs, c.Source),
		fmt.Sprintf("SLOs: %.4g ms to the first answer, %.4g ms a thinking token, %.4g ms an output token; late after %.4g ms.", r.FirstAnswerMS, r.ThinkPaceMS, r.OutputPaceMS, r.BoundMS),
	}
	if d := w.Dataset; d != nil {
		items = append(items, fmt.Sprintf("Data set: %s (%s), %d entries, %d skipped; lengths: %s. It says nothing of thinking, whose lengths are drawn.",
			d.File, d.Kind, d.Entries, d.Skipped, d.Lengths))
	} else {
		items = append(items, fmt.Sprintf("Chat: prompts of %d to %d tokens, answers of %d to %d; reasoning: prompts of %d to %d, answers of %d to %d. Arrivals are Poisson.",
			w.ChatPrompt.Least, w.ChatPrompt.Most, w.ChatAnswer.Least, w.ChatAnswer.Most, w.Prompt.Least, w.Prompt.Most, w.Answer.Least, w.Answer.Most))
	}
	if r.Capacity > 0 {
		items = append(items, fmt.Sprintf("Capacity of %s: %.4g requests a second.", r.Arms[0].Name, r.Capacity))
	}
	for _, s := range r.Sanity {
		items = append(items, fmt.Sprintf("M/D/1 at a load of %v: mean wait %.4g ms, theory %.4g ms (%+.2f %%).", s.Utilisation, s.WaitMS, s.TheoryMS, 100*s.Error))
	}
	m.list(items)
	m.line("Arms:")
	items = items[:0]
	for _, a := range r.Arms {
		items = append(items, fmt.Sprintf("`%s`: %s.", a.Name, a.What))
	}
	m.list(items)
	m.line("TTFT: arrival to the first token of any kind. TTOT: to the first visible token, from the end of thinking and from arrival. " +
		"ITL: from a visible token to the next, as the engine makes them; late: as a reader at the pace of the SLO sees them. " +
		"Goodput: first answer and 99 of 100 visible tokens in time. Means over the seeds with 95 %% intervals; changes are compared seed by seed.")
}

func seedList(s []uint64) string {
	if n := len(s); n > 3 && s[n-1]-s[0] == uint64(n-1) {
		return fmt.Sprintf("%d to %d", s[0], s[n-1])
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(s), " ", ", "), "[]")
}

func (m *page) load(r *Report, l *LoadReport) {
	title := fmt.Sprintf("Load %s: %.4g requests a second", l.name(), l.Rate)
	if l.Load == 0 {
		title = fmt.Sprintf("%.4g requests a second", l.Rate)
	}
	m.line("## %s", title)
	if l.Seeds < len(r.Seeds) {
		m.line("Of %d seeds only.", l.Seeds)
	}
	m.arms(l, l.Arms)
	if len(l.Forced) == 0 {
		return
	}
	m.line("### Forcing, at the same load")
	m.line("These arms cut thinking and so decode fewer tokens than %s: what they win is not to be compared with the table above. The cap is fixed; no signal decides.", l.Arms[0].Name)
	m.arms(l, l.Forced)
}

func (m *page) arms(l *LoadReport, arms []ArmReport) {
	var latency, other, store, change [][]string
	for i := range arms {
		a := &arms[i]
		triple := func(name string) string {
			return fmt.Sprintf("%s / %s / %s", plain(a.Mean(name+"_p50_ms").Mean), spread(a.Mean(name+"_p95_ms")), plain(a.Mean(name+"_p99_ms").Mean))
		}
		latency = append(latency, []string{a.Name, triple("ttft"), triple("ttot_end_tag"), triple("ttot_arrival"), triple("output_itl"),
			spread(a.Mean("chat_answer_p95_ms")), spread(a.Mean("reason_answer_p95_ms")), spread(a.Mean("end_to_end_p95_ms"))})
		force := "off"
		if f := a.ForceRate; f != nil {
			force = fmt.Sprintf("converged %s, overthinking %s, hard cap %s", percent(f.Converged), percent(f.Overthinking), percent(f.HardCap))
		}
		other = append(other, []string{a.Name, fmt.Sprintf("%s / %s", plain(a.Mean("think_tokens_mean").Mean), plain(a.Mean("think_tokens_p95").Mean)), force,
			fmt.Sprint(a.Tokens), percent(a.Mean("late_share").Mean), percent(a.Mean("first_answer_met_share").Mean), percent(a.Mean("itl_met_share").Mean),
			fmt.Sprintf("%s, %s/s", percent(a.Mean("goodput_share").Mean), plain(a.Mean("goodput_rps").Mean)),
		})
		store = append(store, []string{a.Name, spread(a.Mean("output_critical_eviction_events")), plain(a.Mean("evicted_think_active").Mean), plain(a.Mean("evicted_think_complete").Mean),
			plain(a.Mean("preempted").Mean), spread(a.Mean("recomputed_tokens")), plain(a.Mean("prefix_hit_tokens").Mean),
			gigabytes(a.Mean("offloaded_bytes").Mean), gigabytes(a.Mean("cold_bytes").Mean), gigabytes(a.Mean("pulled_bytes").Mean)})
		if len(a.Changes) > 0 {
			row := []string{a.Name}
			for _, c := range a.Changes {
				cell := c.text() + " " + c.Says
				if c.Says == Absent {
					cell = Absent
				}
				row = append(row, cell)
			}
			change = append(change, row)
		}
	}
	m.line("Times in ms, p50 / p95 / p99:")
	m.table([]string{"arm", "TTFT", "TTOT, end of thinking", "TTOT, arrival", "output ITL", "chat p95", "thinkers' p95", "end to end p95"}, latency)
	m.table([]string{"arm", "think tokens mean / p95", "force rate", "decoded tokens", "late", "first answer in time", "ITL in time", "goodput"}, other)
	m.table([]string{"arm", "output-critical evictions", "of thinking that goes on", "of what is over", "preempted", "recomputed tokens", "prefix hits, tokens", "offloaded", "copied when cold", "pulled"}, store)
	if len(change) == 0 {
		return
	}
	head := []string{"against " + l.Arms[0].Name}
	for _, j := range judged {
		head = append(head, words[j.name])
	}
	m.table(head, change)
}

func plain(v float64) string {
	if math.Abs(v) >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func spread(i Interval) string {
	if i.High == i.Low {
		return plain(i.Mean)
	}
	return plain(i.Mean) + "±" + plain((i.High-i.Low)/2)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func gigabytes(v float64) string { return fmt.Sprintf("%.3g GB", v/1e9) }
