package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/bench/peers"
)

// peersFlags are what `bench peers`, `bench mooncake` and `bench nixl` have in common.
type peersFlags struct {
	opt        peers.Options
	sizes, ops []string
	set        string
}

// peersWords are those of their help that differ.
type peersWords struct {
	sizes    string // that are measured by default
	ops      string // the same of directions
	set      string // which working set
	peer     string // what may not be installed
	packages string // whose Python packages
}

func (p *peersFlags) add(c *cobra.Command, w peersWords) {
	f := c.Flags()
	f.StringSliceVar(&p.sizes, "sizes", nil, "block sizes, powers of two (default: "+w.sizes+")")
	f.StringSliceVar(&p.ops, "ops", nil, "directions: read, write (default: "+w.ops+")")
	f.IntVar(&p.opt.Rounds, "rounds", 0, "rounds, of which the median is shown (default: 5)")
	f.DurationVar(&p.opt.Round, "round", 0, "length of one measurement (default: 250ms)")
	f.StringVar(&p.set, "set", "", w.set+" (default: above the last cache)")
	f.BoolVar(&p.opt.Quick, "quick", false, "a smoke run: its figures say nothing")
	f.BoolVar(&p.opt.Require, "require", false, "fail where "+w.peer+" is not installed, as where $CI is set")
	f.StringVar(&p.opt.Python, "python", filepath.Join(".tools", "py", "peers"), "folder of the Python packages of "+w.packages)
	f.BoolVar(&p.opt.Namespace, "namespace", false, "say in the report that this runs in a network namespace of its own")
}

// options are those of a run of `bench NAME`; choose, if any, makes it one of its own kind.
func (p *peersFlags) options(a *app, name string, choose func(*peers.Options)) (peers.Options, error) {
	opt := p.opt
	if err := parsePeers(&opt, p.sizes, p.ops, p.set); err != nil {
		return opt, err
	}
	self, err := os.Executable()
	if err != nil {
		return opt, err
	}
	if choose != nil {
		choose(&opt)
	}
	opt.Require = opt.Require || a.variables()["CI"] != ""
	opt.Self, opt.Version = []string{self, benchProcess, peersProcess}, agent.BuildVersion()
	opt.Progress = func(s string) { _, _ = fmt.Fprintln(a.err, "bench "+name+":", s) }
	if err := opt.Check(); err != nil {
		return opt, usage("%w", err)
	}
	return opt, nil
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

// blockSizes are those of --sizes.
func blockSizes(sizes []string) (all []uint32, _ error) {
	for _, s := range sizes {
		n, err := config.ParseBytes(s)
		if err != nil || n == 0 || n > 64<<20 {
			return nil, usage("--sizes: %q is no size between 1 B and 64 MiB", s)
		}
		all = append(all, uint32(n))
	}
	return all, nil
}

// progress tells on a terminal what a benchmark is at; nil elsewhere.
func (a *app) progress(doing string) func(string) {
	if !isTerminal(a.err) {
		return nil
	}
	return func(what string) { _, _ = fmt.Fprintln(a.err, doing, what) }
}

// reportGrid is a report's table with its note below.
func reportGrid(rows func() (head []string, rows [][]string), note func() string) grid {
	g := grid{note: folded(note())}
	g.head, g.rows = rows()
	return g
}
