package main

import (
	"context"

	"github.com/spf13/cobra"

	"meridian/bench/peers"
)

func newBenchNIXLCmd(a *app) *cobra.Command {
	var p peersFlags
	c := &cobra.Command{
		Use:   "nixl",
		Short: "Compare Meridian's NIXL helper with NIXL",
		Long: `Moves the same blocks from one process's memory to another's by NIXL over UCX:
two processes of NIXL's own Python package at their best (lists prepared once,
requests posted again, the target's progress thread every millisecond, polls
with pauses); and Meridian's helper with such a target, in transfers as the
fabric makes them. UCX goes over tcp, and over cma, which is the kernel's copy
between two processes. Batches have 16 blocks; with one stream, and with four.
Every round runs all of them in turn, and ratios are medians of the ratios of
one round. Each proves first that the bytes it moves are right, and the helper
tells which transport UCX has chosen.

Neither checks content. The row commit is what it costs on one core to make a
block of what was moved: a copy and a hash.

The last column says whether a row has met its goal; that is a report and never
a failure. What is not installed is skipped and named; make bench-nixl installs
it, and gives all of it one network namespace with one congestion control. Stop
other work first: it takes two to three minutes and both processors.`,
		Example:     "  mrdn bench nixl\n  mrdn bench nixl --sizes 1MiB --ops read --rounds 9 --json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	p.add(c, peersWords{sizes: "64KiB, 256KiB, 1MiB, 4MiB", ops: "both", set: "working set", peer: "NIXL", packages: "NIXL"})
	c.Flags().StringVar(&p.opt.Helper, "helper", "", "path of meridian-ffi (default: beside this program)")
	c.RunE = a.longCommand(func(ctx context.Context, _ []string) (result, error) {
		opt, err := p.options(a, "nixl", (*peers.Options).NIXL)
		if err != nil {
			return nil, err
		}
		rep, err := peers.Run(ctx, opt)
		return benchNIXLResult{peers.NewNIXLReport(rep)}, err
	})
	return c
}

type benchNIXLResult struct{ peers.NIXLReport }

func (r benchNIXLResult) grid(bool) grid { return reportGrid(r.Rows, r.Note) }
