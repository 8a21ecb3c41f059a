package fakeserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/llama/fakeserver"
	"meridian/agent/openers"
	"meridian/internal/invariants/leak"
	"meridian/internal/testlog"
)

func TestMain(m *testing.M) {
	if fakeserver.Runs(os.Args) {
		if err := fakeserver.Main(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "fake llama-server:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leak.Main(m)
}

// node is a daemon with a fake llama-server.
type node struct {
	*agent.Agent
	url string
	log *testlog.Buffer
}

const markers = "think_start = \"<think>\"\nthink_end = \"</think>\"\n"

// start starts a node in this process. keys are of [llama], tables follow.
func start(t *testing.T, s fakeserver.Script, keys, tables string) *node {
	t.Helper()
	return startAs(t, "one", s, keys, tables)
}

func startAs(t *testing.T, name string, s fakeserver.Script, keys, tables string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "mrf") // short: sockets have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("m.gguf"), s.JSON(), 0o600); err != nil {
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
capacity_bytes = "64MiB"
[llama]
model = %q
server = %q
name = "m"
dir = %q
context = 1024
slots = 1
block_tokens = 8
%s
%s`, name, at("s"), at("e"), at("a"), at("m.gguf"), os.Args[0], at("l"), keys, tables)
	if err := os.WriteFile(at("c.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := openers.Load(config.Options{Path: at("c.toml")})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{log: &testlog.Buffer{}}
	n.Agent, err = agent.Start(t.Context(), cfg, agent.Options{Version: "test", Log: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			l := n.log.String()
			t.Logf("log:\n%s", l[max(0, len(l)-4000):])
		}
	})
	n.url = n.Ports()["openai"][0]
	n.await(t, "meridian_llama_up", 1)
	return n
}

// metric reads one series; 0 where it is not there.
func (n *node) metric(t *testing.T, name string) float64 {
	t.Helper()
	resp, err := http.Get(n.Ports()["http"][0] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			var v float64
			if _, err := fmt.Sscan(rest, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return 0
}

// await waits until a series has a value.
func (n *node) await(t *testing.T, name string, want float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n.metric(t, name) != want {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s is %g, want %g", name, n.metric(t, name), want)
		}
	}
}

// reply is what a chat is answered with.
type reply struct {
	status          int
	body            string
	text, reasoning string
	finish          string
	tokens, think   int
	forced          string
	thinking        map[string]any // of the member meridian
	param, message  string         // of an error
}

// chat asks for an answer. more are further members of the request, in JSON.
func (n *node) chat(t *testing.T, content, more string) reply {
	t.Helper()
	msg, err := json.Marshal([]map[string]string{{"role": "user", "content": content}})
	if err != nil {
		t.Fatal(err)
	}
	return n.ask(t, "/v1/chat/completions", fmt.Sprintf(`"messages":%s%s`, msg, more))
}

func (n *node) ask(t *testing.T, path, members string) (r reply) {
	t.Helper()
	resp, err := http.Post(n.url+path, "application/json", strings.NewReader(`{"model":"m","temperature":0,`+members+`}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var a struct {
		Choices []struct {
			Text    string
			Finish  string `json:"finish_reason"`
			Message struct {
				Content   string
				Reasoning string `json:"reasoning_content"`
			}
		}
		Usage struct {
			Completion int `json:"completion_tokens"`
			Details    struct {
				Reasoning int `json:"reasoning_tokens"`
			} `json:"completion_tokens_details"`
		}
		Meridian struct {
			Forced   string
			Thinking map[string]any
		}
		Error struct{ Param, Message string }
	}
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	r = reply{status: resp.StatusCode, body: string(b), tokens: a.Usage.Completion, think: a.Usage.Details.Reasoning,
		forced: a.Meridian.Forced, thinking: a.Meridian.Thinking, param: a.Error.Param, message: a.Error.Message}
	if len(a.Choices) == 1 {
		c := a.Choices[0]
		r.text, r.reasoning, r.finish = c.Message.Content+c.Text, c.Message.Reasoning, c.Finish
	}
	return r
}
