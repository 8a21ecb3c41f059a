package agent

import (
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/agent/transfer"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/conformance/chaos"
	"meridian/deploy/grafana"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

var rewrite = flag.Bool("rewrite", false, "write generated documents anew")

func TestMetricsDocumentIsMadeFromTheDaemon(t *testing.T) {
	const path = "../docs/metrics.md"
	want := MetricsMarkdown()
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the daemon describes (%v): run this test with -rewrite", path, err)
	}
}

// moved notes each sample that was ever seen away from zero.
type movedSeries map[string]bool

func (m movedSeries) scrape(t *testing.T, n *testNode) {
	t.Helper()
	for line := range strings.Lines(n.get(t, "/metrics")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		name, _, _ := strings.Cut(line[:i], "{")
		if v := strings.TrimSpace(line[i:]); v != "0" {
			m[name] = true
		} else if _, ok := m[name]; !ok {
			m[name] = false
		}
	}
}

// Every series that a daemon describes, and every one that the board reads,
// exists and moves once what it counts happens. What must stay zero is named
// here, and nothing else.
func TestEverySeriesExistsAndMoves(t *testing.T) {
	// The kernel of a machine that runs this has the few MiB.
	stayZero := []string{"meridian_leaked", "meridian_block_manager_ahead_refused_total"}
	moved := movedSeries{}
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	proxy, err := chaos.NewProxy(chaos.ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: prefill.Ports()["link"][0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	decode := startNode(t, dir, "decode", dialler(proxy.Addr(), "prefill")+`
[[link.peer]]
name = "gone"
address = "tcp://127.0.0.1:1"
tenants = ["acme"]
[[route]]
peer = "gone"
fabric = "link"
[scheduler]
max_think_tokens = 8
min_think_tokens = 1
[disagg]
enabled = true
fabric = "link"
`+tracesTo("http://127.0.0.1:1"))
	until(t, "the peer is ready", func() bool { return decode.node.Group().Usable(wire.Namespace{}) == nil })
	decode.ready(t)
	moved.scrape(t, decode)
	a, b := prefill.engine(t), decode.engine(t)
	prompt := a.keys("prompt", 8)
	a.put(t, prompt, 64<<10, wire.OutputCritical, 0)
	b.mustFetch(t, prompt)
	if errs := b.fetch(t, b.keys("absent", 1)); errs[0] == nil {
		t.Error("a block that nobody has")
	}
	think(t, b, 5) // more tokens than the cap, so it is forced; a fallback from "gone"
	until(t, "offloaded", func() bool { return decode.mover.OffloadStats().Blocks == 5 })
	driveLeases(t, decode, b, moved)
	driveLoads(t, decode, moved)
	drivePins(t, decode, moved)
	driveQuota(t, decode, moved)
	driveWindows(t, decode, b, moved)
	if err := decode.fabrics.Add("relay", aRelay{synthetic.New(synthetic.Options{})}); err != nil {
		t.Fatal(err)
	}
	for range decode.cfg.Quota.LogLines + 1 {
		decode.Agent.log.Info("one kind of line")
	}
	drivePhases(t, decode, b, moved)
	driveAdvice(t, decode)
	driveFailures(t, decode, b)
	driveEvictions(t, decode, b)
	decode.mover.Log.Begin(transfer.Record{In: true})
	decode.mover.Log.Begin(transfer.Record{})
	moveObserver{decode.Agent}.Slow(linkFabric)
	moveObserver{decode.Agent}.CutThrough(linkFabric, linkFabric, transfer.CutForwarded)
	driveObjects(t, decode)
	driveBridge(t, decode, b, moved)
	if err := decode.fabrics.Add("ill", ill{}); err != nil {
		t.Fatal(err)
	}
	until(t, "spans are dropped", func() bool {
		v, _ := decode.series(t, `meridian_trace_spans_total{outcome="dropped"}`)
		return v != "0"
	})
	moved.scrape(t, prefill)
	restart(t, dir, prefill, proxy, decode)
	moved.scrape(t, decode)

	var names []string
	for _, s := range append(slices.Clone(decode.metrics.docs), collected...) {
		name := s.name
		if s.kind == "histogram" {
			name += "_count"
		}
		names = append(names, name)
	}
	for _, name := range grafana.Series() {
		if strings.HasPrefix(name, "meridian_llama_") { // this daemon has no [llama]
			if !slices.ContainsFunc(llamaSeries, func(s series) bool { return s.name == name }) {
				t.Errorf("%s: no such series of a llama.cpp node", name)
			}
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		switch m, ok := moved[name]; {
		case !ok:
			t.Errorf("%s: no such series", name)
		case slices.Contains(stayZero, name) && m:
			t.Errorf("%s moved, and must stay zero", name)
		case !slices.Contains(stayZero, name) && !m:
			t.Errorf("%s never moves", name)
		}
	}
}

// driveLoads has a load wait for a block that nobody has, of a holder that does not exist.
func driveLoads(t *testing.T, n *testNode, moved movedSeries) {
	t.Helper()
	e := n.loader(t, 1)
	keys := e.keys("waited for", 1)
	l, err := e.Load(t.Context(), e.space, keys, client.LoadOptions{Wait: true, Fetch: true, Holder: client.Holder{Agent: [16]byte{9}, Inc: 9}})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "holders are asked again", func() bool { return n.engines.Stats().WaitsAsked > 0 })
	moved.scrape(t, n)
	e.put(t, keys, 4<<10, wire.OutputCritical, 0)
	var part client.Lease
	if _, err := l.Next(t.Context(), &part); err != nil || part.Blocks[0].Err != nil {
		t.Errorf("%v", err)
	}
	part.Release()
	l.Close()
}

// drivePins has an engine pin a block, and go.
func drivePins(t *testing.T, n *testNode, moved movedSeries) {
	t.Helper()
	e := n.loader(t, 2)
	b := e.blocks(e.keys("pinned", 1), 4<<10, wire.OutputCritical, 0)
	b[0].Pin = time.Minute
	if errs := e.Put(t.Context(), b); errs[0] != nil {
		t.Fatal(errs)
	}
	moved.scrape(t, n)
	_ = e.Close()
	until(t, "its pin ended", func() bool { return n.store.Stats().PinsEnded[blocks.PinDropped] == 1 })
}

// driveBridge has a block of a peer go on to another fabric, and one looked for.
func driveBridge(t *testing.T, n *testNode, e *testEngine, moved movedSeries) {
	t.Helper()
	if err := n.fabrics.Add("shelf", synthetic.New(synthetic.Options{})); err != nil {
		t.Fatal(err)
	}
	rules := n.routes.Rules()
	if err := n.routes.Replace([]fabric.Route{{From: linkFabric, Fabric: linkFabric, Peer: "gone", Require: true}}); err != nil {
		t.Fatal(err)
	}
	keys, from := e.keys("bridged", 1), fabric.Hop{Fabric: linkFabric, Peer: "prefill"}
	e.put(t, keys, 4<<10, wire.ThinkActive, 0)
	pass, err := n.mover.Bring(from, fabric.Brought{NS: e.ns, Key: keys[0], Tier: wire.ThinkActive, Bytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	pass.End(nil)
	moved.scrape(t, n)
	if err := n.routes.Replace([]fabric.Route{{From: linkFabric, Fabric: "shelf"}}); err != nil {
		t.Fatal(err)
	}
	until(t, "the block went on", func() bool { return n.mover.BridgeStats().Forwarded == 1 })
	n.mover.Look(t.Context(), from, e.ns, e.keys("nowhere", 1))
	if err := n.routes.Replace(rules); err != nil {
		t.Fatal(err)
	}
}

// ill is a fabric with something wrong.
type ill struct{ fabric.Fabric }

func (ill) Findings() []fabric.Finding { return []fabric.Finding{{ID: "ill", Bad: true}} }
func (ill) Close() error               { return nil }

func (aRelay) Failures() []fabric.Failures {
	return []fabric.Failures{{Peer: "app", In: map[wire.Code]uint64{wire.CodeInvalid: 1}, Out: map[wire.Code]uint64{wire.CodeFull: 1}}}
}

// aRelay is a fabric that has carried something, and failed with a peer.
type aRelay struct{ fabric.Fabric }

func (aRelay) Relayed() []fabric.Relayed {
	return []fabric.Relayed{
		{Source: "other", Refused: map[wire.Code]uint64{}},
		{Source: "app", Connections: 1, Written: 1, Read: 1, Requests: 1, Notifies: 1, Refused: map[wire.Code]uint64{wire.CodeInvalid: 1}},
	}
}

func driveLeases(t *testing.T, n *testNode, e *testEngine, moved movedSeries) {
	keys := e.keys("leased", 2)
	e.put(t, keys, 4<<10, wire.OutputCritical, 0)
	timed, err := e.Acquire(t.Context(), e.space, keys[:1], client.AcquireOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	hold, err := e.Acquire(t.Context(), e.space, keys[1:], client.AcquireOptions{Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	o := n.store.NewOwner(0)
	if _, err := n.store.Reserve(o, e.ns, []uint32{1 << 10}, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	v, err := n.store.Reserve(o, e.ns, []uint32{1 << 10}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	quiet := n.store.Loose([]uint32{v[0].Ref.Slot})
	n.store.Abort(o, []uint32{v[0].Ref.Slot})
	moved.scrape(t, n)
	quiet()
	timed.Release()
	hold.Release()
	short, err := e.Acquire(t.Context(), e.space, keys[:1], client.AcquireOptions{TTL: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "a lease and a reservation expire", func() bool {
		st := n.store.Stats()
		return st.LeasesLapsed > 0 && st.ReservationsExpired > 0
	})
	if err := short.Renew(t.Context(), time.Second); !errors.Is(err, wire.CodeLeaseLost) {
		t.Errorf("renewal of a lapsed lease: %v", err)
	}
	n.store.Drop(o)
}

// driveQuota takes an account to its limit and one beyond.
func driveQuota(t *testing.T, n *testNode, moved movedSeries) {
	src := quota.Holder{Kind: quota.Source, Name: "192.0.2.1"}
	h, err := n.quota.Take(quota.HalfOpen, uint64(n.cfg.Quota.SourceHalfOpen), src)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Give()
	if _, err := n.quota.Take(quota.HalfOpen, 1, src); !errors.Is(err, wire.CodeTooMany) {
		t.Errorf("one above the limit: %v", err)
	}
	moved.scrape(t, n)
}

func drivePhases(t *testing.T, n *testNode, e *testEngine, moved movedSeries) {
	for _, prompt := range [][]int32{{1}, {151667}} {
		req, err := e.Begin(t.Context(), client.Begin{ID: "r", Model: "qwen3-8b", Prompt: prompt})
		if err != nil {
			t.Fatal(err)
		}
		moved.scrape(t, n)
		if err := e.Tokens([]uint32{req}, []uint8{1}, []int32{1000}); err != nil {
			t.Fatal(err)
		}
		if err := e.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		moved.scrape(t, n)
		if err := e.Finish(t.Context(), req, true); err != nil {
			t.Fatal(err)
		}
	}
}

func driveFailures(t *testing.T, n *testNode, e *testEngine) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: n.cfg.Engine.Socket}); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, make([]byte, 64)); err != nil { // no HELLO
		t.Fatal(err)
	}
	until(t, "a connection is refused", func() bool { return n.engines.Stats().Refused > 0 })
	key := e.keys("damaged", 1)
	e.put(t, key, 4<<10, wire.OutputCritical, 0)
	n.damage(t, e.ns, key[0])
	if res, err := n.adminClient(t).VerifyBlock(t.Context(), verifyRequest(key[0])); err != nil || res.Ok {
		t.Fatalf("verify of a damaged block: %+v, %v", res, err)
	}
}

// driveEvictions fills the arena with blocks of a request that runs.
func driveEvictions(t *testing.T, n *testNode, e *testEngine) {
	req, err := e.Begin(t.Context(), client.Begin{ID: "r", Model: "qwen3-8b", Prompt: []int32{1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range e.keys("much", 100) {
		e.put(t, []wire.Key{k}, 250<<10, wire.OutputCritical, req)
	}
	if n.store.Stats().LiveEvictions == 0 {
		t.Error("25 MB of a running request fit into 16 MiB")
	}
}

// restart replaces the listening node by one that its peer finds at the same address.
func restart(t *testing.T, dir string, old *testNode, proxy *chaos.Proxy, peer *testNode) {
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	again := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	if err := proxy.Retarget(again.Ports()["link"][0]); err != nil {
		t.Fatal(err)
	}
	until(t, "the new incarnation is counted", func() bool {
		v, ok := peer.series(t, `meridian_peer_incarnation_changes_total{peer="prefill"}`)
		return ok && v != "0"
	})
}
