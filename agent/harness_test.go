package agent

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/adapters/link"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/blocks"
	"meridian/conformance/chaos"
	"meridian/fabric"
	"meridian/internal/testbed"
	"meridian/internal/testlog"
	"meridian/wire"
)

const patience = testbed.Patience

var until, shortDir = testbed.Until, testbed.ShortDir

// loadConfig writes a daemon's configuration to NAME.toml and loads it; text is
// what a test adds.
func loadConfig(t testing.TB, dir, name, text string) *config.Config {
	t.Helper()
	path := filepath.Join(dir, name+".toml")
	if err := os.WriteFile(path, []byte(baseConfig(dir, name, text)), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := openers.Load(config.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Agent.FindTimeout = patience // for tests that stall a holder and let it go on
	return cfg
}

// baseConfig is the text of a daemon's configuration, with what a test adds.
func baseConfig(dir, name, text string) string {
	at := func(ext string) string { return filepath.Join(dir, name+ext) }
	all := fmt.Sprintf(`[agent]
name = %q
state_dir = %q
[engine]
socket = %q
staging_bytes = "4MiB"
max_sessions = 32
[admin]
socket = %q
[security]
tenants = ["acme"]
`, name, at(".state"), at(".e"), at(".a"))
	if !strings.Contains(text, "[kv_memory]") {
		all += "[kv_memory]\ncapacity_bytes = \"16MiB\"\n"
	}
	return all + text
}

// linkFabric is the registry name of the link's peers together.
const linkFabric = "link"

// testLanes is link.lanes of linkTable.
const testLanes = 2

const linkTable = "[link]\npsk = \"5b1e7f0c92d84a63b0f6a9d13e57c248\"\nlanes = 2\n"

// listener is the configuration of a daemon that peer dials.
func listener(addr, peer string) string {
	return linkTable + fmt.Sprintf("listen = [%q]\n[[link.peer]]\nname = %q\ntenants = [\"acme\"]\n", addr, peer)
}

// dialler is the configuration of a daemon that dials peer.
func dialler(addr, peer string) string {
	return linkTable + fmt.Sprintf("[[link.peer]]\nname = %q\naddress = %q\ntenants = [\"acme\"]\n", peer, addr)
}

// testNode is a daemon under test.
type testNode struct {
	*Agent
	log  *testlog.Buffer
	node *link.Node
}

// startNode starts a daemon and stops it with the test. Fabrics go in by their
// labels.
func startNode(t testing.TB, dir, name, text string, fabrics ...fabric.Fabric) *testNode {
	t.Helper()
	return startConfig(t, loadConfig(t, dir, name, text), fabrics...)
}

func startConfig(t testing.TB, cfg *config.Config, fabrics ...fabric.Fabric) *testNode {
	t.Helper()
	n := &testNode{log: &testlog.Buffer{}}
	opt := Options{Version: "test", LogLost: func() uint64 { return 1 }, Log: NewLogger(n.log, cfg.Agent, new(slog.LevelVar)), Fabrics: map[string]fabric.Fabric{}}
	for _, f := range fabrics {
		opt.Fabrics[f.Label()] = f
		t.Cleanup(func() { _ = f.Close() })
	}
	var err error
	if n.Agent, err = Start(t.Context(), cfg, opt); err != nil {
		t.Fatal(err)
	}
	f, _ := n.fabrics.Get(linkFabric)
	n.node = f.(*openers.Link).Node
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close %s: %v", cfg.Agent.Name, err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", cfg.Agent.Name, n.log)
		}
	})
	return n
}

// pair is two daemons over TCP; decode dials prefill.
func pair(t testing.TB) (prefill, decode *testNode) { return pairWith(t, "") }

// pairWith is pair with more configuration for both.
func pairWith(t testing.TB, text string) (prefill, decode *testNode) {
	t.Helper()
	dir := shortDir(t)
	prefill = startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode")+text)
	decode = startNode(t, dir, "decode", dialler(prefill.Ports()["link"][0], "prefill")+text)
	prefill.ready(t)
	decode.ready(t)
	return prefill, decode
}

// ready waits until the daemon has no reason not to be.
func (n *testNode) ready(t testing.TB) {
	t.Helper()
	until(t, n.id.name+" is ready", func() bool { return len(n.unready()) == 0 })
}

// quietNow waits until nothing is left of what transfers and leases took.
func (n *testNode) quietNow(t testing.TB) {
	t.Helper()
	var st blocks.Stats
	var v Varz
	defer func() {
		if t.Failed() {
			t.Logf("%s: blocks %+v, link %+v", n.id.name, st, v.Fabrics[linkFabric])
		}
	}()
	until(t, "the counts of "+n.id.name+" are back to zero", func() bool {
		st, v = n.store.Stats(), n.varz()
		l := v.Fabrics[linkFabric]
		return st.Reserved == 0 && st.Leases == 0 && st.Quarantined == 0 && st.Transient == 0 && st.Leaked == 0 &&
			v.TransfersIn == 0 && v.TransfersOut == 0 && l.Calls == 0 && l.Waiting == 0 && l.Served == 0 && l.Refs == 0
	})
}

