package mooncake_test

import (
	"bytes"
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

	"meridian/adapters/mooncake/internal/wheel"
	"meridian/agent"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/internal/testbed"
	"meridian/wire"
)

// A daemon as its configuration makes it, an engine of Meridian, and a real engine of
// Mooncake: a stored block goes out to the application, and one of the application
// comes in and is read by the engine.
func TestADaemonSharesBlocksWithARealEngine(t *testing.T) {
	app := wheel.Start(t, 8<<20)
	dir := testbed.ShortDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	text := fmt.Sprintf(`[agent]
name = "house"
state_dir = "state"
[engine]
socket = %q
staging_bytes = "1MiB"
[admin]
socket = %q
[security]
tenants = ["acme"]
[kv_memory]
capacity_bytes = "16MiB"
[disagg]
enabled = true
fabric = "mooncake"
write_through = true
[fabric.mooncake]
peers = ["app=%s"]
listen = "127.0.0.1:0"
data = "127.0.0.1:0"
tenants = ["acme"]
notify = true
`, at("e"), at("a"), app.Name)
	if err := os.WriteFile(at("m.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Options{Path: at("m.toml"), Kinds: openers.Kinds()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, cfg, agent.Options{Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, at("ports"))
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	var ports map[string][]string
	testbed.Until(t, "the daemon listens", func() bool {
		b, err := os.ReadFile(at("ports"))
		return err == nil && json.Unmarshal(b, &ports) == nil
	})
	testbed.Until(t, "the daemon is ready", func() bool { return strings.Contains(page(ports["http"][0]+"/readyz"), "ready") })
	us := strings.TrimPrefix(ports["mooncake"][0], "mooncake://")

	e, err := client.DialEngine(t.Context(), at("e"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	m := wire.Manifest{Tenant: "acme", Model: "m", Role: "kv", BlockTokens: 16, BlockBytes: 64 << 10}
	ns, err := e.Open(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	out, in := wire.KeyOf(m.Namespace(), []byte("out")), wire.KeyOf(m.Namespace(), []byte("in"))
	body := wheel.Content(50_000, 1)
	think(t, e, client.Block{NS: ns, Key: out, Tier: wire.ThinkActive, Body: body})
	var addr uint64
	n := 0
	testbed.Until(t, "the application is told of the block", func() bool {
		for _, told := range app.Notifies() {
			if text, ours := strings.CutPrefix(told[1], fmt.Sprintf("mrdn stored %v %v ", m.Namespace(), out)); ours {
				if _, err := fmt.Sscan(text, &addr, &n); err != nil {
					t.Fatal(told[1], err)
				}
			}
		}
		return n > 0
	})
	want, err := wire.AppendPayload(nil, wire.ThinkActive, body) // the tier that it was put with
	if err != nil {
		t.Fatal(err)
	}
	if got := app.Get(int(addr-app.Addr), n); !bytes.Equal(got, want) {
		t.Error("other bytes lie in the application's memory")
	}

	payload, err := wire.AppendPayload(nil, wire.ThinkActive, wheel.Content(60_000, 2))
	if err != nil {
		t.Fatal(err)
	}
	app.Put(4<<20, payload)
	window := app.First(us)
	put := fmt.Sprintf("mrdn put %v %v %d %d", m.Namespace(), in, window, len(payload))
	app.Move(wheel.Move{Peer: us, Write: true, Here: []int{4 << 20}, There: []uint64{window}, Sizes: []int{len(payload)}, Sender: "app", Notify: put})
	lease, err := e.Acquire(t.Context(), ns, []wire.Key{in}, client.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	if b := lease.Blocks[0]; b.Err != nil || !bytes.Equal(b.Body, payload[wire.HeaderLen:]) {
		t.Errorf("what the application brought: %d bytes, %v", len(b.Body), b.Err)
	}
}

// think runs a request that puts a block while it thinks, and then stops thinking.
func think(t *testing.T, e *client.Engine, b client.Block) {
	t.Helper()
	const start, end, eos, word = 151667, 151668, 151645, 1000
	req, err := e.Begin(t.Context(), client.Begin{ID: "r", Model: "qwen3-8b", Prompt: []int32{word, start}})
	if err == nil {
		err = e.Tokens([]uint32{req}, []uint8{2}, []int32{word, word})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.Req = req
	if err := e.Put(t.Context(), []client.Block{b})[0]; err != nil {
		t.Fatal(err)
	}
	if err := e.Tokens([]uint32{req}, []uint8{3}, []int32{end, word, eos}); err != nil {
		t.Fatal(err)
	}
	if err := e.Finish(t.Context(), req, false); err != nil {
		t.Fatal(err)
	}
}

func page(url string) string {
	res, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK {
		return ""
	}
	return string(b)
}
