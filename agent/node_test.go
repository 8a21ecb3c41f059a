package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/blocks"
	"meridian/conformance/chaos"
	"meridian/fabric"
	"meridian/wire"
)

// waitLimit bounds every wait of these tests; nothing takes that long.
const waitLimit = 20 * time.Second

// await polls what cannot be waited for otherwise.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !cond(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, waitLimit)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// logText is a daemon's log.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// oneNode is a daemon in this process.
type oneNode struct {
	*Agent
	dir string
	log *logText
}

// socketDir is a folder whose name is short enough for Unix sockets.
func socketDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "mrdn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// nodeConfig writes and loads a configuration; text is what differs from a
// small node that knows nobody.
func nodeConfig(t testing.TB, dir, name, text string) *config.Config {
	t.Helper()
	base := fmt.Sprintf(`
[agent]
name = %q
state_dir = %q
drain_timeout = "5s"
[kv_memory]
capacity_bytes = "16MiB"
[engine]
socket = %q
staging_bytes = "4MiB"
[admin]
socket = %q
[security]
tenants = ["acme"]
`, name, filepath.Join(dir, name+".state"), filepath.Join(dir, name+".e"), filepath.Join(dir, name+".a"))
	path := filepath.Join(dir, name+".toml")
	if err := os.WriteFile(path, []byte(base+text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func newNode(t testing.TB, dir, name, text string, fabrics ...fabric.Fabric) *oneNode {
	t.Helper()
	n := &oneNode{dir: dir, log: &logText{}}
	opt := Options{Log: slog.New(slog.NewTextHandler(n.log, nil)), Version: "test"}
	for _, f := range fabrics {
		opt.Fabrics = map[string]fabric.Fabric{f.Label(): f}
	}
	var err error
	if n.Agent, err = Start(t.Context(), nodeConfig(t, dir, name, text), opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return n
}

const pairPSK = "a key of these tests"

// listening and dialling are the two sides of a link.
func listening(addr, peer string) string {
	return fmt.Sprintf("[link]\nlisten = [%q]\npsk = %q\n[[link.peer]]\nname = %q\ntenants = [\"acme\"]\n", addr, pairPSK, peer)
}

func dialling(addr, peer string) string {
	return fmt.Sprintf("[link]\npsk = %q\n[[link.peer]]\nname = %q\naddress = %q\ntenants = [\"acme\"]\n", pairPSK, peer, addr)
}

// twoNodes are a prefill node and a decode node that dials it.
func twoNodes(t testing.TB) (prefill, decode *oneNode) {
	dir := socketDir(t)
	prefill = newNode(t, dir, "prefill", listening("tcp://127.0.0.1:0", "decode"))
	decode = newNode(t, dir, "decode", dialling(prefill.Ports()["link"][0], "prefill"))
	prefill.ready(t)
	decode.ready(t)
	return prefill, decode
}

func (n *oneNode) ready(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); ; {
		reasons := n.unready()
		if len(reasons) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready: %v\n%s", n.id.name, reasons, n.log)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// nodeEngine is an engine of one namespace.
type nodeEngine struct {
	*client.Engine
	space client.NS
	ns    wire.Namespace
}

func nodeManifest(tenant string) wire.Manifest {
	return wire.Manifest{Tenant: tenant, Model: "m", BlockBytes: 256 << 10}
}

func (n *oneNode) engine(t testing.TB) *nodeEngine {
	t.Helper()
	e, err := client.DialEngine(t.Context(), n.cfg.Engine.Socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	m := nodeManifest("acme")
	space, err := e.Open(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return &nodeEngine{e, space, m.Namespace()}
}

func (e *nodeEngine) keys(prefix string, n int) []wire.Key {
	out := make([]wire.Key, n)
	for i := range out {
		out[i] = wire.KeyOf(e.ns, fmt.Appendf(nil, "%s %d", prefix, i))
	}
	return out
}

// put stores blocks whose bodies follow from their keys.
func (e *nodeEngine) put(t testing.TB, keys []wire.Key, size int, tier wire.Tier, req uint32) {
	t.Helper()
	blocks := make([]client.Block, len(keys))
	for i, k := range keys {
		body := make([]byte, size)
		chaos.Body(body, k)
		blocks[i] = client.Block{NS: e.space, Key: k, Tier: tier, Body: body, Req: req}
	}
	for i, err := range e.Put(t.Context(), blocks) {
		if err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
	}
}

// fetch acquires keys, from wherever they are, checks every byte of what is
// granted, releases, and returns each key's error.
func (e *nodeEngine) fetch(t testing.TB, keys []wire.Key) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	l, err := e.Acquire(ctx, e.space, keys, client.AcquireOptions{Fetch: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	errs := make([]error, len(keys))
	for i := range l.Blocks {
		b := &l.Blocks[i]
		if errs[i] = b.Err; b.Err != nil {
			continue
		}
		if err := chaos.CheckBody(b.Body, keys[i]); err != nil {
			t.Errorf("block %d: %v", i, err)
		}
	}
	return errs
}

func (e *nodeEngine) mustFetch(t testing.TB, keys []wire.Key) {
	t.Helper()
	for i, err := range e.fetch(t, keys) {
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
	}
}

// quietNow waits until nothing is leased, reserved or in flight.
func (n *oneNode) quietNow(t testing.TB) {
	t.Helper()
	await(t, "counts of "+n.id.name+" return to zero", func() bool {
		st, ls := n.store.Stats(), n.node.Stats()
		return st.Leases == 0 && st.Reserved == 0 && st.Quarantined == 0 && st.Transient == 0 && st.Leaked == 0 &&
			ls.Calls == 0 && ls.Served == 0 && n.transfers.inFlight(dirIn) == 0 && n.transfers.inFlight(dirOut) == 0
	})
}

// series is the value of one line of /metrics, and whether it is there.
func (n *oneNode) series(t testing.TB, line string) (string, bool) {
	t.Helper()
	for l := range strings.Lines(n.get(t, "/metrics")) {
		if rest, ok := strings.CutPrefix(l, line+" "); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

func (n *oneNode) get(t testing.TB, path string) string {
	t.Helper()
	_, body := n.getCode(t, path)
	return body
}

func (n *oneNode) getCode(t testing.TB, path string) (int, string) {
	t.Helper()
	res, err := http.Get(n.Ports()["http"][0] + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, b.String()
}

// damage turns a bit of a stored body, as failing memory would.
func (n *oneNode) damage(t testing.TB, ns wire.Namespace, key wire.Key) {
	t.Helper()
	o := n.store.NewOwner(0)
	v := []blocks.View{{NS: ns, Key: key}}
	lease, err := n.store.Acquire(o, v, waitLimit, false)
	if err != nil || v[0].Err != nil {
		t.Fatalf("acquire: %v, %v", err, v[0].Err)
	}
	n.store.Payload(v[0])[wire.HeaderLen+100] ^= 1
	n.store.Release(o, lease)
}
