package llama_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/llama/pair"
	"meridian/agent/openers"
	"meridian/internal/realpart/llamanode"
	"meridian/internal/testlog"
)

// contentNode is a node in this process with the real llama-server.
type contentNode struct {
	*pair.Node
	namespace string
}

var servedNamespace = regexp.MustCompile(`namespace=([0-9a-f]{64})`)

// startContent starts a node of a model with arguments. Two such nodes, one that
// listens and one that dials, pull each other's blocks.
func startContent(t *testing.T, name, model, linkTable string, args ...string) *contentNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "mrc") // short: sockets have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	o := llamanode.Options(t)
	list, err := json.Marshal(append(o.Args, args...)) // also a TOML list
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`[agent]
name = %q
state_dir = %q
[engine]
socket = %q
staging_bytes = "4MiB"
[admin]
socket = %q
[kv_memory]
capacity_bytes = "128MiB"
[llama]
model = %q
server = %q
name = "smollm2"
dir = %q
context = 512
slots = 1
threads = 1
block_tokens = 16
args = %s
%s`, name, at("s"), at("e"), at("a"), model, o.Server, at("l"), list, linkTable)
	if err := os.WriteFile(at("c.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := openers.Load(config.Options{Path: at("c.toml")})
	if err != nil {
		t.Fatal(err)
	}
	log := &testlog.Buffer{}
	a, err := agent.Start(t.Context(), cfg, agent.Options{Version: "test", Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", name, log)
		}
	})
	n := &contentNode{Node: &pair.Node{Name: name, URL: a.Ports()["openai"][0], Ports: a.Ports()}}
	eventually(t, func() string {
		if series(t, n.Node, "meridian_llama_up") != 1 {
			return name + " has no llama-server"
		}
		return ""
	})
	found := servedNamespace.FindStringSubmatch(log.String())
	if found == nil {
		t.Fatalf("%s names no namespace", name)
	}
	n.namespace = found[1]
	return n
}

// A real model in two shards and a real adapter: KV is shared by content, wherever
// the files lie, and with nobody whose files or scale differ.
func TestRealShardsAndAdaptersAreKnownByContent(t *testing.T) {
	whole := readGGUF(t, llamanode.Options(t).Model)
	folder := func(scaled bool) string {
		dir := t.TempDir()
		if scaled { // a tensor of the second shard, which changes the KV of its layer
			whole.tensor(t, "blk.29.attn_norm.weight").scale(t, 1.5)
		}
		whole.lora(t, filepath.Join(dir, "l.gguf"), "blk.3.attn_v.weight", 5)
		whole.lora(t, filepath.Join(dir, "other.gguf"), "blk.3.attn_v.weight", 6)
		whole.split(t, dir)
		return dir
	}
	here, there, changed := folder(false), folder(false), folder(true)
	model := func(dir string) string { return filepath.Join(dir, "m-00001-of-00002.gguf") }
	lora := func(dir, name, scale string) []string {
		return []string{"--lora-scaled", filepath.Join(dir, name) + ":" + scale}
	}
	const psk = "[link]\npsk = \"9f3c61d20b7ae84455d01c9e72fa36b8\"\n"
	socket := filepath.Join(shortTemp(t), "l")
	question := map[string]any{"prompt": words(60, "lighthouse"), "max_tokens": 4, "logprobs": 0}
	first := startContent(t, "first", model(here), psk+fmt.Sprintf("listen = [\"unix://%s\"]\n[[link.peer]]\nname = \"other\"\ntenants = [\"default\"]\n", socket), lora(here, "l.gguf", "1.0")...)
	cold := mustAsk(t, first.Node, true, question)
	own := mustAsk(t, first.Node, true, question) // from the same number of cached tokens as a restore leaves
	for _, c := range []struct {
		name, model string
		args        []string
		equal       bool
	}{
		{"equal content elsewhere", model(there), lora(there, "l.gguf", "1.0"), true},
		{"another scale", model(there), lora(there, "l.gguf", "0.5"), false},
		{"another adapter", model(there), lora(there, "other.gguf", "1.0"), false},
		{"no adapter", model(there), nil, false},
		{"another second shard", model(changed), lora(changed, "l.gguf", "1.0"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := startContent(t, "other", c.model, psk+fmt.Sprintf("[[link.peer]]\nname = \"first\"\naddress = \"unix://%s\"\ntenants = [\"default\"]\n", socket), c.args...)
			eventually(t, func() string {
				if series(t, n.Node, "meridian_ready") != 1 {
					return "the nodes are not connected"
				}
				return ""
			})
			if (n.namespace == first.namespace) != c.equal {
				t.Errorf("namespaces %s and %s, want equal: %t", first.namespace, n.namespace, c.equal)
			}
			a := mustAsk(t, n.Node, true, question)
			restored := series(t, n.Node, `meridian_llama_states_total{outcome="restored"}`)
			if prompt := a.usage.PromptTokens; c.equal {
				// cache_n has told that the slot held what the restore said.
				if a.node.Cached != prompt-1 || a.node.Computed != 0 || a.node.Pulled == 0 || restored != 1 {
					t.Errorf("%+v, %g restored; want the first node's KV", a.node, restored)
				}
				if diff := equal(own, a); diff != "" {
					t.Errorf("restored it goes on in another way: %s", diff)
				}
				return
			} else if a.node.Cached != 0 || a.node.Computed != prompt || restored != 0 {
				t.Errorf("%+v, %g restored; want all computed", a.node, restored)
			}
			// That the server loaded what was given shows in what it computes.
			if equal(cold, a) == "" {
				t.Error("it computes the same as the first node, bit by bit")
			}
		})
	}
}

func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mrc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
