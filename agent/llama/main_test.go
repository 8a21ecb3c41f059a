package llama_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/llama/fetch"
	"meridian/agent/llama/pair"
	"meridian/internal/invariants/leak"
)

// nodeRole is the first argument of this binary when a test has started it again
// as a node.
const nodeRole = "llama-node"

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, fakeArg) {
		fmt.Fprintln(os.Stderr, "fake llama-server:", playFake(os.Args))
		os.Exit(1)
	}
	if len(os.Args) == 4 && os.Args[1] == nodeRole {
		if err := playNode(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leak.Main(m)
}

func playNode(path, ports string) error {
	cfg, _, err := config.Load(config.Options{Path: path})
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(cfg.Agent.LogLevel)
	opt := agent.Options{Version: "test", Level: level, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))}
	return agent.Run(context.Background(), cfg, opt, ports)
}

// parts are the real llama-server and model. Without them a test is skipped, but
// not under CI.
func parts(t *testing.T) fetch.Parts {
	t.Helper()
	p, err := fetch.FindKnown()
	if err == nil {
		return p
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skipf("%v; make setup installs both", err)
	return p
}

// Every node of the tests.
func options(t *testing.T) pair.Options {
	p := parts(t)
	return pair.Options{
		Self: []string{os.Args[0], nodeRole}, Server: p.Server, Model: p.Model, Name: "smollm2",
		Args: []string{"-ngl", "0", "--device", "none"}, Context: 2304, Slots: 2, Threads: 1, Capacity: 1 << 30,
	}
}

// startPair starts two nodes for one test.
func startPair(t *testing.T, change func(*pair.Options)) *pair.Pair {
	t.Helper()
	o := options(t)
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	p, err := pair.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range []string{pair.Prefill, pair.Decode} {
				b, _ := os.ReadFile(filepath.Join(p.Dir, n, "log"))
				t.Logf("%s:\n%s", n, b[max(0, len(b)-6000):])
			}
		}
		if err := p.Close(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return p
}
