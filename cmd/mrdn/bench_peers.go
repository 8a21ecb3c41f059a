package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

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
	var p peersFlags
	var out string
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
	p.add(c, peersWords{sizes: "4KiB to 64MiB", ops: "both", set: "working set of cold cells", peer: "a peer", packages: "Mooncake and NIXL"})
	f.StringSliceVar(&p.opt.Only, "only", nil, "systems or groups of them (default: all)")
	f.BoolVar(&p.opt.Full, "full", false, "every batch, stream count and working set at every size")
	f.StringVar(&out, "out", "", "folder for report.json and the plots; made if absent")
	c.RunE = a.commandWithin(peersTimeout, func(ctx context.Context, _ []string) (result, error) {
		opt, err := p.options(a, "peers", nil)
		if err != nil {
			return nil, err
		}
		if err := readyReport(out); err != nil {
			return nil, err
		}
		rep, err := peers.Run(ctx, opt)
		if out != "" && len(rep.Cells) > 0 {
			err = errors.Join(err, writeReport(out, rep, rep.Plots()))
		}
		return benchPeersResult{rep}, err
	})
	return c
}

// readyReport makes the folder of a report and tries it, before the work.
func readyReport(dir string) error {
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = safefile.Check(filepath.Join(dir, "report.json"))
	}
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".report-"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return usage("--out: %v", err)
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

func (r benchPeersResult) grid(bool) grid { return reportGrid(r.Rows, r.Note) }