// damage turns one bit of a stored body, by the daemon's own writable map.
func (n *testNode) damage(t testing.TB, ns wire.Namespace, key wire.Key) {
	t.Helper()
	o := n.store.NewOwner(0)
	defer n.store.Drop(o)
	v := []blocks.View{{NS: ns, Key: key}}
	lease, err := n.store.Acquire(o, v, time.Minute, false)
	if err != nil || v[0].Err != nil {
		t.Fatal(err, v[0].Err)
	}
	defer n.store.Release(o, lease)
	n.store.Payload(v[0])[wire.HeaderLen+7] ^= 0x10
}

// getCode gets a page of the HTTP endpoint.
func (n *testNode) getCode(t testing.TB, path string) (int, string) {
	t.Helper()
	res, err := http.Get(n.Ports()["http"][0] + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// get is getCode for a page that is there.
func (n *testNode) get(t testing.TB, path string) string {
	t.Helper()
	code, body := n.getCode(t, path)
	if code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, code, body)
	}
	return body
}

// series is the value of one sample of /metrics, with its labels as served.
func (n *testNode) series(t testing.TB, sample string) (value string, ok bool) {
	t.Helper()
	for line := range strings.Lines(n.get(t, "/metrics")) {
		if v, found := strings.CutPrefix(line, sample+" "); found {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

// testEngine is an engine with one namespace open.
type testEngine struct {
	*client.Engine
	space client.NS
	ns    wire.Namespace
}

// engine connects an engine of tenant acme.
func (n *testNode) engine(t testing.TB) *testEngine {
	t.Helper()
	return n.engineOf(t, testManifest("acme"))
}

// loader is an engine that may load: one with a group, of that number.
func (n *testNode) loader(t testing.TB, group byte) *testEngine {
	t.Helper()
	return n.engineWith(t, testManifest("acme"), client.Options{Group: &client.Group{Agent: [16]byte{group}, Inc: 1}})
}

func (n *testNode) engineOf(t testing.TB, m wire.Manifest) *testEngine {
	t.Helper()
	return n.engineWith(t, m, client.Options{})
}

func (n *testNode) engineWith(t testing.TB, m wire.Manifest, o client.Options) *testEngine {
	t.Helper()
	c, err := client.DialEngine(t.Context(), n.cfg.Engine.Socket, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	e := &testEngine{Engine: c, ns: m.Namespace()}
	if e.space, err = c.Open(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return e
}

func testManifest(tenant string) wire.Manifest {
	return wire.Manifest{
		Tenant: tenant, Model: "qwen3-8b", Revision: "r1", Role: "kv", Dtype: "bf16", Layout: "nhd",
		BlockTokens: 16, BlockBytes: 256 << 10, KVHeads: 8, HeadSize: 128, LayerLast: 27,
		TPSize: 1, PPSize: 1, DCPSize: 1, HashScheme: "test",
	}
}

// keys are n keys of the engine's namespace, the same for every engine.
func (e *testEngine) keys(name string, n int) []wire.Key {
	keys := make([]wire.Key, n)
	for i := range keys {
		keys[i] = wire.KeyOf(e.ns, fmt.Appendf(nil, "%s %d", name, i))
	}
	return keys
}

func (e *testEngine) blocks(keys []wire.Key, size int, tier wire.Tier, req uint32) []client.Block {
	list := make([]client.Block, len(keys))
	for i, k := range keys {
		list[i] = client.Block{NS: e.space, Key: k, Tier: tier, Req: req, Body: make([]byte, size)}
		chaos.Body(list[i].Body, k)
	}
	return list
}

// put stores bodies that follow from their keys.
func (e *testEngine) put(t testing.TB, keys []wire.Key, size int, tier wire.Tier, req uint32) {
	t.Helper()
	for i, err := range e.Put(t.Context(), e.blocks(keys, size, tier, req)) {
		if err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
	}
}

// fetch asks for keys, of others too, and returns an error for each. What is
// served has to be right, whatever the test is about.
func (e *testEngine) fetch(t testing.TB, keys []wire.Key) []error {
	t.Helper()
	errs := make([]error, len(keys))
	l, err := e.Acquire(t.Context(), e.space, keys, client.AcquireOptions{Fetch: true})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer l.Release()
	for i := range l.Blocks {
		if errs[i] = l.Blocks[i].Err; errs[i] != nil {
			continue
		}
		if err := chaos.CheckBody(l.Blocks[i].Body, keys[i]); err != nil || len(l.Blocks[i].Body) == 0 {
			t.Errorf("wrong bytes were served for block %d: %v", i, err)
		}
	}
	return errs
}

// mustFetch expects every block.
func (e *testEngine) mustFetch(t testing.TB, keys []wire.Key) {
	t.Helper()
	for i, err := range e.fetch(t, keys) {
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
	}
}
