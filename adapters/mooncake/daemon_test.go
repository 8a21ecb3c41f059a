package mooncake_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"meridian/adapters/mooncake/internal/realmeta"
	"meridian/adapters/mooncake/internal/wheel"
	"meridian/adapters/mooncake/metadata"
	"meridian/agent/client"
	"meridian/internal/testbed"
	"meridian/internal/testdaemon"
	"meridian/wire"
)

// us is where a daemon answers handshakes.
func us(d *testdaemon.Daemon) string {
	return strings.TrimPrefix(d.Ports["mooncake"][0], "mooncake://")
}

// start runs a daemon. more are lines of [fabric.mooncake]; above, lines of other tables.
func start(t *testing.T, above, more string) *testdaemon.Daemon {
	t.Helper()
	return startAt(t, "127.0.0.1:0", "127.0.0.1:0", above, more)
}

// startAt is start at given addresses of handshake and data plane.
func startAt(t *testing.T, listen, data, above, more string) *testdaemon.Daemon {
	t.Helper()
	return testdaemon.Start(t, fmt.Sprintf(`[security]
tenants = ["acme"]
%s
[fabric.mooncake]
listen = %q
data = %q
tenants = ["acme"]
notify = true
%s
`, above, listen, data, more))
}

const offload = `[disagg]
enabled = true
fabric = "mooncake"
write_through = true`

// A daemon as its configuration makes it, an engine of Meridian, and a real engine of
// Mooncake: a stored block goes out to the application, and one of the application
// comes in and is read by the engine.
func TestADaemonSharesBlocksWithARealEngine(t *testing.T) {
	app := wheel.Start(t, 8<<20)
	d := start(t, offload, fmt.Sprintf("peers = [\"app=%s\"]", app.Name))
	share(t, d, app, us(d))
}

// The same where both are found by a metadata server, by names that are no addresses. A
// daemon that ends is no longer found there.
func TestADaemonAndARealEngineFindEachOtherByEachMetadataServer(t *testing.T) {
	for _, s := range realmeta.Servers[1:] {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			server := s.Start(t)
			app := wheel.StartAt(t, 8<<20, "app:12345", server)
			d := start(t, offload, fmt.Sprintf("peers = [\"app=%s\"]\nmetadata = %q\nsegment = \"house\"", app.Name, server))
			plane, err := metadata.Open(metadata.Config{Server: server})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = plane.Close() }()
			testbed.Until(t, "the daemon's segment is published", func() bool {
				_, _, err := plane.Get(t.Context(), "house")
				return err == nil
			})
			share(t, d, app, "house")
			if want := `meridian_fabric_finding{fabric="mooncake",finding="published"} 0`; !strings.Contains(d.Page("/metrics"), want) {
				t.Errorf("/metrics has no %s", want)
			}
			d.Stop()
			if _, err := plane.Endpoint(t.Context(), "house"); !errors.Is(err, wire.CodeAbsent) {
				t.Error("after the daemon's end:", err)
			}
		})
	}
}

// share moves a block from an engine of a daemon to an application, and one back. us is
// the name by which the application opens the daemon's segment.
func share(t *testing.T, d *testdaemon.Daemon, app *wheel.Engine, us string) {
	t.Helper()
	d.Ready(t)
	e, err := client.DialEngine(t.Context(), d.Engine(), client.Options{})
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
	// An engine before 0.3.12 may send its notify before the bytes: its application asks again.
	testbed.Until(t, "the block is taken", func() bool {
		app.Move(wheel.Move{Peer: us, Write: true, Here: []int{4 << 20}, There: []uint64{window}, Sizes: []int{len(payload)}, Sender: "app", Notify: put})
		return slices.ContainsFunc(app.Notifies(), func(told [2]string) bool { return strings.HasPrefix(told[1], "mrdn put-done ") })
	})
	lease, err := e.Acquire(t.Context(), ns, []wire.Key{in}, client.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	app.Move(wheel.Move{Peer: us, Write: true, Here: []int{4 << 20}, There: []uint64{window}, Sizes: []int{64}, Sender: "app", Notify: "mrdn put"})
	if want := `meridian_peer_failures_total{direction="in",fabric="mooncake",peer="app",reason="INVALID"} 1`; !strings.Contains(d.Page("/metrics"), want) {
		t.Errorf("/metrics has no %s", want)
	}
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
