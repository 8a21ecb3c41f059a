package llama_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/agent/llama/pair"
	"meridian/internal/realpart/llamanode"
)

// broken is a pair whose llama-servers are one of testdata/servers.
func broken(t *testing.T, server string) pair.Options {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", "servers", server))
	if err != nil {
		t.Fatal(err)
	}
	return pair.Options{Self: []string{os.Args[0], llamanode.Role}, Server: path, Model: path, Name: "m", Context: 512, Slots: 2, Capacity: 64 << 20}
}

// A server that will never serve is named, and not only when the caller's patience
// ends.
func TestAServerThatCanNeverServeIsNamedWithItsCause(t *testing.T) {
	for server, wants := range map[string][]string{
		"sigill":   {"SIGILL", "3 times in a row", "lacks "},
		"version3": {"state version 3", "versions 2 and 4"},
		"missing":  {"no such file or directory", "missing"},
		"refuses":  {"exit status 1", "error: invalid argument: --nope"},
	} {
		t.Run(server, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p, err := pair.Start(ctx, broken(t, server))
			if err == nil {
				_ = p.Close()
				t.Fatal("it serves")
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("it was not given up: %v", err)
			}
			for _, want := range wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want %q", err, want)
				}
			}
			if len(err.Error()) > 1000 {
				t.Errorf("%d bytes are no short error: %v", len(err.Error()), err)
			}
		})
	}
}
