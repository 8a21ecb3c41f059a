package think

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"meridian/scheduler/queue"
)

// small is a run of a moment: a tenth of the engine, so that few requests fill it.
func small() Options {
	o := Defaults()
	o.Slots, o.StepTokens, o.KVTokens = 16, 512, 16_000
	o.Workload.Think, o.Workload.Answer = Span{100, 1500}, Span{50, 300}
	o.Arms = Arms(&o)
	o.Requests, o.Warm, o.Seeds, o.Loads, o.Sanity = 500, 50, Seeds(1, 3), []float64{1.2}, 1000
	return o
}

func TestTheModelAgreesWithQueueingTheory(t *testing.T) {
	rows, err := sanity(t.Context(), 1, 150_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range rows {
		if math.Abs(s.Error) > 0.03 || s.WaitMS <= 0 {
			t.Errorf("M/D/1 at %v: mean wait %v ms, theory %v ms", s.Utilisation, s.WaitMS, s.TheoryMS)
		}
	}
}

// Every arm decodes the same tokens, and what the policies are for shows at a load that
// stock cannot serve.
func TestWhatPoliciesAreFor(t *testing.T) {
	o := small()
	o.Requests, o.Warm, o.Rate, o.Loads = 300, 30, 5, nil // stock can serve four a second
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]*ArmReport{}
	l := &rep.Loads[0]
	for i := range l.Arms {
		by[l.Arms[i].Name] = &l.Arms[i]
	}
	mean := func(arm, figure string) float64 {
		t.Helper()
		v := by[arm].Mean(figure).Mean
		if math.IsNaN(v) {
			t.Fatalf("%s has no %s", arm, figure)
		}
		return v
	}
	if mean("stock", "recomputed_tokens") == 0 || mean("stock", "preempted") == 0 {
		t.Fatalf("stock was under no pressure: %+v", by["stock"].Means)
	}
	for name, a := range by {
		recomputes := name == "stock" || name == "minivllm"
		if anew := mean(name, "recomputed_tokens"); !recomputes && anew > mean("stock", "recomputed_tokens")/10 {
			t.Errorf("%s computed %v tokens again, stock %v", name, anew, mean("stock", "recomputed_tokens"))
		}
		if mean(name, "offloaded_bytes") == 0 != recomputes {
			t.Errorf("%s offloaded %v bytes", name, mean(name, "offloaded_bytes"))
		}
		if a.Tokens != by["stock"].Tokens || a.Tokens == 0 {
			t.Errorf("%s decoded %d tokens, stock %d", name, a.Tokens, by["stock"].Tokens)
		}
	}
	change := by["output-first"].Change("chat_answer_p95_ms")
	if mean("output-first", "chat_answer_p95_ms") > mean("stock", "chat_answer_p95_ms")/2 || change.High > -0.5 || change.Says != Better {
		t.Errorf("answers without thinking: %v ms, stock %v ms, change %+v", mean("output-first", "chat_answer_p95_ms"), mean("stock", "chat_answer_p95_ms"), change)
	}
	head, rows := rep.Rows()
	if len(rows) != len(by)+1 || len(rows[0]) != len(head) { // and the arm that cuts thinking
		t.Errorf("%d rows of %d columns, %d heads", len(rows), len(rows[0]), len(head))
	}
	plots := rep.Plots()
	if len(plots) != 6+len(by) {
		t.Errorf("%d plots", len(plots))
	}
	for name, svg := range plots {
		if !strings.Contains(svg, "output-first") && !strings.HasPrefix(name, "tiers-") || strings.Contains(svg, "NaN") {
			t.Errorf("%s: %.200s", name, svg)
		}
	}
}

func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	var reports [3][]byte
	for i := range reports {
		o := small()
		o.Requests, o.Warm, o.Seeds = 80, 10, Seeds(1, 2)
		if i == 2 {
			o.Seeds = Seeds(7, 2)
		}
		rep, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		rep.Seeds = nil
		if reports[i], err = json.Marshal(rep); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(reports[0], reports[1]) {
		t.Error("two runs of one seed differ")
	}
	if reflect.DeepEqual(reports[0], reports[2]) {
		t.Error("two seeds give the same report")
	}
}

// A reader reads at the pace of the SLO: what was made earlier waits for him, and what
// comes late is late once.
func TestWhatAReaderSees(t *testing.T) {
	o := Defaults()
	o.OutputPace, o.Bound = 50*time.Millisecond, 100*time.Millisecond
	r := &run{cfg: &o}
	q := &request{arrival: arrival{think: 1}, counted: true}
	for i, at := range []int{5, 10, 20, 30, 90, 400, 410} { // ms; the first is a think token
		r.now, q.decoded = time.Duration(at)*time.Millisecond, i+1
		r.visible(q)
	}
	if q.first != 5*time.Millisecond || q.answered != 10*time.Millisecond || q.gaps != 5 || q.late != 1 {
		t.Errorf("first %v, answered %v, %d gaps, %d late", q.first, q.answered, q.gaps, q.late)
	}
	// Made after 10, 10, 60, 310 and 10 ms; read after 50, 50, 50, 240 and 50.
	if got := r.made.percentiles(); got != (Percentiles{10, 310, 310}) {
		t.Errorf("made %+v", got)
	}
	if got := r.read.percentiles(); got != (Percentiles{50, 240, 240}) {
		t.Errorf("read %+v", got)
	}
}

