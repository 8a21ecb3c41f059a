package main

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent"
	"meridian/bench/measure"
	"meridian/bench/think"
	"meridian/bench/think/real"
	"meridian/internal/safefile"
)

// thinkTimeout is for 20 seeds of five arms at four loads.
const thinkTimeout = 4 * time.Hour

func newBenchThinkCmd(a *app) *cobra.Command {
	opt := think.Defaults()
	w := thinkFlags{workload: opt.Workload.Name, cost: opt.Cost.Name, ratio: opt.Workload.ReasoningRatio, seeds: len(opt.Seeds)}
	mode, nodes, out := modelMode, thinkReal{}, ""
	c := &cobra.Command{
		Use:   "think",
		Short: "Compare scheduling policies for requests that think",
		Long: `Plays random requests, of which a share thinks before it answers, through the
real phase router and the real queue of a batch engine, with each policy and
with stock's (vLLM V1's loop), and shows how long answers take. Only the
duration of an engine's step is a model; the report names its parameters.

All arms have the same requests and decode the same tokens, but for those that
are marked: they cut thinking. Loads are shares of what stock can serve. Each
change is a mean over the seeds, compared seed by seed, with its 95 % interval;
the verdict says what the run can tell and what it cannot. The report has a
comparison with queueing theory, too. The same flags give the same report on
every machine.

Nothing is downloaded: sharegpt and math500 need --dataset, a file with the
published field names. sharegpt takes chat from it, and math500 what is reasoned
about; fast25 takes both and the times of arrival, of --dataset or the
conversation trace of FAST '25, and a share of its requests thinks.

The whole of it takes some minutes; --seeds 3 is a first look. ^C ends it with
a report of what is done, and an error.

With --mode real-llamacpp the same figures are of real llama.cpp nodes on this
machine, one for each policy, whose clients ask over HTTP at the same time:
some read along, the others are background. What is not given has the default
after "real:" then, that of a small model on two processors.`,
		Example: "  mrdn bench think --seeds 3\n  mrdn bench think --workload answer-heavy --kv-tokens 120000 \\\n      --loads 0.95,1.1 --out results\n" +
			"  mrdn bench think --workload fast25 --loads 0.95 --seeds 5\n  mrdn bench think --workload math500 --dataset test.jsonl --duration 20m\n  mrdn bench think --rate 2.5 --reasoning-ratio 0.7 --json\n  mrdn bench think --mode real-llamacpp --fetch --rounds 3",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	f.StringVar(&mode, "mode", mode, modelMode+" (a model, in virtual time) or "+real.Mode)
	f.StringVar(&w.workload, "workload", w.workload, "requests: "+strings.Join(workloads, ", "))
	f.StringVar(&w.dataset, "dataset", "", "`FILE` that sharegpt, math500 or fast25 take requests from")
	f.Float64Var(&w.ratio, "reasoning-ratio", w.ratio, "share of requests that think")
	f.StringVar(&w.cost, "cost", w.cost, "model of a step's duration: h100-8b or seed")
	f.IntVar(&opt.Slots, "slots", opt.Slots, "requests in the batch")
	f.IntVar(&opt.StepTokens, "step-tokens", opt.StepTokens, "tokens of a step")
	f.IntVar(&opt.KVTokens, "kv-tokens", opt.KVTokens, "tokens in KV memory")
	f.IntVar(&opt.Requests, "requests", opt.Requests, "requests of a seed")
	f.DurationVar(&opt.Duration, "duration", 0, "virtual time of arrivals, in place of --requests")
	f.IntVar(&opt.Warm, "warm", opt.Warm, "first requests of a seed that are not counted; -1: a quarter")
	f.IntVar(&w.seeds, "seeds", w.seeds, "how many seeds")
	f.StringSliceVar(&w.seed, "seed", []string{"1"}, "the first `SEED`, or each of them")
	f.Lookup("seed").DefValue = "1"
	f.Float64SliceVar(&opt.Loads, "loads", opt.Loads, "`LOADS`, as shares of what stock can serve")
	f.Lookup("loads").DefValue = "0.7,0.85,0.95,1.05"
	f.Float64Var(&opt.Rate, "rate", 0, "requests a second, instead of loads")
	f.DurationVar(&opt.FirstAnswer, "slo-first-answer", opt.FirstAnswer, "SLO from arrival to the first token")
	f.DurationVar(&opt.ThinkPace, "slo-think-token", opt.ThinkPace, "SLO of a thinking token")
	f.DurationVar(&opt.OutputPace, "slo-output-token", opt.OutputPace, "SLO of an output token, at which readers read")
	f.DurationVar(&opt.Bound, "late", opt.Bound, "a visible token is late that comes so long after the one before")
	f.BoolVar(&opt.Keeps, "keeps-thinking", false, "the model's template keeps thinking in the history, so its blocks are kept")
	f.BoolVar(&w.ablations, "ablations", false, "play our policies with one thing changed, to see what that is worth")
	f.StringVar(&out, "out", "", "folder for the report and its plots; made if absent")
	nodes.add(c)
	c.RunE = a.commandWithin(thinkTimeout, func(ctx context.Context, _ []string) (result, error) {
		given := c.Flags().Changed
		if err := checkMode(given, mode); err != nil {
			return nil, err
		}
		if mode == real.Mode {
			return nodes.run(ctx, a, given, &w, &opt, out)
		}
		if err := w.parse(&opt, given); err != nil {
			return nil, err
		}
		if opt.Arms = think.Arms(&opt); w.ablations {
			opt.Arms = think.Ablations(&opt)
		}
		if err := opt.Check(); err != nil {
			return nil, usage("%v", err)
		}
		if err := readyReport(out); err != nil {
			return nil, err
		}
		return playThink(ctx, a, opt, out)
	})
	return c
}

// playThink runs it, and writes the report, also one that was interrupted.
func playThink(ctx context.Context, a *app, opt think.Options, out string) (result, error) {
	if isTerminal(a.err) {
		b := bar{w: a.err}
		opt.Progress = func(p think.Progress) { b.show(p.Done, p.Total, p.Now) }
		defer b.end()
	}
	m := measure.Begin()
	rep, err := think.Run(ctx, opt)
	if err != nil && rep.Interrupted == "" {
		return nil, err
	}
	if out != "" {
		files := rep.Plots()
		files["report.md"] = rep.Markdown()
		b, e := encodeJSON(m.End(agent.BuildVersion()))
		files["machine.json"] = string(b)
		err = errors.Join(err, e, writeReport(out, rep, files))
	}
	return benchThinkResult{rep}, err
}

// thinkFlags are those that name things.
type thinkFlags struct {
	workload, dataset, cost string
	ratio                   float64
	seeds                   int
	seed                    []string
	ablations               bool
}

// workloads are the names of what --workload takes.
var workloads = []string{think.Reference().Name, think.AnswerHeavy().Name, think.ShareGPT, think.Math500, think.Fast25}

// parse fills in what the flags name.
func (w *thinkFlags) parse(opt *think.Options, given func(string) bool) (err error) {
	if given("duration") {
		if given("requests") {
			return usage("--duration and --requests: one of them says how many requests there are")
		}
		if opt.Duration == 0 {
			return usage("--duration: 0s: above 0")
		}
	}
	if given("rate") {
		if given("loads") {
			return usage("--rate and --loads: one of them says how often requests come")
		}
		if opt.Rate == 0 {
			return usage("--rate: 0 requests a second: above 0")
		}
	}
	if opt.Workload, err = w.requests(); err != nil {
		return err
	}
	opt.Workload.ReasoningRatio = w.ratio
	if opt.Seeds, err = w.seedList(given("seeds")); err != nil {
		return err
	}
	var names []string
	for _, c := range think.Costs() {
		if names = append(names, c.Name); c.Name == w.cost {
			opt.Cost = c
			return nil
		}
	}
	return usage("--cost: %q is none of %s", w.cost, strings.Join(names, ", "))
}

// requests is the workload.
func (w *thinkFlags) requests() (think.Workload, error) {
	spans := []think.Workload{think.Reference(), think.AnswerHeavy()}
	if i := slices.IndexFunc(spans, func(x think.Workload) bool { return x.Name == w.workload }); i >= 0 {
		if w.dataset != "" {
			return think.Workload{}, usage("--dataset: the %s workload is drawn from distributions and takes no file", w.workload)
		}
		return spans[i], nil
	}
	if !slices.Contains(workloads, w.workload) {
		return think.Workload{}, usage("--workload: %q is none of %s", w.workload, strings.Join(workloads, ", "))
	}
	if w.dataset == "" {
		if w.workload != think.Fast25 {
			return think.Workload{}, usage("--workload %s needs --dataset: nothing is downloaded", w.workload)
		}
		d, err := think.Conversation()
		if err != nil {
			return think.Workload{}, err
		}
		return think.Of(d), nil
	}
	f, err := safefile.Input(w.dataset)
	if err != nil {
		return think.Workload{}, usage("--dataset: %v", err)
	}
	d, err := think.ReadDataset(w.workload, filepath.Base(w.dataset), f)
	_ = f.Close() // it was read only
	if err != nil {
		return think.Workload{}, usage("--dataset: %v", err)
	}
	return think.Of(d), nil
}

// seedList are the seeds: those from the first one on, or each that is given.
func (w *thinkFlags) seedList(counted bool) ([]uint64, error) {
	var all []uint64
	for _, s := range w.seed {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, usage("--seed: %q is no whole number from 0 to %d", s, uint64(math.MaxUint64))
		}
		all = append(all, n)
	}
	if len(all) != 1 {
		if counted && len(all) != w.seeds {
			return nil, usage("--seeds: %d, and --seed names %d", w.seeds, len(all))
		}
		return all, nil
	}
	if w.seeds < 1 || w.seeds > 1000 {
		return nil, usage("--seeds: %d: from 1 to 1000", w.seeds)
	}
	return think.Seeds(all[0], w.seeds), nil
}

type benchThinkResult struct{ think.Report }

func (r benchThinkResult) grid(bool) grid { return reportGrid(r.Rows, r.Note) }
