package cachebench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"meridian/bench/trace"
)

// Limits of Options, so that a mistake is an error and not an hour's wait.
const (
	MostBlocks = 1 << 22 // of a cache
	mostSizes  = 64
)

// Trace is a named input.
type Trace struct {
	Name     string
	Requests []trace.Request
}

// Options of a run.
type Options struct {
	Traces   []Trace
	Sizes    []int // of the cache, in blocks of trace.BlockTokens tokens
	Tiers    bool  // replay in time, with the arms of the study of tiers, instead of the policies
	Thinking Thinking
	Progress func(string) // nil: nobody is told
}

// Defaults of Options: the sizes at which the traces' ratios were published, and what
// docs/results.md says of thinking.
func Defaults() Options {
	return Options{
		Sizes:    []int{1000, 3000, 10000, 30000, 50000, 100000},
		Thinking: Thinking{Ratio: 0.4, Least: 600, Most: 6000, PerToken: 20 * time.Millisecond, Seed: 1},
	}
}

// Check says which option cannot be.
func (o *Options) Check() error {
	th := &o.Thinking
	switch {
	case len(o.Traces) == 0:
		return fmt.Errorf("no trace")
	case len(o.Sizes) == 0 || len(o.Sizes) > mostSizes:
		return fmt.Errorf("%d cache sizes: from 1 to %d can be compared", len(o.Sizes), mostSizes)
	case !(th.Ratio >= 0 && th.Ratio <= 1):
		return fmt.Errorf("a reasoning ratio of %v: it lies between 0 and 1", th.Ratio)
	case th.Least < 0 || th.Most < th.Least || th.Most > 1<<20:
		return fmt.Errorf("%d to %d think tokens: at least 0, at most %d", th.Least, th.Most, 1<<20)
	case th.PerToken <= 0 || th.PerToken > time.Minute:
		return fmt.Errorf("%v a token: above 0, at most a minute", th.PerToken)
	}
	for _, n := range o.Sizes {
		if n < BlocksAnExtent || n > MostBlocks || n%BlocksAnExtent != 0 {
			return fmt.Errorf("a cache of %d blocks: a multiple of %d from %d to %d", n, BlocksAnExtent, BlocksAnExtent, MostBlocks)
		}
	}
	for _, t := range o.Traces {
		if len(t.Requests) == 0 {
			return fmt.Errorf("trace %s has no request", t.Name)
		}
		if !slices.IsSortedFunc(t.Requests, func(a, b trace.Request) int { return int(a.At - b.At) }) {
			return fmt.Errorf("trace %s: its requests are not in order of time", t.Name)
		}
	}
	return nil
}

// Run replays each trace at each size, with each policy or each arm of the study of tiers.
// The same options give the same report.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Check(); err != nil {
		return Report{}, err
	}
	rep := Report{BlockTokens: trace.BlockTokens}
	if o.Tiers {
		rep.Thinking = &o.Thinking
	}
	for _, t := range o.Traces {
		tr, err := o.trace(ctx, t)
		if err != nil {
			return Report{}, fmt.Errorf("trace %s: %w", t.Name, err)
		}
		rep.Traces = append(rep.Traces, tr)
	}
	return rep, nil
}

func (o *Options) trace(ctx context.Context, t Trace) (TraceReport, error) {
	prompts := make([][]int, len(t.Requests))
	for i := range t.Requests {
		prompts[i] = t.Requests[i].Blocks
	}
	ideal := trace.LRU(t.Requests, 0)
	tr := TraceReport{Name: t.Name, Requests: len(prompts), Lookups: ideal.Lookups, Distinct: ideal.Distinct, Ideal: ideal.Ratio()}
	for _, n := range o.Sizes {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("%s, %d blocks", t.Name, n))
		}
		study := o.policies
		if o.Tiers {
			study = o.arms
		}
		row, err := study(ctx, t.Requests, prompts, n)
		if err != nil {
			return tr, err
		}
		tr.Rows = append(tr.Rows, row)
	}
	return tr, nil
}

func (o *Options) policies(ctx context.Context, _ []trace.Request, prompts [][]int, n int) (Row, error) {
	row := Row{Blocks: n}
	s, err := newStore(n)
	if err != nil {
		return row, err
	}
	ours := &engine{store: s}
	for _, p := range []struct {
		c   cache
		out *float64
	}{{newLRU(n), &row.LRU}, {newS3FIFO(n), &row.S3FIFO}, {ours, &row.Meridian}, {newBelady(n, prompts), &row.Belady}} {
		hits, of := 0, 0
		for i, q := range prompts {
			if i%1024 == 0 && ctx.Err() != nil {
				return row, ctx.Err()
			}
			hits += p.c.serve(q)
			of += len(q)
		}
		*p.out = ratio(hits, of)
	}
	return row, ours.err
}

func (o *Options) arms(ctx context.Context, reqs []trace.Request, _ [][]int, n int) (Row, error) {
	row := Row{Blocks: n}
	for _, arm := range Arms() {
		k, err := runArm(ctx, reqs, n, arm, o.Thinking)
		if err != nil {
			return row, err
		}
		row.Tiers = append(row.Tiers, k)
	}
	return row, nil
}

func ratio(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return math.Round(float64(n)/float64(of)*1e6) / 1e6
}
