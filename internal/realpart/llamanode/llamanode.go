// Package llamanode makes a test binary a node with a real llama-server, and gives
// the options of the pairs that tests start of it. It is for test binaries only.
package llamanode

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/llama/fetch"
	"meridian/agent/llama/pair"
	"meridian/agent/openers"
	"meridian/internal/realpart"
)

// Role is the first argument of a test binary that was started as a node: CONFIG
// and PORTSFILE follow.
const Role = "llama-node"

// Play is for the begin of TestMain: it is the whole of the process where that was
// started as a node, and does nothing elsewhere.
func Play() {
	if len(os.Args) != 4 || os.Args[1] != Role {
		return
	}
	if err := play(os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(path, ports string) error {
	cfg, _, err := openers.Load(config.Options{Path: path})
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(cfg.Agent.LogLevel)
	opt := agent.Options{Version: "test", Level: level, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))}
	return agent.Run(context.Background(), cfg, opt, ports)
}

// Options are those of a pair of nodes with the real server and model, which must
// be here.
func Options(t testing.TB) pair.Options {
	t.Helper()
	p, err := fetch.FindKnown()
	realpart.Need(t, err, fetch.ErrMissing, "make setup installs both")
	return pair.Options{
		Self: []string{os.Args[0], Role}, Server: p.Server, Model: p.Model, Name: "smollm2",
		Args: []string{"-ngl", "0", "--device", "none"}, Context: 2304, Slots: 2, Threads: 1, Capacity: 1 << 30,
	}
}
