package think

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/bench/plot"
	"meridian/scheduler/queue"
)

// made is a run of two arms with the figures that are given, seed by seed.
func made(load float64, arms map[string][]Figures) Report {
	o := small()
	o.Arms, o.Seeds, o.Loads = nil, Seeds(1, len(arms["stock"])), []float64{load}
	var all [][]*Figures
	for _, name := range []string{"stock", "a", "b"} {
		if arms[name] == nil {
			continue
		}
		o.Arms = append(o.Arms, Arm{Name: name})
		var f []*Figures
		for i := range arms[name] {
			f = append(f, &arms[name][i])
		}
		all = append(all, f)
	}
	rep := newReport(&o)
	l := LoadReport{Load: load}
	l.summarise(&o, all)
	rep.Loads = []LoadReport{l}
	rep.Verdict = rep.judge()
	return rep
}

// chats makes figures whose answers without thinking take so long, and nothing else differs.
func chats(v ...float64) (f []Figures) {
	for _, x := range v {
		f = append(f, Figures{ChatAnswer: Percentiles{P95: x}, ReasonAnswer: Percentiles{P95: 100}, TTFT: Percentiles{P95: 10}, TTOT: Percentiles{P95: 10}, EndToEnd: Percentiles{P95: 1000}, Goodput: 0.5})
	}
	return f
}

func TestTheVerdictSaysWhatTheRunCanTell(t *testing.T) {
	for _, c := range []struct {
		name  string
		load  float64
		stock []Figures
		a, b  []Figures
		want  []string
	}{
		{"better", 0.95, chats(100, 110, 90), chats(50, 56, 44), nil,
			[]string{"a against stock at load 0.95: better in chat p95 -50±", "same in thinkers' p95"}},
		{"worse", 0.95, chats(100, 110, 90), chats(200, 218, 181), nil, []string{"worse in chat p95 +100±"}},
		{"neither", 0.95, chats(100, 110, 90), chats(90, 120, 91), nil, []string{"the run cannot tell in chat p95."}},
		{"alike", 0.95, chats(100, 110, 90), chats(50, 56, 44), chats(49, 57, 44.5),
			[]string{"This run of 3 seeds cannot tell apart at all: a and b."}},
		{"equal", 0.95, chats(100, 110, 90), chats(50, 56, 44), chats(50, 56, 44),
			[]string{"had nothing to decide, and have the same figures in every seed: a and b."}},
		{"one seed", 0.95, chats(100), chats(1), nil, []string{"One seed has no interval: this run cannot tell any arm from another."}},
		{"another load", 0.7, chats(100, 110), chats(50, 55), nil, []string{"The verdict is at load 0.70, as load 0.95 was not played."}},
		{"a rate", 0, chats(100, 110), chats(50, 55), nil, []string{"which may be any load"}},
	} {
		rep := made(c.load, map[string][]Figures{"stock": c.stock, "a": c.a, "b": c.b})
		text := strings.Join(rep.Verdict.Text, "\n")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s\nhas no %q", c.name, text, want)
			}
			if !strings.Contains(rep.Note(), want) || !strings.Contains(rep.Markdown(), want) {
				t.Errorf("%s: %q is not in the note and the page", c.name, want)
			}
		}
	}
}

// Where goodput is more it is better, and a share that was 0 counts like any other.
func TestSharesAreComparedByDifference(t *testing.T) {
	base, arm := chats(1, 1, 1), chats(1, 1, 1)
	for i := range arm {
		base[i].Late, base[i].Goodput = 0, 0
		arm[i].Late, arm[i].Goodput = 0.1+float64(i)/1000, 0.2+float64(i)/1000
	}
	rep := made(0.95, map[string][]Figures{"stock": base, "a": arm})
	a := rep.Loads[0].Arms[1]
	if c := a.Change("late_share"); c.Says != Worse || c.Mean < 0.1 || !c.Points {
		t.Errorf("late %+v", c)
	}
	if c := a.Change("goodput_share"); c.Says != Better || c.Mean < 0.2 {
		t.Errorf("goodput %+v", c)
	}
	if a.Change("ttft_p50_ms") != nil {
		t.Error("a verdict about what is not judged")
	}
}

// A seed in which stock has 0 has no relative change. One that is left is no interval, and
// none is no verdict.
func TestWhatIsNotThereIsNotCompared(t *testing.T) {
	base, arm := chats(100, 110, 90), chats(50, 55, 45)
	for i := range base {
		base[i].TTOT.P95, arm[i].TTOT.P95 = 0, 0 // nobody thinks
	}
	base[0].EndToEnd.P95, base[1].EndToEnd.P95 = 0, 0
	rep := made(0.95, map[string][]Figures{"stock": base, "a": arm})
	a := rep.Loads[0].Arms[1]
	if c := a.Change("ttot_end_tag_p95_ms"); c.Says != Absent || c.Pairs != 0 {
		t.Errorf("%+v", c)
	}
	if c := a.Change("end_to_end_p95_ms"); c.Says != Unclear || c.Pairs != 1 {
		t.Errorf("%+v", c)
	}
	if text := strings.Join(rep.Verdict.Text, "\n"); strings.Contains(text, "TTOT") || !strings.Contains(text, "cannot tell in end to end p95") {
		t.Error(text)
	}
}