func TestPercentilesAndIntervals(t *testing.T) {
	var v []float64
	for i := 100; i > 0; i-- {
		v = append(v, float64(i))
	}
	if p := percentiles(v); p != (Percentiles{50, 95, 99}) {
		t.Errorf("%+v", p)
	}
	if p := percentiles(nil); p != (Percentiles{}) {
		t.Errorf("%+v of nothing", p)
	}
	// 1, 2, 3: mean 2, deviation 1, t of 2 degrees 4.303.
	if got, half := interval([]float64{1, 2, 3}), 4.303/math.Sqrt(3); math.Abs(got.Mean-2) > 1e-9 || math.Abs(got.High-2-half) > 1e-4 || math.Abs(2-half-got.Low) > 1e-4 {
		t.Errorf("%+v, half should be %v", got, half)
	}
	base := []*Figures{{Goodput: 1}, {Goodput: 2}, {Goodput: 0}}
	arm := []*Figures{{Goodput: 0.5}, {Goodput: 1}, {Goodput: 9}} // the last has nothing to compare with
	if got, n := paired(base, arm, func(f *Figures) float64 { return f.Goodput }); n != 2 || got != (Interval{-0.5, -0.5, -0.5}) {
		t.Errorf("%+v of %d", got, n)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for want, f := range map[string]func(*Options){
		"no arm":                               func(o *Options) { o.Arms = nil },
		"compared with does not":               func(o *Options) { o.Arms[0].ThinkCap = 5 },
		"reasoning ratio of 2":                 func(o *Options) { o.Workload.ReasoningRatio = 2 },
		"thinking of 9 to 3":                   func(o *Options) { o.Workload.Think = Span{9, 3} },
		"of which 500":                         func(o *Options) { o.Warm = o.Requests },
		"0 requests, of":                       func(o *Options) { o.Requests = 0 },
		"0 seeds":                              func(o *Options) { o.Seeds = nil },
		"seed 4 is there twice":                func(o *Options) { o.Seeds = []uint64{4, 5, 4} },
		"0 requests for":                       func(o *Options) { o.Sanity = 0 },
		"load of 0":                            func(o *Options) { o.Loads = []float64{0} },
		"load of NaN":                          func(o *Options) { o.Loads = []float64{math.NaN()} },
		"load of 0.9 is there twice":           func(o *Options) { o.Loads = []float64{0.9, 0.9} },
		"neither a rate nor loads":             func(o *Options) { o.Loads = nil },
		"rate of -1":                           func(o *Options) { o.Rate = -1 },
		"rate of NaN":                          func(o *Options) { o.Rate = math.NaN() },
		"arrivals for -1s":                     func(o *Options) { o.Duration = -time.Second },
		"a step takes time":                    func(o *Options) { o.Cost = Cost{MoveGBs: 1} },
		"1000 KV tokens":                       func(o *Options) { o.KVTokens, o.BlockTokens = 1000, 1001 },
		"the cache has 896":                    func(o *Options) { o.KVTokens = 1000 },
		"SLO to the first answer of 0s":        func(o *Options) { o.FirstAnswer = 0 },
		"SLO of a thinking token of 0s":        func(o *Options) { o.ThinkPace = 0 },
		"SLO of an output token of -1ns":       func(o *Options) { o.OutputPace = -1 },
		"late after 50ms, and a reader":        func(o *Options) { o.Bound = o.OutputPace },
		"0 slots":                              func(o *Options) { o.Slots = 0 },
		"budget of 3 tokens for a step of 16 ": func(o *Options) { o.StepTokens = 3 },
		"arm x: queue: Policy":                 func(o *Options) { o.Arms = []Arm{{Name: "x"}} },
	} {
		o := small()
		f(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, small()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v of a run that was cancelled", err)
	}
}

// A request that outgrows the engine is an error of the run, not an endless one.
func TestARequestThatOutgrowsTheEngine(t *testing.T) {
	o := small()
	r, err := newRun(t.Context(), &o, Arm{Config: queue.Config{Policy: queue.FCFS}}, []arrival{{prompt: 10, answer: o.KVTokens}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.play(); !errors.Is(err, errStuck) {
		t.Errorf("error %v", err)
	}
}
