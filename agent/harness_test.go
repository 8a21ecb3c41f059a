package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/blocks"
	"meridian/conformance/chaos"
	"meridian/wire"
)

// patience bounds every wait; a test that needs a hundredth of it is slow.
const patience = 30 * time.Second

const testPSK = "0123456789abcdef0123456789abcdef"

// eventually waits for cond.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// shortDir is a t.TempDir whose name leaves room for sockets: their paths have at
// most 107 bytes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mrd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// testConfig is a daemon's configuration; change is applied after the checks.
func testConfig(t testing.TB, name string, change ...func(*config.Config)) *config.Config {
	t.Helper()
	dir := shortDir(t)
	c, _, err := config.Load(config.Options{Flags: map[string]string{
		"agent.name": name, "agent.state_dir": filepath.Join(dir, "state"), "agent.drain_timeout": "20s",
		"kv_memory.capacity_bytes": "32MiB", "link.psk": testPSK, "link.lanes": "2", "security.tenants": "acme,zeta",
		"engine.socket": filepath.Join(dir, "engine.sock"), "admin.socket": filepath.Join(dir, "admin.sock"),
		"engine.staging_bytes": "4MiB",
	}, Path: emptyFile(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	c.Security.Tenants = []string{"acme", "zeta"}
	for _, f := range change {
		f(c)
	}
	return c
}

func emptyFile(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "empty.toml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func listenOn(addr ...string) func(*config.Config) {
	return func(c *config.Config) { c.Link.Listen = addr }
}

func withPeer(name, addr string, tenants ...string) func(*config.Config) {
	return func(c *config.Config) {
		c.Link.Peers = append(c.Link.Peers, config.Peer{Name: name, Address: addr, Tenants: tenants})
	}
}

// logBook keeps what a daemon logs.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// lines are the records whose message contains text.
func (b *logBook) lines(text string) (out []map[string]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range bytes.Split(b.buf.Bytes(), []byte("\n")) {
		var rec map[string]any
		if json.Unmarshal(line, &rec) == nil && strings.Contains(fmt.Sprint(rec["msg"]), text) {
			out = append(out, rec)
		}
	}
	return out
}

// node is a daemon under test.
type node struct {
	*Agent
	t   testing.TB
	log *logBook
}

func startNode(t testing.TB, cfg *config.Config, change ...func(*Options)) *node {
	t.Helper()
	n := &node{t: t, log: &logBook{}}
	opt := Options{Version: "test", Log: slog.New(slog.NewJSONHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, f := range change {
		f(&opt)
	}
	a, err := Start(t.Context(), cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	n.Agent = a
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", cfg.Agent.Name, n.log.buf.String())
		}
	})
	return n
}

// dial connects an engine.
func (n *node) dial(o client.Options) *client.Engine {
	n.t.Helper()
	e, err := client.DialEngine(n.t.Context(), n.cfg.Engine.Socket, o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = e.Close() })
	return e
}

// space is an engine with one namespace open.
type space struct {
	*client.Engine
	n  *node
	m  wire.Manifest
	ns client.NS
}

func (n *node) engine(tenant string, o ...client.Options) *space {
	n.t.Helper()
	m := manifest(tenant)
	s := &space{Engine: n.dial(append(o, client.Options{})[0]), n: n, m: m}
	var err error
	if s.ns, err = s.Open(n.t.Context(), m); err != nil {
		n.t.Fatal(err)
	}
	return s
}

func manifest(tenant string) wire.Manifest {
	return wire.Manifest{
		Tenant: tenant, Model: "thinker", Revision: "r1", Role: "kv", Dtype: "bf16", Layout: "nhd",
		BlockTokens: 16, BlockBytes: 16 << 10, KVHeads: 8, HeadSize: 128, LayerLast: 27,
		TPSize: 1, PPSize: 1, DCPSize: 1, HashScheme: "test",
	}
}

// keysOf are keys of a space, by number.
func (s *space) keysOf(first, n int) []wire.Key {
	keys := make([]wire.Key, n)
	for i := range keys {
		keys[i] = wire.KeyOf(s.m.Namespace(), fmt.Append(nil, first+i))
	}
	return keys
}

// put stores bodies of size bytes that follow from their keys.
func (s *space) put(tier wire.Tier, req uint32, size int, keys ...wire.Key) {
	s.n.t.Helper()
	for i, err := range s.Put(s.n.t.Context(), makeBlocks(s.ns, tier, req, size, keys)) {
		if err != nil {
			s.n.t.Fatalf("put %d: %v", i, err)
		}
	}
}

func makeBlocks(ns client.NS, tier wire.Tier, req uint32, size int, keys []wire.Key) []client.Block {
	list := make([]client.Block, len(keys))
	for i, k := range keys {
		list[i] = client.Block{NS: ns, Key: k, Tier: tier, Req: req, Body: make([]byte, size)}
		chaos.Body(list[i].Body, k)
	}
	return list
}

// get acquires keys and returns each one's error; a body that is served is
// checked, whatever the test is about.
func (s *space) get(o client.AcquireOptions, size int, keys ...wire.Key) []error {
	s.n.t.Helper()
	l, err := s.Acquire(s.n.t.Context(), s.ns, keys, o)
	if err != nil {
		s.n.t.Fatalf("acquire: %v", err)
	}
	defer l.Release()
	errs := make([]error, len(keys))
	for i := range l.Blocks {
		b := &l.Blocks[i]
		if errs[i] = b.Err; b.Err != nil {
			continue
		}
		if len(b.Body) != size {
			s.n.t.Errorf("block %d has %d bytes, want %d", i, len(b.Body), size)
		}
		if err := chaos.CheckBody(b.Body, keys[i]); err != nil {
			s.n.t.Errorf("wrong bytes were served: %v", err)
		}
	}
	return errs
}

// fetch gets keys, from others if need be, and expects all of them.
func (s *space) fetch(size int, keys ...wire.Key) {
	s.n.t.Helper()
	for i, err := range s.get(client.AcquireOptions{Fetch: true}, size, keys...) {
		if err != nil {
			s.n.t.Fatalf("fetch %d: %v", i, err)
		}
	}
}

// codes are the errors' codes.
func codes(errs []error) []wire.Code {
	out := make([]wire.Code, len(errs))
	for i, err := range errs {
		out[i] = wire.CodeOf(err)
	}
	return out
}

// admin connects to the admin API.
func (n *node) adminClient() *client.Admin {
	n.t.Helper()
	c, err := client.DialAdmin(n.t.Context(), n.cfg.Admin.Socket)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// peer is a row of ListPeers.
func (n *node) peer(name string) *adminpb.Peer {
	n.t.Helper()
	r, err := n.adminClient().ListPeers(n.t.Context(), &adminpb.ListPeersRequest{Name: name})
	if err != nil {
		n.t.Fatal(err)
	}
	return r.Peers[0]
}

// waitPeer waits until calls can be made to a peer.
func (n *node) waitPeer(name string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	if err := n.node.Peer(name).Ready(ctx); err != nil {
		n.t.Fatalf("peer %s: %v", name, err)
	}
}

// page gets a page of the HTTP face.
func (n *node) page(path string) (int, string) {
	n.t.Helper()
	r, err := http.Get(n.Ports()["http"][0] + path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// samples are the samples of /metrics, by name and, summed, by name alone.
func (n *node) samples() map[string]float64 {
	n.t.Helper()
	status, text := n.page("/metrics")
	if status != http.StatusOK {
		n.t.Fatalf("/metrics: %d\n%s", status, text)
	}
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var v float64
		at := strings.LastIndexByte(line, ' ')
		if _, err := fmt.Sscan(line[at+1:], &v); err != nil {
			n.t.Fatalf("sample %q: %v", line, err)
		}
		name, _, labelled := strings.Cut(line[:at], "{")
		if labelled {
			out[line[:at]] += v
		}
		out[name] += v
	}
	return out
}

// pulls counts the transfers of a kind that this daemon asked for or served.
func (n *node) count(dir direction, op string) (count int) {
	for _, x := range n.transfers.list(recentTransfers, "", false) {
		if x.dir == dir && x.op == op {
			count++
		}
	}
	return count
}

// settled waits until nothing that a transfer or lease took is left.
func (n *node) settled() {
	n.t.Helper()
	var st blocks.Stats
	var v Varz
	defer func() {
		if n.t.Failed() {
			n.t.Logf("%s: %+v %+v", n.id.name, st, v.Link)
		}
	}()
	eventually(n.t, "counts of "+n.id.name+" back to zero", func() bool {
		st, v = n.store.Stats(), n.varz()
		return st.Reserved == 0 && st.Leases == 0 && st.Quarantined == 0 && st.Transient == 0 && st.Leaked == 0 &&
			v.TransfersIn == 0 && v.TransfersOut == 0 && v.Link.Calls == 0 && v.Link.Served == 0 && v.Link.Refs == 0
	})
}

// pair is two daemons that know each other: one listens, the other dials.
type pair struct{ front, back *node }

// startPair starts back on listen and front with a peer at what came of it;
// via may stand in between.
func startPair(t testing.TB, listen string, via func(addr string) string, change ...func(*config.Config)) pair {
	t.Helper()
	back := startNode(t, testConfig(t, "back", append(change, listenOn(listen), withPeer("front", "", "acme"))...))
	addr := back.Ports()["link"][0]
	if via != nil {
		addr = via(addr)
	}
	front := startNode(t, testConfig(t, "front", append(change, withPeer("back", addr, "acme"))...))
	front.waitPeer("back")
	back.waitPeer("front")
	return pair{front, back}
}

const loopback = "tcp://127.0.0.1:0"

// startProxied is startPair over TCP with a proxy between them. Its plan is armed
// once the self-test is through, so that it meets the test's own traffic: the
// lanes are cut for that, since a plan holds for connections to come.
func startProxied(t testing.TB, change ...func(*config.Config)) (pair, *chaos.Proxy) {
	t.Helper()
	var proxy *chaos.Proxy
	p := startPair(t, loopback, func(addr string) string {
		var err error
		if proxy, err = chaos.NewProxy(chaos.ProxyOptions{Listen: loopback, Target: addr, Seed: 1}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = proxy.Close() })
		return proxy.Addr()
	}, change...)
	p.tested()
	return p, proxy
}

// tested waits until the self-test of both directions has passed.
func (p pair) tested() {
	p.front.t.Helper()
	eventually(p.front.t, "self-tests", func() bool {
		f, ok := p.front.selftest.path("back")
		b, ok2 := p.back.selftest.path("front")
		return ok && ok2 && f.err == nil && b.err == nil
	})
}

// arm puts a plan in force for lanes that are dialled anew.
func (p pair) arm(proxy *chaos.Proxy, plan ...chaos.Action) {
	p.front.t.Helper()
	if err := proxy.Arm(plan...); err != nil {
		p.front.t.Fatal(err)
	}
	proxy.CutAll()
	p.relinked(proxy)
}

// relinked waits until all lanes are up that a cut took.
func (p pair) relinked(proxy *chaos.Proxy) {
	p.front.t.Helper()
	eventually(p.front.t, "lanes are back", func() bool {
		row := p.front.node.Peers()[0]
		return row.State.String() == "ready" && row.Lanes == p.front.cfg.Link.Lanes && proxy.Stats().Open == uint64(row.Lanes)+1
	})
}

// want fails unless err matches code.
func want(t testing.TB, err error, code wire.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Fatalf("error %v, want %s", err, code)
	}
}
