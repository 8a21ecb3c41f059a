package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"meridian/bench/bridge"
	"meridian/bench/linkbench"
	"meridian/bench/loadbench"
	"meridian/bench/peers"
)

// benchProcess is the first argument of this program when a benchmark has
// started it again as its other side.
const benchProcess = "bench-process"

// playHolder is the whole of such a process: one of the peers' pairs, a daemon or
// plain server of `bench load`, a daemon of `bench bridge`, or the holder of `bench link`.
func playHolder(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) > 0 && args[0] == peersProcess {
		return peers.Play(ctx, args[1:], in, out)
	}
	if len(args) > 0 && args[0] == loadProcess {
		return loadbench.Play(ctx, args[1:], in)
	}
	if len(args) > 0 && args[0] == bridgeProcess {
		return bridge.Play(ctx, args[1:])
	}
	if len(args) != 4 {
		return fmt.Errorf("want CAPACITY LANES CONGESTION DIR, got %q", args)
	}
	capacity, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return err
	}
	lanes, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	return linkbench.Hold(ctx, capacity, lanes, args[2], args[3], in, out)
}

func newBenchCmd(a *app) *cobra.Command {
	return group(a, "bench", "Measure on this machine", "  mrdn bench load\n  mrdn bench link\n  mrdn bench peers\n  mrdn bench mooncake\n  mrdn bench nixl\n  mrdn bench bridge\n  mrdn bench llama\n  mrdn bench cache\n  mrdn bench think\n  mrdn bench force", newBenchLoadCmd(a), newBenchLinkCmd(a), newBenchPeersCmd(a), newBenchMooncakeCmd(a), newBenchNIXLCmd(a), newBenchBridgeCmd(a), newBenchLlamaCmd(a), newBenchCacheCmd(a), newBenchThinkCmd(a), newBenchForceCmd(a))
}

func newBenchLinkCmd(a *app) *cobra.Command {
	var opt linkbench.Options
	var sizes []string
	var baseline, ratios string
	c := &cobra.Command{
		Use:   "link",
		Short: "Measure pulls over loopback and mapped reads beside raw sockets",
		Long: `Measures verified pulls between two processes over loopback TCP and compares
them with plain sockets and with the hash alone, in the same run; an engine's
mapped read compared with a bare socket round trip; and an urgent pull while
offloads use all of the peer's bandwidth. Stop other work first: it takes about
a minute and uses two processors.

--ratios writes each result divided by the bound that was measured in the same
run. --baseline compares this run with such a file and lists what has become
slower by more than noise; that is a report and never a failure.`,
		Example:     "  mrdn bench link\n  mrdn bench link --sizes 64KiB --rounds 9 --json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	f.StringSliceVar(&sizes, "sizes", []string{"16KiB", "64KiB", "1MiB", "4MiB"}, "block sizes")
	f.IntVar(&opt.Batch, "batch", 64, "blocks a pull, at most 16 MiB together")
	f.IntVar(&opt.Streams, "streams", 0, "connections, and pulls at the same time (default: the cores, at most 4)")
	f.IntVar(&opt.Rounds, "rounds", 5, "rounds, of which the median is shown")
	f.DurationVar(&opt.Round, "round", 500*time.Millisecond, "length of one measurement")
	f.StringVar(&opt.Congestion, "congestion", "", "congestion control of all sockets (default: cubic where the kernel has it)")
	f.StringVar(&ratios, "ratios", "", "write the ratios of this run to this file, as JSON")
	f.StringVar(&baseline, "baseline", "", "compare with the ratios of this file")
	c.RunE = a.longCommand(func(ctx context.Context, _ []string) (result, error) {
		var base linkbench.Ratios
		var err error
		if baseline != "" {
			if base, err = linkbench.ReadRatios(baseline); err != nil {
				return nil, usage("--baseline: %v", err)
			}
		}
		if opt.Sizes, err = blockSizes(sizes); err != nil {
			return nil, err
		}
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		opt.Self = []string{self, benchProcess}
		opt.Progress = a.progress("measuring")
		rep, err := linkbench.Run(ctx, opt)
		if err != nil {
			return nil, err
		}
		res := benchResult{Report: rep, Ratios: rep.Ratios()}
		if base != nil {
			res.Compared = res.Ratios.Compare(base)
		}
		if ratios != "" {
			err = res.Ratios.Write(ratios)
		}
		return res, err
	})
	return c
}

type benchResult struct {
	linkbench.Report
	Ratios   linkbench.Ratios `json:"ratios"`
	Compared [][]string       `json:"compared,omitempty"` // name, now, baseline, verdict
}

func (r benchResult) grid(bool) grid {
	head, rows := r.Rows()
	for _, c := range r.Compared {
		rows = append(rows, []string{"ratio: " + c[0], "", "", c[1], c[2] + " in the baseline: " + c[3]})
	}
	return grid{head: head, rows: rows, note: folded(r.Note())}
}
