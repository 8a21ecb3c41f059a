package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"meridian/bench/cachebench"
	"meridian/bench/trace"
	"meridian/internal/safefile"
)

func newBenchCacheCmd(a *app) *cobra.Command {
	opt := cachebench.Defaults()
	var files []string
	var out string
	c := &cobra.Command{
		Use:   "cache",
		Short: "Compare which blocks the store keeps with LRU, S3-FIFO and Belady",
		Long: `Replays request traces through the block store's own bookkeeping and through
plain LRU, S3-FIFO and Belady's policy, which knows the future, and shows the
share of block references that hit. With --tiers it replays them in time, with
a share of requests that think, and shows what the tiers of blocks are worth:
hits, and evicted prompt and output blocks of requests that ran.

Nothing is measured: the same flags give the same report on every machine. The
traces are the two that were published with Mooncake (FAST '25), or those of
--trace: JSON lines with timestamp (ms), input_length, output_length and
hash_ids.`,
		Example:     "  mrdn bench cache\n  mrdn bench cache --tiers --reasoning-ratio 0.8 --out results\n  mrdn bench cache --trace requests.jsonl --json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	f.StringSliceVar(&files, "trace", nil, "files of requests (default: the two traces of FAST '25)")
	f.IntSliceVar(&opt.Sizes, "sizes", opt.Sizes, fmt.Sprintf("cache sizes in blocks of %d tokens, multiples of %d", trace.BlockTokens, cachebench.BlocksAnExtent))
	f.BoolVar(&opt.Tiers, "tiers", false, "study the tiers of blocks instead of the policies")
	f.Float64Var(&opt.Thinking.Ratio, "reasoning-ratio", opt.Thinking.Ratio, "share of requests that think (with --tiers)")
	f.Uint64Var(&opt.Thinking.Seed, "seed", opt.Thinking.Seed, "which requests think, and for how many tokens (with --tiers)")
	f.StringVar(&out, "out", "", "folder for report.json and the plots; made if absent")
	c.RunE = a.longCommand(func(ctx context.Context, _ []string) (result, error) {
		var err error
		if opt.Traces, err = readTraces(files); err != nil {
			return nil, usage("--trace: %v", err)
		}
		if err := opt.Check(); err != nil {
			return nil, usage("%v", err)
		}
		if err := readyReport(out); err != nil {
			return nil, err
		}
		opt.Progress = a.progress("replaying")
		rep, err := cachebench.Run(ctx, opt)
		if err == nil && out != "" {
			err = writeReport(out, rep, rep.Plots())
		}
		return benchCacheResult{rep, opt.Tiers}, err
	})
	return c
}

// readTraces reads the files, or the traces that are part of this program.
func readTraces(files []string) ([]cachebench.Trace, error) {
	if len(files) == 0 {
		talks, err := trace.Conversation(0)
		if err != nil {
			return nil, err
		}
		made, err := trace.Synthetic(0)
		return []cachebench.Trace{{Name: "conversation", Requests: talks}, {Name: "synthetic", Requests: made}}, err
	}
	var all []cachebench.Trace
	for _, name := range files {
		f, err := safefile.Input(name)
		if err != nil {
			return nil, err
		}
		reqs, err := trace.Read(f, 0)
		_ = f.Close() // it was read only
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		base := filepath.Base(name)
		all = append(all, cachebench.Trace{Name: strings.TrimSuffix(base, filepath.Ext(base)), Requests: reqs})
	}
	return all, nil
}

type benchCacheResult struct {
	cachebench.Report
	tiers bool
}

func (r benchCacheResult) grid(bool) grid {
	head, rows := r.Rows(r.tiers)
	return grid{head: head, rows: rows, note: folded(r.Note(r.tiers))}
}
