package relay_test

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

	"meridian/adapters/mooncake/internal/wheel"
	"meridian/agent"
	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/internal/testbed"
)

// Two real engines, and one daemon with a relay in each direction. Neither engine knows
// more than the name of a segment.
func TestTwoRealEnginesThroughOneDaemon(t *testing.T) {
	const n = 8 << 20
	a, b := wheel.Start(t, 2*n), wheel.Start(t, 2*n)
	d := run(t, fmt.Sprintf(`
[fabric.to-a]
kind = "mooncake-relay"
target = "a=%s"
listen = "127.0.0.1:0"
data = "127.0.0.1:0"
[fabric.to-b]
kind = "mooncake-relay"
target = "b=%s"
listen = "127.0.0.1:0"
data = "127.0.0.1:0"
allow = ["app=127.0.0.0/8"]
`, a.Name, b.Name))
	for _, way := range []struct {
		from, to *wheel.Engine
		relay    string
	}{{a, b, "to-b"}, {b, a, "to-a"}} {
		from, to, relay := way.from, way.to, strings.TrimPrefix(d.ports[way.relay][0], "mooncake://")
		if !from.Probe(relay) || from.First(relay) != to.Addr {
			t.Fatal("the probe, or the address of the first buffer")
		}
		from.Fill(0, n, 1)
		if !from.Move(wheel.Move{Peer: relay, Write: true, Here: []int{0}, There: []uint64{to.Addr + n}, Sizes: []int{n}, Sender: "me", Notify: "there it is"}) {
			t.Fatal("the write failed")
		}
		if to.Digest(n, n) != from.Digest(0, n) {
			t.Error("other bytes were written")
		}
		if got := to.Notifies(); len(got) != 1 || got[0] != [2]string{"me", "there it is"} {
			t.Errorf("notifies %q", got)
		}
		to.Fill(0, n, 2)
		if !from.Move(wheel.Move{Peer: relay, Here: []int{0}, There: []uint64{to.Addr}, Sizes: []int{n}}) {
			t.Fatal("the read failed")
		}
		if to.Digest(0, n) != from.Digest(0, n) {
			t.Error("other bytes were read")
		}
		if from.Move(wheel.Move{Peer: relay, Write: true, Here: []int{0}, There: []uint64{to.Addr + 2*n - 8}, Sizes: []int{16}}) {
			t.Error("a write beyond the memory went well")
		}
	}
	d.knows(t, n)
}

// An engine without a pool opens a connection for each transfer of a batch.
func TestABatchOfARealEngineWithoutAPool(t *testing.T) {
	const n, size = 200, 4096
	a, b := wheel.Start(t, n*size, "MC_TCP_ENABLE_CONNECTION_POOL=0"), wheel.Start(t, n*size)
	d := run(t, fmt.Sprintf("[fabric.to-b]\nkind = \"mooncake-relay\"\ntarget = \"b=%s\"\nlisten = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\n", b.Name))
	m := wheel.Move{Peer: strings.TrimPrefix(d.ports["to-b"][0], "mooncake://"), Write: true}
	for i := range n {
		m.Here, m.There, m.Sizes = append(m.Here, i*size), append(m.There, b.Addr+uint64(i*size)), append(m.Sizes, size)
	}
	a.Fill(0, n*size, 1)
	if !a.Move(m) || b.Digest(0, n*size) != a.Digest(0, n*size) {
		t.Error("the writes failed, or other bytes were written")
	}
	b.Fill(0, n*size, 2)
	m.Write = false
	if !a.Move(m) || b.Digest(0, n*size) != a.Digest(0, n*size) {
		t.Error("the reads failed, or other bytes were read")
	}
}

// knows compares what command line and metrics say of the relays.
func (d *daemon) knows(t *testing.T, n int) {
	t.Helper()
	adm, err := client.DialAdmin(t.Context(), d.admin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = adm.Close() }()
	list, err := adm.ListFabrics(t.Context(), &adminpb.ListFabricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	peers := map[string]string{}
	for _, f := range list.GetFabrics() {
		peers[f.GetLabel()] = fmt.Sprint(f.GetPeers(), f.GetProbes())
	}
	if peers["to-a"] != "[a] true" || peers["to-b"] != "[b] true" {
		t.Errorf("fabrics %v", peers)
	}
	probes, err := adm.ProbeFabric(t.Context(), &adminpb.ProbeFabricRequest{Fabric: "to-b"})
	if err != nil || len(probes.GetProbes()) != 1 || !probes.GetProbes()[0].GetOk() {
		t.Errorf("probes %v, %v", probes, err)
	}
	doctor, err := adm.Doctor(t.Context(), &adminpb.DoctorRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]adminpb.Severity{}
	for _, f := range doctor.GetFindings() {
		found[f.GetId()] = f.GetSeverity()
	}
	for _, id := range []string{"to-a.target", "to-b.target", "to-b.memory", "to-b.advertised", "to-b.unacknowledged"} {
		if found[id] != adminpb.Severity_SEVERITY_OK {
			t.Errorf("%s is %v", id, found[id])
		}
	}
	metrics := page(d.ports["http"][0] + "/metrics")
	for _, want := range []string{
		fmt.Sprintf("meridian_relay_bytes_total{direction=\"in\",fabric=\"to-b\",source=\"app\"} %g\n", float64(n)),
		fmt.Sprintf("meridian_relay_bytes_total{direction=\"out\",fabric=\"to-b\",source=\"app\"} %g\n", float64(n)),
		"meridian_relay_requests_total{fabric=\"to-b\",source=\"app\"} 2\n",
		"meridian_relay_notifies_total{fabric=\"to-b\",source=\"app\"} 1\n",
		"meridian_relay_refusals_total{fabric=\"to-b\",reason=\"INVALID\",source=\"app\"} 1\n",
		"meridian_relay_requests_total{fabric=\"to-a\",source=\"other\"} 2\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, "meridian_relay_") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
}

type daemon struct {
	admin string
	ports map[string][]string
}

// run runs a daemon with tables of fabrics until the test ends, and waits until it is
// ready.
func run(t *testing.T, tables string) *daemon {
	t.Helper()
	dir := testbed.ShortDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	d := &daemon{admin: at("a")}
	text := fmt.Sprintf("[agent]\nname = \"house\"\nstate_dir = \"state\"\n[engine]\nsocket = %q\nstaging_bytes = \"1MiB\"\n[admin]\nsocket = %q\n[kv_memory]\ncapacity_bytes = \"16MiB\"\n", at("e"), d.admin)
	if err := os.WriteFile(at("m.toml"), []byte(text+tables), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := openers.Load(config.Options{Path: at("m.toml")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, cfg, agent.Options{Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, at("ports"))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	testbed.Until(t, "the daemon listens", func() bool {
		b, err := os.ReadFile(at("ports"))
		return err == nil && json.Unmarshal(b, &d.ports) == nil
	})
	testbed.Until(t, "the daemon is ready", func() bool { return strings.Contains(page(d.ports["http"][0]+"/readyz"), "ready") })
	return d
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
