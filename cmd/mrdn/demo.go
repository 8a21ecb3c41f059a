package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"meridian/bench/demo"
)

// demoProcess is the first argument of this program when the demo has started
// it again as one of its processes. It is no command: people have no use for it.
const demoProcess = "demo-process"

func newDemoCmd(a *app) *cobra.Command {
	var opt demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Replay a real request trace through two daemons of your own",
		Long: `Starts a prefill and a decode daemon with an engine stand-in each, all as
processes of this program, and replays the FAST '25 conversation trace through
them with real bytes. Prompt blocks are stored on one side and pulled by the
other; requests that stop thinking offload their think blocks. On the way one
bit is flipped. At the end it shows what moved, over which transport, how fast,
and that no wrong byte was served and nothing leaked; if not so, it fails.

It needs nothing but this program, writes to a temporary folder only, and
listens on loopback and Unix sockets only.`,
		Example:     "  mrdn demo\n  mrdn demo --size small --json\n  mrdn demo --fabric synthetic",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	f.StringVar(&opt.Size, "size", "medium", "how much of the trace: small, medium, large")
	f.Uint64Var(&opt.Seed, "seed", 1, "which requests reason, and where the bit is flipped")
	f.StringVar(&opt.Fabric, "fabric", "link", "what the blocks move over: link (TCP), synthetic (nixl-synth, in memory)")
	c.RunE = a.longCommand(func(ctx context.Context, _ []string) (result, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		opt.Self = []string{self, demoProcess}
		if err := opt.Check(); err != nil {
			return nil, usage("%v", err)
		}
		opt.Progress = demo.Progress{W: a.err, Terminal: isTerminal(a.err) && a.variables()["TERM"] != "dumb"}
		rep, err := demo.Run(ctx, opt)
		if err != nil {
			return nil, err
		}
		return demoResult{rep}, rep.Err()
	})
	return c
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

type demoResult struct{ demo.Report }

func (r demoResult) grid(bool) grid { return grid{rows: r.Rows()} }

// longTimeout bounds commands that measure or replay, unless --timeout says
// otherwise.
const longTimeout = 10 * time.Minute

// longCommand is command for those.
func (a *app) longCommand(f func(ctx context.Context, args []string) (result, error)) func(*cobra.Command, []string) error {
	return a.commandWithin(longTimeout, f)
}

// commandWithin is command for those that have a time of their own, unless --timeout is given.
func (a *app) commandWithin(d time.Duration, f func(ctx context.Context, args []string) (result, error)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if !c.Flags().Changed("timeout") {
			a.timeout = d
		}
		return a.command(f)(c, args)
	}
}
