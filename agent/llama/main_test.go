package llama_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"meridian/agent/llama/pair"
	"meridian/internal/invariants/leak"
	"meridian/internal/realpart/llamanode"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, fakeArg) {
		fmt.Fprintln(os.Stderr, "fake llama-server:", playFake(os.Args))
		os.Exit(1)
	}
	llamanode.Play()
	leak.Main(m)
}

// startPair starts two nodes for one test.
func startPair(t *testing.T, change func(*pair.Options)) *pair.Pair {
	t.Helper()
	o := llamanode.Options(t)
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
