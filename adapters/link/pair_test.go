package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"meridian/adapters/link/internal/memstore"
	"meridian/blocks/spaces"
	"meridian/fabric"
	"meridian/internal/invariants/leak"
	"meridian/internal/testbed"
	"meridian/wire"
)

// side is one agent of a test.
type side struct {
	*Node
	store *memstore.Store
	ns    *spaces.Registry
	cfg   Config
	addr  string
}

func agentID(b byte) (id [16]byte) {
	id[0] = b
	return id
}

func testManifest(tenant string) wire.Manifest {
	return wire.Manifest{Tenant: tenant, Model: "m", Role: "decode", BlockTokens: 16, BlockBytes: 4 << 20}
}

// start makes an agent and lets it listen at listen, if that is not empty.
func start(tb testing.TB, id byte, inc uint64, listen string, change func(*Config)) *side {
	tb.Helper()
	s := &side{store: memstore.New(agentID(id), inc, 0)}
	s.ns = spaces.New(func(wire.Namespace, [32]byte) error { return nil })
	began := time.Now()
	s.cfg = Config{
		Agent: agentID(id), Incarnation: inc, Name: fmt.Sprintf("agent%d", id),
		Store: s.store, Namespaces: s.ns, Insecure: true, Lanes: 2, Tenants: []string{"t"},
		Clock: func() time.Duration { return 1000*time.Hour + time.Since(began) }, // as of an agent that runs for long
	}
	if change != nil {
		change(&s.cfg)
	}
	giveTenants(s.cfg.Peers)
	n, err := New(s.cfg)
	if err != nil {
		tb.Fatal(err)
	}
	s.Node = n
	if listen != "" {
		a, err := n.Listen(listen)
		if err != nil {
			tb.Fatal(err)
		}
		scheme, _, _ := strings.Cut(listen, "://")
		s.addr = scheme + "://" + a.String()
	}
	tb.Cleanup(func() { s.stop(tb) })
	return s
}

// giveTenants gives the tests' tenant to peers for which a test names none. A test
// of peers that may have none gives an empty list.
func giveTenants(peers []PeerConfig) {
	for i := range peers {
		if peers[i].Tenants == nil {
			peers[i].Tenants = []string{"t"}
		}
	}
}

// stop closes the node and checks that nothing is left of it.
func (s *side) stop(tb testing.TB) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Error(err)
	}
	if st := s.Stats(); st.Sessions != 0 || st.Calls != 0 || st.Served != 0 || st.Refs != 0 {
		tb.Errorf("after Close: %+v", st)
	}
	if _, res, leases, pins := s.store.Counts(); res != 0 || leases != 0 || pins != 0 {
		tb.Errorf("after Close the store holds %d reservations, %d leases, %d pins", res, leases, pins)
	}
}

// pair is a dialler and an acceptor that it is connected to.
func pair(tb testing.TB, listen string) (dialler, acceptor *side, p *Peer) {
	tb.Helper()
	noLeaks(tb)
	b := start(tb, 2, 20, listen, nil)
	a := start(tb, 1, 10, "", func(c *Config) { c.Peers = []PeerConfig{{Name: "b", Addr: b.addr}} })
	p = a.Peer("b")
	ready(tb, p)
	return a, b, p
}

func ready(tb testing.TB, p *Peer) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.Ready(ctx); err != nil {
		tb.Fatalf("peer is not ready: %v", err)
	}
}

// noLeaks fails the test for goroutines that it leaves, and leases. It must be called
// before what starts them.
func noLeaks(tb testing.TB) {
	tb.Helper()
	leak.Check(tb)
}

// until waits for what another goroutine is about to do.
func until(tb testing.TB, done func() bool) {
	tb.Helper()
	testbed.Until(tb, "what another goroutine is about to do", done)
}

func randomBody(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func key(ns wire.Namespace, i int) wire.Key { return wire.KeyOf(ns, fmt.Appendf(nil, "block %d", i)) }

func payload(tb testing.TB, t wire.Tier, body []byte) fabric.Mem {
	tb.Helper()
	p, err := wire.AppendPayload(nil, t, body)
	if err != nil {
		tb.Fatal(err)
	}
	return fabric.Mem{B: p}
}

func testContext(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

func TestPushThenFindThenPullGivesTheSameBytes(t *testing.T) {
	a, b, p := pair(t, "tcp://127.0.0.1:0")
	ctx := testContext(t)
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{0, 1, 100, 16 << 10, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1 << 20, 3<<20 + 7}
	push := make([]fabric.Item, len(sizes))
	for i, n := range sizes {
		push[i] = fabric.Item{NS: ns, Key: key(ns, i), Tier: wire.OutputCritical, M: payload(t, wire.OutputCritical, randomBody(n))}
	}
	p.Push(ctx, push)
	for i := range push {
		if push[i].Err != nil {
			t.Fatalf("push %d: %v", i, push[i].Err)
		}
		if push[i].H == (fabric.Handle{}) || push[i].Via != "tcp" {
			t.Errorf("push %d: handle %x, via %q", i, push[i].H, push[i].Via)
		}
	}
	if n, _, _, _ := b.store.Counts(); n != len(sizes) {
		t.Errorf("the acceptor holds %d blocks, want %d", n, len(sizes))
	}
	pull := make([]fabric.Item, len(sizes)+1)
	for i := range pull {
		pull[i] = fabric.Item{NS: ns, Key: key(ns, i)}
	}
	p.Find(ctx, pull)
	for i := range sizes {
		if pull[i].Err != nil || int(pull[i].Head.BodyLen) != sizes[i] || pull[i].H != push[i].H {
			t.Errorf("find %d: %v, %+v, handle %x want %x", i, pull[i].Err, pull[i].Head, pull[i].H, push[i].H)
		}
		pull[i].M.B = make([]byte, wire.HeaderLen+sizes[i])
	}
	last := &pull[len(sizes)]
	if !errors.Is(last.Err, wire.CodeAbsent) {
		t.Errorf("find of what is not there: %v", last.Err)
	}
	last.M.B = make([]byte, 1000)
	p.Pull(ctx, pull)
	for i := range sizes {
		if pull[i].Err != nil || !bytes.Equal(pull[i].M.B, push[i].M.B) {
			t.Errorf("pull %d: %v, same bytes: %v", i, pull[i].Err, bytes.Equal(pull[i].M.B, push[i].M.B))
		}
	}
	if !errors.Is(last.Err, wire.CodeAbsent) {
		t.Errorf("pull of what is not there: %v", last.Err)
	}
}
