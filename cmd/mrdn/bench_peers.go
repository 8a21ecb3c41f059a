package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/bench/peers"
	"meridian/internal/safefile"
)

// peersProcess is the first argument of benchProcess for a process of
// `bench peers`.
const peersProcess = "peers"

// peersTimeout bounds a run without --timeout: the whole matrix takes most of
// an hour.
const peersTimeout = 3 * time.Hour

func newBenchPeersCmd(a *app) *cobra.Command {
	var opt peers.Options
	var sizes, ops []string
	var set, out string
	c := &cobra.Command{
		Use:   "peers",
		Short: "Compare Meridian with Mooncake, NIXL, Redis and plain sockets",
		Long: `Moves the same blocks from one process's memory to another's by Meridian's link
and engine socket, Mooncake's transfer engine, NIXL over UCX and Redis, and for
comparison by plain sockets and memcpy. Every round runs all of them in turn.
Each proves first that the bytes it moves are right. What is not installed is
skipped and named; make bench-peers installs it, and gives all of it one network
namespace with one congestion control. Stop other work first: it takes about a
quarter of an hour, both processors and 8 GiB of memory.`,
		Example:     "  mrdn bench peers\n  mrdn bench peers --only link,plain,hash --sizes 64KiB --rounds 3\n  mrdn bench peers --full --out results --json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	f.StringSliceVar(&opt.Only, "only", nil, "systems or groups of them (default: all)")
	f.StringSliceVar(&sizes, "sizes", nil, "block sizes, powers of two (default: 4KiB to 64MiB)")
	f.StringSliceVar(&ops, "ops", nil, "directions: read, write (default: both)")
	f.IntVar(&opt.Rounds, "rounds", 0, "rounds, of which the median is shown (default: 5)")
	f.DurationVar(&opt.Round, "round", 0, "length of one measurement (default: 250ms)")
	f.StringVar(&set, "set", "", "working set of cold cells (default: above the last cache)")
	f.BoolVar(&opt.Full, "full", false, "every batch, stream count and working set at every size")
	f.BoolVar(&opt.Quick, "quick", false, "a smoke run: its figures say nothing")
	f.BoolVar(&opt.Require, "require", false, "fail where a peer is not installed, as where $CI is set")
	f.StringVar(&opt.Python, "python", filepath.Join(".tools", "py", "peers"), "folder of the Python packages of Mooncake and NIXL")
	f.BoolVar(&opt.Namespace, "namespace", false, "say in the report that this runs in a network namespace of its own")
	f.StringVar(&out, "out", "", "folder for report.json and the plots; made if absent")
	run := a.command(func(ctx context.Context, _ []string) (result, error) {
		if err := parsePeers(&opt, sizes, ops, set); err != nil {
			return nil, err
		}
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		opt.Require = opt.Require || a.variables()["CI"] != ""
		opt.Self, opt.Version = []string{self, benchProcess, peersProcess}, agent.BuildVersion()
		opt.Progress = func(s string) { _, _ = fmt.Fprintln(a.err, "bench peers:", s) }
		if err := opt.Check(); err != nil {
			return nil, usage("%w", err)
		}
		rep, err := peers.Run(ctx, opt)
		if out != "" && len(rep.Cells) > 0 {
			err = errors.Join(err, writeReport(out, rep, rep.Plots()))
		}
		return benchPeersResult{rep}, err
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if !c.Flags().Changed("timeout") {
			a.timeout = peersTimeout
		}
		return run(c, args)
	}
	return c
}

// parsePeers fills in what the flags say in words.
func parsePeers(opt *peers.Options, sizes, ops []string, set string) error {
	for _, s := range sizes {
		n, err := config.ParseBytes(s)
		if err != nil {
			return usage("--sizes: %v", err)
		}
		opt.Sizes = append(opt.Sizes, n)
	}
	for _, s := range ops {
		op := peers.Op(s)
		if op != peers.Read && op != peers.Write {
			return usage("--ops: %q is neither read nor write", s)
		}
		opt.Ops = append(opt.Ops, op)
	}
	if set != "" {
		n, err := config.ParseBytes(set)
		if err != nil {
			return usage("--set: %v", err)
		}
		opt.Set = n
	}
	return nil
}

// writeReport writes a report and its plots into a folder.
func writeReport(dir string, rep any, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := encodeJSON(rep)
	if err != nil {
		return err
	}
	files["report.json"] = string(b)
	for name, text := range files {
		if err := safefile.Write(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

type benchPeersResult struct{ peers.Report }

func (r benchPeersResult) grid(bool) grid {
	head, rows := r.Rows()
	return grid{head: head, rows: rows, note: r.Note()}
}
