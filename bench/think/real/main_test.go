package real

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"meridian/agent/llama/fakeserver"
	"meridian/agent/llama/pair"
	"meridian/bench/think"
	"meridian/internal/invariants/leak"
	"meridian/internal/realpart/llamanode"
)

func TestMain(m *testing.M) {
	if fakeserver.Runs(os.Args) {
		if err := fakeserver.Main(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "fake llama-server:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	llamanode.Play()
	leak.Main(m)
}

// small is a run of a moment, of nodes with a fake llama-server.
func small(t *testing.T) Options {
	t.Helper()
	model := filepath.Join(t.TempDir(), "m.gguf")
	script := fakeserver.Script{Template: "plain", Answer: []string{"once", " there", " was", " a", " ship"}}
	if err := os.WriteFile(model, script.JSON(), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Defaults()
	o.Arms = ArmsOf([]string{"fcfs", "fcfs"})
	o.Node = pair.Options{
		Self: []string{os.Args[0], llamanode.Role}, Server: os.Args[0], Model: model, Name: "m",
		Context: 512, Slots: 4, Threads: 1, Capacity: 64 << 20, Llama: "block_tokens = 8",
	}
	o.Workload = think.Workload{
		Name: "small", ReasoningRatio: 1,
		ChatPrompt: think.Span{Least: 5, Most: 20}, ChatAnswer: think.Span{Least: 8, Most: 8},
		Prompt: think.Span{Least: 5, Most: 20}, Think: think.Span{Least: 3, Most: 9}, Answer: think.Span{Least: 8, Most: 8},
	}
	o.Interactive, o.Background, o.Requests, o.Rounds = 1, 2, 2, 2
	o.Storm = Storm{Answer: 5, Clients: 1, Prompts: 2, Prompt: think.Span{Least: 50, Most: 60}}
	o.Within = 2 * time.Minute
	return o
}
