package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

var ctx = context.Background()

// host is the rest of the daemon: it opens what it is asked to, and has remote
// blocks in a map.
type host struct {
	store *blocks.Store

	mu        sync.Mutex
	remote    map[wire.Key][]byte
	refuse    error        // of OpenNamespace
	open      atomic.Int64 // namespaces that sessions have open
	fetching  chan struct{}
	gate      chan struct{} // Fetch waits for it, or for its context
	fetches   int
	onFetch   func(context.Context, engine.Fetch) []error                            // instead of remote; nil: remote
	onFind    func(ns wire.Namespace, at engine.Holder, keys []wire.Key) []link.Have // instead of remote; nil: remote
	silent    chan context.Context                                                   // FindRemote tells its own, and answers when that ends
	offloaded []wire.Key
	offload   chan struct{} // a token for each call of Offload
}

func newHost(s *blocks.Store) *host {
	return &host{store: s, remote: map[wire.Key][]byte{}, fetching: make(chan struct{}, 64), offload: make(chan struct{}, 64)}
}

func (h *host) OpenNamespace(_ quota.Holder, m wire.Manifest) (wire.Namespace, func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		return wire.Namespace{}, nil, h.refuse
	}
	h.open.Add(1)
	return m.Namespace(), func() { h.open.Add(-1) }, h.store.AddNamespace(m.Namespace(), m.TenantID())
}

func (h *host) TakeTurn(session, ticket uint64) engine.Turn { return noTurn{} }

type noTurn struct{}

func (noTurn) Leave() {}

func (h *host) Fetch(ctx context.Context, f engine.Fetch) []error {
	o, ns, keys, transient := f.Owner, f.NS, f.Keys, f.Transient
	h.mu.Lock()
	gate := h.gate
	h.fetches++
	own, fetching := h.onFetch, h.fetching
	h.mu.Unlock()
	if own != nil {
		return own(ctx, f)
	}
	fetching <- struct{}{}
	errs := make([]error, len(keys))
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			for i := range errs {
				errs[i] = ctx.Err()
			}
			return errs
		}
	}
	for i, k := range keys {
		errs[i] = h.bring(o, ns, k, transient)
	}
	return errs
}

// bring stores a remote block.
func (h *host) bring(o blocks.Owner, ns wire.Namespace, k wire.Key, transient bool) error {
	h.mu.Lock()
	body, ok := h.remote[k]
	h.mu.Unlock()
	if !ok {
		return wire.CodeAbsent
	}
	v, err := h.store.Reserve(o, ns, []uint32{uint32(len(body))}, link.MaxLease)
	if err != nil {
		return err
	}
	copy(h.store.Room(v[0])[wire.HeaderLen:], body)
	c := []blocks.Commit{{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: ns, Key: k, Len: uint32(len(body)), Att: wire.AttestProducer, Transient: transient}}
	h.store.Commit(o, c)
	return c[0].Err
}

func (h *host) FindRemote(ctx context.Context, ns wire.Namespace, at engine.Holder, keys []wire.Key) []link.Have {
	h.mu.Lock()
	silent := h.silent
	h.mu.Unlock()
	if silent != nil {
		silent <- ctx
		<-ctx.Done()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.onFind != nil {
		return h.onFind(ns, at, keys)
	}
	out := make([]link.Have, len(keys))
	for i, k := range keys {
		body, ok := h.remote[k]
		if !ok {
			out[i].Status = wire.CodeAbsent
			continue
		}
		head, _ := wire.Mint(wire.ThinkComplete, body)
		out[i] = link.Have{Len: uint32(len(body)), Slot: 7, Gen: 8}
		head.Put(out[i].Head[:])
	}
	return out
}

func (h *host) Offload(ns wire.Namespace, keys []wire.Key) {
	h.mu.Lock()
	h.offloaded = append(h.offloaded, keys...)
	h.mu.Unlock()
	h.offload <- struct{}{}
}

// node is a daemon's engine socket with a real store.
type node struct {
	store  *blocks.Store
	host   *host
	srv    *engine.Server
	path   string
	cfg    engine.Config
	owners int          // the store's own
	waited atomic.Int64 // sessions whose end wait has seen
	watch  watcher
}

// watcher is the observer of a node.
type watcher struct {
	request atomic.Pointer[func(link.Type)]
	mu      sync.Mutex
	refused []wire.Code
	events  []scheduler.Event
}

func (w *watcher) Request(t link.Type, _ int, _ time.Duration, _ wire.Code) {
	if f := w.request.Load(); f != nil {
		(*f)(t)
	}
}

func (w *watcher) Refused(c wire.Code) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, c)
}

