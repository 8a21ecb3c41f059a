package main

import (
	"context"

	"github.com/spf13/cobra"

	"meridian/bench/peers"
	"meridian/wire"
)

func newBenchMooncakeCmd(a *app) *cobra.Command {
	var p peersFlags
	var segment peers.Segment
	c := &cobra.Command{
		Use:   "mooncake",
		Short: "Compare Meridian's transfer engine with Mooncake's",
		Long: `Moves the same blocks from one process's memory to another's by transfer
engines of Mooncake's protocol: Mooncake's own with itself, at its best (pool
of 4 connections); Meridian's initiator with Mooncake's target, and the other
way round; and Meridian's with itself. mooncake-relay is Mooncake's with itself
again, through the relay of one daemon of Meridian, which takes and sends each
byte once more: its ratio to mooncake is what a relay between two engines
costs. Plain sockets are the bound. Batches have 16 blocks; with one stream,
and with four. Every round runs all of them in turn, and ratios are medians of
the ratios of one round. Each proves first that the bytes it moves are right.

A transfer engine checks no content. copy-hash is what it costs on one core to
take blocks out of a window, copied and hashed, when they become Meridian's.

The last column says which goal a row has met or missed; that is a report and
never a failure. Mooncake is skipped and named where it is not installed; make
bench-mooncake installs it, and gives all of it one network namespace with one
congestion control. Stop other work first: it takes some minutes, both
processors and 7 GiB of memory.

With --target it measures Meridian's initiator with a segment that somebody else
serves, such as transfer_engine_bench in its mode target: reads of its first
buffer, and with --ops write writes, which destroy what is in it.`,
		Example:     "  mrdn bench mooncake\n  mrdn bench mooncake --target 127.0.0.1:15715 --ops read,write\n  mrdn bench mooncake --sizes 64KiB --ops read --rounds 9 --json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	p.add(c, peersWords{sizes: "16KiB, 64KiB, 256KiB, 1MiB, 4MiB", ops: "both; with --target: read", set: "working set", peer: "Mooncake", packages: "Mooncake"})
	f.StringVar(&segment.Name, "target", "", "measure this segment, which somebody else serves: its name, as engines open it")
	f.StringVar(&segment.Metadata, "metadata", peers.NoServer, "metadata server that knows the target, as engines take it")
	c.RunE = a.longCommand(func(ctx context.Context, _ []string) (result, error) {
		opt, err := p.options(a, "mooncake", (*peers.Options).Transfer)
		if err != nil {
			return nil, err
		}
		if segment.Name != "" {
			rep, err := peers.MeasureSegment(ctx, opt, segment)
			if err != nil {
				err = segmentFailure(err)
			}
			if len(rep.Cells) == 0 {
				return nil, err // a report of no measurement would hide why
			}
			return benchSegmentResult{rep}, err
		}
		rep, err := peers.Run(ctx, opt)
		return benchMooncakeResult{peers.NewTransferReport(rep)}, err
	})
	return c
}

// segmentFailure is one with somebody else's segment, of which no daemon knows.
func segmentFailure(err error) error {
	f := asCommandFailure(err)
	if f.code == wire.CodeUnreachable || f.code == wire.CodeAbsent {
		f.hint = "does the target's engine run, and is --target the name that it told, and --metadata its metadata server?"
	}
	return f
}

type benchMooncakeResult struct{ peers.TransferReport }

func (r benchMooncakeResult) grid(bool) grid { return reportGrid(r.Rows, r.Note) }

type benchSegmentResult struct{ peers.SegmentReport }

func (r benchSegmentResult) grid(bool) grid { return reportGrid(r.Rows, r.Note) }
