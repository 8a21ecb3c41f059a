package llama_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/agent/llama/pair"
	"meridian/internal/realpart/llamanode"
)

// fakes are two nodes whose llama-servers are fakes, and the files of their model.
type fakes struct {
	*pair.Pair
	model, shard, lora string
}

func startFakes(t *testing.T, how string) *fakes {
	t.Helper()
	dir := t.TempDir()
	f := &fakes{model: filepath.Join(dir, "m-00001-of-00002.gguf"), shard: filepath.Join(dir, "m-00002-of-00002.gguf"), lora: filepath.Join(dir, "lora.gguf")}
	for _, path := range []string{f.model, f.shard, f.lora} {
		write(t, path, "as it was")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f.Pair, err = pair.Start(ctx, pair.Options{
		Self: []string{self, llamanode.Role}, Server: self, Model: f.model, Name: "smollm2", Args: []string{"--lora", f.lora, fakeArg, how},
		Context: 512, Slots: 2, Capacity: 64 << 20, Llama: "block_tokens = 4\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range []string{pair.Prefill, pair.Decode} {
				b, _ := os.ReadFile(filepath.Join(f.Dir, n, "log"))
				t.Logf("%s:\n%s", n, b[max(0, len(b)-4000):])
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

var question = map[string]any{"prompt": "The lighthouse stood at the end of the pier.", "max_tokens": 6}

// restartAll ends both llama-servers and waits for their successors.
func (f *fakes) restartAll(t *testing.T) {
	t.Helper()
	for _, n := range []*pair.Node{f.Prefill, f.Decode} {
		before := series(t, n, "meridian_llama_restarts_total")
		child := childOf(t, n)
		if child == 0 {
			t.Fatal("no llama-server of the node was found")
		}
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			if series(t, n, "meridian_llama_restarts_total") == before || series(t, n, "meridian_llama_up") == 0 {
				return n.Name + " has no new llama-server"
			}
			return ""
		})
	}
}

func TestKVOfOtherContentIsNeverRestored(t *testing.T) {
	f := startFakes(t, "")
	first := mustAsk(t, f.Prefill, true, question)
	f.restartAll(t)
	again := mustAsk(t, f.Decode, true, question)
	if again.node.Computed != 0 || again.text != first.text {
		t.Fatalf("with all as it was: %+v, want the KV of the other node and the answer %q", again, first.text)
	}
	link := f.model + ".next"
	for _, c := range []struct {
		what   string
		change func()
	}{
		{"model renamed over", func() {
			write(t, link, "renamed over")
			if err := os.Rename(link, f.model); err != nil {
				t.Fatal(err)
			}
		}},
		{"model by another symlink", func() {
			write(t, f.model+".other", "by a symlink")
			if err := os.Symlink(f.model+".other", link); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(link, f.model); err != nil {
				t.Fatal(err)
			}
		}},
		{"shard overwritten", func() { write(t, f.shard, "another shard") }},
		{"adapter overwritten", func() { write(t, f.lora, "another adapter") }},
	} {
		t.Run(c.what, func(t *testing.T) {
			before := mustAsk(t, f.Prefill, true, question)
			c.change()
			f.restartAll(t)
			a := mustAsk(t, f.Decode, true, question)
			if a.node.Cached != 0 || a.node.Computed != before.usage.PromptTokens {
				t.Errorf("%d prompt tokens cached and %d computed, want none and %d", a.node.Cached, a.node.Computed, before.usage.PromptTokens)
			}
			if a.text == before.text {
				t.Errorf("the answer is still %q", a.text)
			}
		})
	}
}

func TestASettingInTheEnvironmentIsRefusedByName(t *testing.T) {
	for _, name := range []string{"LLAMA_ARG_ROPE_FREQ_BASE", "LLAMA_ARG_CACHE_REUSE", "LLAMA_API_KEY"} {
		t.Setenv(name, "5")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		p, err := pair.Start(ctx, pair.Options{
			Self: []string{self, llamanode.Role}, Server: self, Model: self, Name: "smollm2", Args: []string{fakeArg, ""}, Context: 512, Slots: 1, Capacity: 64 << 20,
		})
		cancel()
		if err == nil {
			_ = p.Close()
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
}

// A restore that left the slot empty counts for nothing, whatever the server said of
// it: what was computed is told as computed.
func TestARestoreThatRestoredNothingIsAFailure(t *testing.T) {
	for _, how := range []string{"forget", "lie"} {
		f := startFakes(t, how)
		first := mustAsk(t, f.Prefill, true, question)
		a := mustAsk(t, f.Decode, true, question)
		prompt := first.usage.PromptTokens
		if a.text != first.text {
			t.Errorf("%s: the answer is %q, and without a restore %q", how, a.text, first.text)
		}
		if a.node.Cached != 0 || a.usage.PromptDetails.CachedTokens != 0 || a.node.Computed < prompt-1 || a.node.Prefill != pair.Decode || a.node.Pulled != 0 {
			t.Errorf("%s: %+v, %+v; want none of %d prompt tokens cached", how, a.node, a.usage, prompt)
		}
		if n := series(t, f.Decode, `meridian_llama_states_total{outcome="refused"}`); n != 1 {
			t.Errorf("%s: %g restores count as refused, want 1", how, n)
		}
		if n := series(t, f.Decode, `meridian_llama_states_total{outcome="restored"}`) + series(t, f.Decode, `meridian_llama_prompt_tokens_total{source="restored"}`); n != 0 {
			t.Errorf("%s: %g restores or restored tokens are counted", how, n)
		}
	}
}