func (w *watcher) Phase(e scheduler.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.Inject = nil
	w.events = append(w.events, e)
}

// onRequest calls f for each request that ends from now on.
func (n *node) onRequest(f func(link.Type)) { n.watch.request.Store(&f) }

// wait returns when count more sessions have ended than were waited for before.
func (n *node) wait(count int) {
	want := n.waited.Add(int64(count))
	for st := n.srv.Stats(); int64(st.Accepted)-int64(st.Sessions) < want; st = n.srv.Stats() {
		time.Sleep(100 * time.Microsecond)
	}
}

func startNode(t testing.TB, change func(*blocks.Config, *engine.Config)) *node {
	t.Helper()
	bc := blocks.Config{Capacity: 8 << 20, Agent: [16]byte{1}, Incarnation: 2}
	ec := engine.Config{
		Path: filepath.Join(tempDir(t), "s"), Tenants: []string{"acme", "other"},
		Agent: bc.Agent, Incarnation: bc.Incarnation,
		Limits: engine.Limits{StagingBytes: 1 << 20},
	}
	if change != nil {
		change(&bc, &ec)
	}
	store, err := blocks.Open(bc)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{store: store, host: newHost(store), path: ec.Path, owners: store.Stats().Owners}
	ec.Store, ec.Host, ec.Observer = store, n.host, &n.watch
	n.cfg = ec
	n.srv, err = engine.Listen(ec)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- n.srv.Serve() }()
	t.Cleanup(func() {
		n.srv.Close()
		if err := <-served; !errors.Is(err, engine.ErrClosed) {
			t.Errorf("Serve returned %v", err)
		}
		n.nothingHeld(t)
		if open := n.host.open.Load(); open != 0 {
			t.Errorf("%d namespaces are open after the last session", open)
		}
		if err := store.Close(); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	return n
}

// nothingHeld asserts that what sessions took has come back, once.
func (n *node) nothingHeld(t testing.TB) {
	t.Helper()
	st := n.store.Stats()
	if st.Leases != 0 || st.Reserved != 0 || st.StagingBytes != 0 || st.Transient != 0 || st.Owners != n.owners || st.Leaked != 0 {
		t.Errorf("held after the end: %d leases, %d reservations, %d staging bytes, %d transient blocks, %d owners; %d leaked",
			st.Leases, st.Reserved, st.StagingBytes, st.Transient, st.Owners, st.Leaked)
	}
}

// put stores one block of acme.
func put(t testing.TB, e *client.Engine, b client.Block) {
	t.Helper()
	if errs := e.Put(ctx, []client.Block{b}); errs[0] != nil {
		t.Fatal(errs[0])
	}
}

// acquire leases blocks, all of which must be there.
func acquire(t testing.TB, e *client.Engine, ns client.NS, o client.AcquireOptions, names ...string) *client.Lease {
	t.Helper()
	keys := make([]wire.Key, len(names))
	for i := range names {
		keys[i] = keyOf(names[i])
	}
	l, err := e.Acquire(ctx, ns, keys, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.Blocks {
		if l.Blocks[i].Err != nil {
			t.Fatalf("%s: %v", names[i], l.Blocks[i].Err)
		}
	}
	return l
}

// is asserts an error's code.
func is(t testing.TB, err error, code wire.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("error %v, want %s", err, code)
	}
}

// tempDir is short: a socket's path has at most 107 bytes.
func tempDir(t testing.TB) string {
	t.Helper()
	d, err := os.MkdirTemp("", "mrdn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(d) })
	return d
}

func manifest(tenant string) wire.Manifest {
	return wire.Manifest{
		Tenant: tenant, Model: "qwen3", Revision: "r1", Role: "kv", Dtype: "bf16", Layout: "nhd",
		BlockTokens: 16, BlockBytes: 1 << 20, KVHeads: 8, HeadSize: 128, LayerLast: 27,
		TPSize: 1, PPSize: 1, DCPSize: 1, HashScheme: "test",
	}
}

func (n *node) dial(t testing.TB, o client.Options) *client.Engine {
	t.Helper()
	e, err := client.DialEngine(ctx, n.path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// open dials and opens acme's namespace.
func (n *node) open(t testing.TB) (*client.Engine, client.NS) {
	t.Helper()
	e := n.dial(t, client.Options{})
	ns, err := e.Open(ctx, manifest("acme"))
	if err != nil {
		t.Fatal(err)
	}
	return e, ns
}

func keyOf(name string) wire.Key { return wire.KeyOf(manifest("acme").Namespace(), []byte(name)) }

func body(seed byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i*7)
	}
	return b
}
