package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"meridian/agent/config"
	"meridian/bench/loadbench"
)

// loadProcess is the first argument of benchProcess for a process of
// `bench load`.
const loadProcess = "load"

func newBenchLoadCmd(a *app) *cobra.Command {
	var opt loadbench.Options
	var sizes []string
	var size, ahead string
	var quick bool
	c := &cobra.Command{
		Use:   "load",
		Short: "Measure an engine's load of a prompt from other nodes, and its PUT",
		Long: `Measures what an engine gets from its daemon: the load of 1 GiB of blocks from
one holder and from two, and a PUT of as many, through the engine socket. Each
daemon is a process with a configuration of its own. cold is the first load
after a daemon's start, once its memory ahead (arena.ahead_bytes) is ready; warm
the next one, when the arena's memory was used before. The bound is what plain
sockets and the hash allow, measured in the same run. The last lines show the
same load by a daemon that may use one processor and by one that may use two.

Stop other work first: it takes some minutes, two processors and 6 GiB of
memory.`,
		Example:     "  mrdn bench load\n  mrdn bench load --sizes 1MiB --holders 2 --rounds 5 --json\n  mrdn bench load --quick",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	f.StringSliceVar(&sizes, "sizes", []string{"64KiB", "1MiB"}, "block sizes")
	f.StringVar(&size, "bytes", "1GiB", "bytes of a load")
	f.IntSliceVar(&opt.Holders, "holders", []int{1, 2}, "numbers of holders")
	f.StringVar(&ahead, "ahead", "", "arena.ahead_bytes of the daemons (default: theirs)")
	f.IntVar(&opt.Rounds, "rounds", 3, "rounds, of which the median is shown")
	f.StringVar(&opt.Congestion, "congestion", "", "congestion control of all sockets (default: cubic where the kernel has it)")
	f.BoolVar(&quick, "quick", false, "a smoke run of 16 MiB a load: its figures say nothing")
	c.RunE = a.longCommand(func(ctx context.Context, _ []string) (result, error) {
		var err error
		if opt.Bytes, err = config.ParseBytes(size); err != nil || opt.Bytes == 0 || opt.Bytes > 1<<36 {
			return nil, usage("--bytes: %q is no size between 1 B and 64 GiB", size)
		}
		if ahead != "" {
			n, err := config.ParseBytes(ahead)
			if err != nil {
				return nil, usage("--ahead: %q is no size", ahead)
			}
			opt.Ahead = &n
		}
		if opt.Sizes, err = blockSizes(sizes); err != nil {
			return nil, err
		}
		if quick {
			opt.Quick()
		}
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		opt.Self = []string{self, benchProcess, loadProcess}
		opt.Progress = a.progress("measuring")
		if err := opt.Check(); err != nil {
			return nil, usage("%v", err)
		}
		rep, err := loadbench.Run(ctx, opt)
		return benchLoadResult{rep}, err
	})
	return c
}

type benchLoadResult struct{ loadbench.Report }

func (r benchLoadResult) grid(bool) grid { return reportGrid(r.Rows, r.Note) }
