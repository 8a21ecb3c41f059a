package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/bench/bridge"
)

// bridgeProcess is the first argument of benchProcess for a daemon of `bench bridge`.
const bridgeProcess = "bridge"

func newBenchBridgeCmd(a *app) *cobra.Command {
	var opt bridge.Options
	var sizes []string
	var size string
	var quick bool
	c := &cobra.Command{
		Use:   "bridge",
		Short: "Measure what goes from one fabric to another through a daemon",
		Long: `Measures five bridges, each through one daemon: blocks of the link that go on
to an application of NIXL, blocks of an application of Mooncake that go on to
one of NIXL, blocks of NIXL that go on over the link, and blocks of the link
that go on over the link, while they come (link-link) and stored first
(link-link-stored); of these two also how long one block alone takes. In the
same run, in turn, it measures leg1, what the source brings into a daemon that
sends nothing on; leg2, what a daemon off-loads to the sink; and the hash of
one core. The bound is 1/(1/leg1 + 1/leg2 + 1/(cores x hash)). After each
measurement the sink compares header and body of every block with what was
sent.

The last column says whether a bridge reaches the goal of 80 % of the bound;
that is a report and never a failure. Applications are the released wheels of
NIXL and Mooncake; a bridge whose part is not installed is skipped and named.
make bench-bridge installs them, and gives all of it one network namespace with
one congestion control. Stop other work first: it takes some minutes, both
processors and 4 GiB of memory.`,
		Example:     "  mrdn bench bridge\n  mrdn bench bridge --only nixl-link --sizes 1MiB --rounds 9 --json\n  mrdn bench bridge --quick",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	f.StringSliceVar(&opt.Only, "only", bridge.Names(), "bridges, FROM-TO: "+strings.Join(bridge.Names(), ", "))
	f.Lookup("only").DefValue = "all"
	f.StringSliceVar(&sizes, "sizes", []string{"64KiB", "256KiB", "1MiB", "4MiB"}, "block sizes")
	f.StringVar(&size, "bytes", "128MiB", "bytes of one measurement")
	f.IntVar(&opt.Rounds, "rounds", 5, "rounds, of which the median is shown")
	f.BoolVar(&quick, "quick", false, "a smoke run of 8 MiB a measurement: its figures say nothing")
	f.BoolVar(&opt.Require, "require", false, "fail where NIXL or Mooncake is not installed, as where $CI is set")
	f.StringVar(&opt.Python, "python", filepath.Join(".tools", "py", "peers"), "folder of the Python packages of NIXL and Mooncake")
	f.StringVar(&opt.Helper, "helper", "", "path of meridian-ffi (default: beside mrdn, else in PATH)")
	f.StringVar(&opt.UCX, "ucx", "", "UCX_TLS of daemons and applications (default: tcp,self)")
	f.BoolVar(&opt.Namespace, "namespace", false, "say in the report that this runs in a network namespace of its own")
	c.RunE = a.longCommand(func(ctx context.Context, _ []string) (result, error) {
		var err error
		if opt.Bytes, err = config.ParseBytes(size); err != nil || opt.Bytes == 0 || opt.Bytes > 1<<32 {
			return nil, usage("--bytes: %q is no size between 1 B and 4 GiB", size)
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
		opt.Require = opt.Require || a.variables()["CI"] != ""
		opt.Self, opt.Version = []string{self, benchProcess, bridgeProcess}, agent.BuildVersion()
		opt.Progress = func(s string) { _, _ = fmt.Fprintln(a.err, "bench bridge:", s) }
		if err := opt.Check(); err != nil {
			return nil, usage("%v", err)
		}
		rep, err := bridge.Run(ctx, opt)
		if len(rep.Bridges)+len(rep.Skipped) == 0 {
			return nil, err // a report of no measurement would hide why
		}
		return benchBridgeResult{rep}, err
	})
	return c
}

type benchBridgeResult struct{ bridge.Report }

func (r benchBridgeResult) grid(bool) grid { return reportGrid(r.Rows, r.Note) }