// The interval of a difference that is none has it in 95 of 100 cases: a verdict is wrong
// about once in twenty times, not more often.
func TestAVerdictIsWrongOnceInTwentyTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	wrong := 0
	const trials = 2000
	for range trials {
		var base, arm []*Figures
		for range 10 {
			common := 1 + r.Float64() // seeds differ more than arms do
			base = append(base, &Figures{EndToEnd: Percentiles{P95: common + 0.1*r.NormFloat64()}})
			arm = append(arm, &Figures{EndToEnd: Percentiles{P95: common + 0.1*r.NormFloat64()}})
		}
		var c Change
		c.Interval, c.Pairs = differing(base, arm, func(f *Figures) float64 { return f.EndToEnd.P95 })
		if s := c.says(false); s != Unclear {
			wrong++
		}
	}
	if share := float64(wrong) / trials; share < 0.03 || share > 0.07 {
		t.Errorf("%v of the verdicts are wrong", share)
	}
}

// The static budget makes other tokens, and so has no place among the others: it stands in
// the part about forcing, with its reason.
func TestTheStaticBudgetStandsApart(t *testing.T) {
	o := small()
	o.Workload.Think = Span{1000, 4000}
	o.Requests, o.Warm, o.Seeds, o.Loads, o.Rate = 60, 0, Seeds(1, 2), nil, 0.2
	o.Arms = slices.DeleteFunc(Arms(&o), func(a Arm) bool { return a.Name != "stock" && a.Name != "static-2048" })
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	l := rep.Loads[0]
	if len(l.Arms) != 1 || len(l.Forced) != 1 || l.Forced[0].Name != "static-2048" {
		t.Fatalf("%d arms, %d forced", len(l.Arms), len(l.Forced))
	}
	stock, capped := l.Arms[0], l.Forced[0]
	if stock.ForceRate != nil || stock.Seeds[0].Forced != nil {
		t.Error("stock has a force rate, and forcing is off")
	}
	f := capped.ForceRate
	if f == nil || f.Converged != 0 || f.Overthinking != 0 || f.HardCap < 0.4 || f.HardCap > 0.9 {
		t.Errorf("force rate %+v", f)
	}
	// The end marker comes after the 2,048th.
	if p := capped.Mean("think_tokens_p95").Mean; p != staticBudget+1 {
		t.Errorf("p95 of thinking %v", p)
	}
	if capped.Tokens >= stock.Tokens || stock.Mean("think_tokens_p95").Mean < 3000 {
		t.Errorf("%d tokens decoded, stock %d", capped.Tokens, stock.Tokens)
	}
	page := rep.Markdown()
	for _, want := range []string{"### Forcing", "hard cap", "| stock |", "| off |", "No signal decides"} {
		if !strings.Contains(strings.ToLower(page), strings.ToLower(want)) {
			t.Errorf("the page has no %q", want)
		}
	}
}

// Every figure that ADR-0005 asks for is in the JSON and on the page.
func TestTheReportHasWhatTheDecisionNames(t *testing.T) {
	o := small()
	o.Requests, o.Warm, o.Seeds, o.Rate, o.Loads = 80, 10, Seeds(1, 2), 5, nil
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ttft", "ttot_end_tag", "ttot_arrival", "output_itl", "think_tokens_mean", "think_tokens_p95", "force_rate", "output_critical_eviction_events",
		"goodput_share", "goodput_rps", "offloaded_bytes", "pulled_bytes", "p50_ms", "p95_ms", "p99_ms", "late_share", "verdict", "relative_error", "step_cost", "source",
	} {
		if !strings.Contains(string(b), `"`+want+`"`) {
			t.Errorf("no %s in the JSON", want)
		}
	}
	for _, never := range []string{"tokens_per_s", "tokens/s", "wall", "machine"} {
		if strings.Contains(string(b), never) {
			t.Errorf("%s is in the JSON", never)
		}
	}
	page := rep.Markdown()
	for _, want := range []string{"TTFT", "TTOT, end of thinking", "TTOT, arrival", "output ITL", "think tokens mean / p95", "force rate", "output-critical evictions", "goodput", "offloaded", "pulled", "M/D/1", "Verdict"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s on the page", want)
		}
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "%!") {
		t.Errorf("%s", page)
	}
}

