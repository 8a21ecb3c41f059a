package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"meridian/bench/think"
)

// thinkTimeout is for 20 seeds of five arms at four loads.
const thinkTimeout = 4 * time.Hour

func newBenchThinkCmd(a *app) *cobra.Command {
	opt := think.Defaults()
	workload, cost, out := opt.Workload.Name, opt.Cost.Name, ""
	ratio := opt.Workload.ReasoningRatio
	c := &cobra.Command{
		Use:   "think",
		Short: "Compare scheduling policies for requests that think, simulated",
		Long: `Plays random requests, of which a share thinks before it answers, through the
real phase router and the real queue of a batch engine, with each policy and
with stock's (vLLM V1's loop), and shows how long answers take. Only the
duration of an engine's step is a model; the report names its parameters.

All arms have the same requests and decode the same tokens. Loads are shares of
what stock can serve. Each change is a mean over the seeds, compared seed by
seed, with its 95 % interval. The report has a comparison with queueing theory,
too. The same flags give the same report on every machine.

The whole of it takes some minutes; --seeds 3 is a first look.`,
		Example:     "  mrdn bench think --seeds 3\n  mrdn bench think --workload answer-heavy --kv-tokens 120000 \\\n      --loads 0.95,1.1 --out results\n  mrdn bench think --rate 2.5 --reasoning-ratio 0.7 --json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	f.StringVar(&workload, "workload", workload, "requests: reference or answer-heavy")
	f.Float64Var(&ratio, "reasoning-ratio", ratio, "share of requests that think")
	f.StringVar(&cost, "cost", cost, "model of a step's duration: h100-8b or seed")
	f.IntVar(&opt.Slots, "slots", opt.Slots, "requests in the batch")
	f.IntVar(&opt.StepTokens, "step-tokens", opt.StepTokens, "tokens of a step")
	f.IntVar(&opt.KVTokens, "kv-tokens", opt.KVTokens, "tokens in KV memory")
	f.IntVar(&opt.Requests, "requests", opt.Requests, "requests of a seed")
	f.IntVar(&opt.Warm, "warm", opt.Warm, "of them, the first ones that are not counted")
	f.IntVar(&opt.Seeds, "seeds", opt.Seeds, "seeds")
	f.Uint64Var(&opt.Seed, "seed", opt.Seed, "the first seed")
	f.Float64SliceVar(&opt.Loads, "loads", opt.Loads, "`LOADS`, as shares of what stock can serve")
	f.Lookup("loads").DefValue = "0.7,0.85,0.95,1.05"
	f.Float64Var(&opt.Rate, "rate", 0, "requests a second, instead of loads")
	f.DurationVar(&opt.FirstAnswer, "slo-first-answer", opt.FirstAnswer, "SLO from arrival to the first token")
	f.DurationVar(&opt.ThinkPace, "slo-think-token", opt.ThinkPace, "SLO of a thinking token")
	f.DurationVar(&opt.OutputPace, "slo-output-token", opt.OutputPace, "SLO of an output token, at which readers read")
	f.DurationVar(&opt.Bound, "late", opt.Bound, "a visible token is late that comes so long after the one before")
	f.StringVar(&out, "out", "", "folder for report.json and the plots; made if absent")
	run := a.command(func(ctx context.Context, _ []string) (result, error) {
		if err := parseThink(&opt, workload, cost, ratio); err != nil {
			return nil, err
		}
		opt.Arms = think.Arms(&opt)
		if err := opt.Check(); err != nil {
			return nil, usage("%v", err)
		}
		if isTerminal(a.err) {
			opt.Progress = func(s string) { _, _ = fmt.Fprintln(a.err, "playing", s) }
		}
		rep, err := think.Run(ctx, opt)
		if err == nil && out != "" {
			err = writeReport(out, rep, rep.Plots())
		}
		return benchThinkResult{rep}, err
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if !c.Flags().Changed("timeout") {
			a.timeout = thinkTimeout
		}
		return run(c, args)
	}
	return c
}

// parseThink fills in what the flags name.
func parseThink(opt *think.Options, workload, cost string, ratio float64) error {
	all := []think.Workload{think.Reference(), think.AnswerHeavy()}
	i := slices.IndexFunc(all, func(w think.Workload) bool { return w.Name == workload })
	if i < 0 {
		return usage("--workload: %q is neither %s nor %s", workload, all[0].Name, all[1].Name)
	}
	opt.Workload = all[i]
	opt.Workload.ReasoningRatio = ratio
	var names []string
	for _, c := range think.Costs() {
		if names = append(names, c.Name); c.Name == cost {
			opt.Cost = c
			return nil
		}
	}
	return usage("--cost: %q is none of %s", cost, strings.Join(names, ", "))
}

type benchThinkResult struct{ think.Report }

func (r benchThinkResult) grid(bool) grid {
	head, rows := r.Rows()
	return grid{head: head, rows: rows, note: folded(r.Note())}
}