// A run that is ended in the middle says so, and compares only what every arm has played.
func TestARunThatIsInterrupted(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one play after the other, so that it is known what is done
	o := small()
	o.Requests, o.Warm, o.Seeds, o.Loads = 40, 4, Seeds(1, 6), []float64{0.9, 1.1}
	o.Arms = o.Arms[:3]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all := len(o.Arms) * len(o.Seeds) * len(o.Loads)
	o.Progress = func(p Progress) {
		if p.Total != all {
			t.Errorf("%d plays, want %d", p.Total, all)
		}
		if p.Done == len(o.Arms)*len(o.Seeds)+3*len(o.Arms) { // in the second load
			cancel()
		}
	}
	rep, err := Run(ctx, o)
	if !errors.Is(err, context.Canceled) || rep.Interrupted == "" {
		t.Fatalf("error %v, interrupted %q", err, rep.Interrupted)
	}
	if len(rep.Loads) != 2 || rep.Loads[0].Seeds != 6 || rep.Loads[1].Seeds != 3 {
		t.Fatalf("%+v", rep.Loads)
	}
	for _, a := range rep.Loads[1].Arms {
		if len(a.Seeds) != rep.Loads[1].Seeds {
			t.Errorf("%s has %d seeds of %d", a.Name, len(a.Seeds), rep.Loads[1].Seeds)
		}
	}
	if !strings.Contains(rep.Note(), "NOT THE WHOLE REPORT") || !strings.Contains(rep.Markdown(), "**This is not the whole report.**") || !strings.Contains(rep.Markdown(), "seeds only.") {
		t.Error("the report does not say that it is not whole")
	}
}

// Before anything is played there is nothing to show, and no verdict.
func TestARunThatIsInterruptedAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rep, err := Run(ctx, small())
	if !errors.Is(err, context.Canceled) || rep.Interrupted == "" || len(rep.Loads) != 0 || rep.Verdict != nil {
		t.Errorf("%v: %+v", err, rep)
	}
	if head, rows := rep.Rows(); len(head) == 0 || len(rows) != 0 || rep.Note() == "" || len(rep.Plots()) != 0 {
		t.Error("something is shown of nothing")
	}
}

// What an arm cannot hold is an error, not a partial report.
func TestAnArmThatFailsIsNoPartialReport(t *testing.T) {
	o := small()
	o.Rate, o.Requests, o.Warm = 5, 40, 4
	o.Arms = []Arm{{Name: "stock", Config: queue.Config{Policy: queue.FCFS}}, {Name: "x", Mini: &MiniConfig{MaxNumSequences: 4, MaxNumBatchedTokens: 60}}}
	rep, err := Run(t.Context(), o)
	if err == nil || rep.Interrupted != "" || !strings.Contains(err.Error(), "arm x, seed ") || !errors.Is(err, queue.ErrTooLong) {
		t.Errorf("error %v, interrupted %q", err, rep.Interrupted)
	}
}

func TestGapsOverTime(t *testing.T) {
	c := course{end: windows * time.Second}
	for i := range 100 * windows {
		c.gap(time.Duration(i)*10*time.Millisecond, time.Duration(i%100+1)*time.Millisecond)
	}
	at, v := c.p95()
	if len(at) != windows || at[0] != 0.5 || at[windows-1] != windows-0.5 {
		t.Fatalf("%d windows: %v", len(at), at)
	}
	for i := range v {
		if v[i] < 94 || v[i] > 96 { // a value at the edge may be the neighbour's
			t.Errorf("window %d: p95 %v", i, v[i])
		}
	}
	if at, v := (&course{}).p95(); at != nil || v != nil {
		t.Error("gaps of nothing")
	}
}

func TestHistogramAgreesWithSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var h histogram
	var v []float64
	for range 10_000 {
		d := time.Duration(r.ExpFloat64() * float64(80*time.Millisecond)).Truncate(time.Microsecond)
		h.add(d)
		v = append(v, ms(d))
	}
	if got, want := h.percentiles(), percentiles(v); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := (&histogram{}).percentiles(); got != (Percentiles{}) {
		t.Errorf("%+v of nothing", got)
	}
}

func TestThinnedCoursesKeepTheirPeaks(t *testing.T) {
	var p []plot.Point
	for i := range 10_000 {
		p = append(p, plot.Point{X: float64(i), Y: float64(i % 7)})
	}
	p[4321].Y, p[77].Y = 1000, -5
	out := thinned(p)
	if len(out) > coursePoints || len(out) < coursePoints/2 {
		t.Fatalf("%d points", len(out))
	}
	if !slices.Contains(out, plot.Point{X: 4321, Y: 1000}) || !slices.Contains(out, plot.Point{X: 77, Y: -5}) {
		t.Error("a peak is lost")
	}
	for i := range out[1:] {
		if out[i].X >= out[i+1].X {
			t.Fatalf("%v before %v", out[i], out[i+1])
		}
	}
	if got := thinned(p[:100]); len(got) != 100 {
		t.Errorf("%d points of 100", len(got))
	}
}

func TestChangesForPeople(t *testing.T) {
	for want, c := range map[string]Change{
		"-50±2 %":             {Interval: Interval{-0.5, -0.52, -0.48}},
		"+3.2±0.5 %":          {Interval: Interval{0.032, 0.027, 0.037}},
		"-0.030±0.010 points": {Points: true, Interval: Interval{-0.0003, -0.0004, -0.0002}},
		"+0±0 %":              {},
	} {
		if c.Pairs = 3; c.text() != want {
			got := c.text()
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := (&Change{Interval: Interval{0.25, 0.25, 0.25}, Pairs: 1}).text(); got != "+25 %" {
		t.Errorf("%s of one seed", got)
	}
}
