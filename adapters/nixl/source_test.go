package nixl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/adapters/nixl/internal/wheel"
	"meridian/adapters/nixl/plane"
	"meridian/fabric"
	"meridian/internal/etcd"
	"meridian/internal/realpart/etcdnode"
	"meridian/internal/testbed"
	"meridian/wire"
)

// memStore is a store in memory that can fail.
type memStore struct {
	mu   sync.Mutex
	has  map[string][]byte
	down error
	life uint64
}

func newStore() *memStore { return &memStore{has: map[string][]byte{}} }

func (m *memStore) Get(_ context.Context, agent string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch b := m.has[agent]; {
	case m.down != nil:
		return nil, m.down
	case b == nil:
		return nil, plane.ErrAbsent
	default:
		return b, nil
	}
}

// Life implements plane.Mortal.
func (m *memStore) Life() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life
}

// restart loses everything.
func (m *memStore) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life++
	clear(m.has)
}

func (m *memStore) Publish(_ context.Context, agent string, blob []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down == nil {
		m.has[agent] = blob
	}
	return m.down
}

func (m *memStore) Withdraw(_ context.Context, agent string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.has, agent)
	return nil
}

func (m *memStore) String() string { return "tcpstore://memory" }
func (m *memStore) Close() error   { return nil }

func (m *memStore) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = err
}

// finding is one of a node's.
func finding(n *Node, id string) (f fabric.Finding) {
	for _, one := range n.Findings() {
		if one.ID == id {
			f = one
		}
	}
	return f
}

func TestAPeerOfAStoreComesAndGoesWithItsMetadata(t *testing.T) {
	far := newLender(t, "far", 1<<20)
	store := newStore()
	c := config(t, PeerConfig{"far", ByTCPStore + "far"})
	c.TCPStore = store
	n := newNode(t, c)
	peer := func() fabric.Peer { return n.Peers()[0] }
	until := func(what string, cond func(p fabric.Peer) bool) {
		t.Helper()
		testbed.Until(t, what, func() bool { return cond(peer()) })
	}
	until("it says that nothing is there", func(p fabric.Peer) bool {
		return p.State == fabric.PeerConnecting && strings.Contains(p.Text, plane.ErrAbsent.Error()) && p.Addr == "tcpstore://far"
	})
	testbed.Until(t, "ours are there", func() bool {
		n.mu.Lock()
		s := n.session
		n.mu.Unlock()
		if s == nil {
			return false
		}
		b, err := store.Get(t.Context(), s.agent)
		return err == nil && string(b) == string(s.metadata())
	})
	_ = store.Publish(t.Context(), "far", far.blob)
	until("it is connected", func(p fabric.Peer) bool { return p.State == fabric.PeerReady })

	store.fail(fmt.Errorf("%w: the store is down", wire.CodeUnreachable))
	testbed.Until(t, "the store's end is told", func() bool { return finding(n, "metadata.tcpstore").Bad })
	if p := peer(); p.State != fabric.PeerReady {
		t.Error("the peer went with the store:", p.Text)
	}
	store.fail(nil)
	testbed.Until(t, "the store is back", func() bool { return !finding(n, "metadata.tcpstore").Bad })

	if p := peer(); !strings.Contains(p.Text, "lent no memory") {
		t.Errorf("of a peer that has lent nothing it says %q", p.Text)
	}
	n.mu.Lock()
	ours := n.session.blob
	n.mu.Unlock()
	far.lend(ours)
	lends(t, n, "far")
	testbed.Until(t, "its memory was read", n.roster.Load().peers[0].alive)
	store.restart()
	until("the store has lost all, and the peer answers", func(p fabric.Peer) bool {
		return p.State == fabric.PeerReady && strings.Contains(p.Text, "must send them once more")
	})
	_ = store.Publish(t.Context(), "far", far.blob)
	until("it is found again", func(p fabric.Peer) bool { return p.State == fabric.PeerReady && p.Text == "" })

	nowhere := message{verb: verbLend, addr: 4096, n: 1 << 16}.String()
	n.mu.Lock()
	agent := n.session.agent
	n.mu.Unlock()
	if _, err := ask[*control.Done](t.Context(), far.process, &control.Notify{Peer: agent, Text: []byte(nowhere)}, -1); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "memory that it never registered cannot be read", func() bool { return !n.roster.Load().peers[0].alive() && peer().Place == 4096 })
	store.restart()
	until("it does not answer, and the store has lost it", func(p fabric.Peer) bool { return p.State == fabric.PeerConnecting })
	_ = store.Publish(t.Context(), "far", far.blob)
	until("it is found once more", func(p fabric.Peer) bool { return p.State == fabric.PeerReady })

	_ = store.Withdraw(t.Context(), "far")
	until("it is gone", func(p fabric.Peer) bool { return p.State == fabric.PeerConnecting })
	other := newLender(t, "other", 1<<16)
	_ = store.Publish(t.Context(), "far", other.blob)
	until("another agent under its name is refused", func(p fabric.Peer) bool {
		return p.State == fabric.PeerRefused && p.Code == wire.CodeInvalid && strings.Contains(p.Text, `"other"`)
	})
	_ = n.Close()
	store.mu.Lock()
	defer store.mu.Unlock()
	if len(store.has) != 1 {
		t.Errorf("ours are still there: %d entries", len(store.has))
	}
}

// frozen is a store that answers nothing any more, once it is stopped.
type frozen struct {
	*memStore
	stopped     atomic.Bool
	asked, thaw chan struct{}
}

func (f *frozen) Get(ctx context.Context, agent string) ([]byte, error) {
	if f.stopped.Load() {
		select {
		case f.asked <- struct{}{}:
		default:
		}
		<-f.thaw
	}
	return f.memStore.Get(ctx, agent)
}

// A look at a store that does not answer holds up nothing that a connected peer asks for.
func TestAStoreThatDoesNotAnswerHoldsUpNoPeer(t *testing.T) {
	far := newLender(t, "far", 1<<20)
	store := &frozen{memStore: newStore(), asked: make(chan struct{}, 1), thaw: make(chan struct{})}
	_ = store.Publish(t.Context(), "far", far.blob)
	c := config(t, PeerConfig{"far", ByTCPStore + "far"})
	c.TCPStore = store
	refused := make(chan error, 1)
	c.Observer.Refused = func(_ string, _ bool, err error) { refused <- err }
	n := newNode(t, c)
	t.Cleanup(sync.OnceFunc(func() { close(store.thaw) }))
	testbed.Until(t, "the peer is connected", func() bool { return n.Peers()[0].State == fabric.PeerReady })
	store.stopped.Store(true)
	<-store.asked
	get := message{verb: verbGet, addr: 1, n: 1000}.String()
	for range 3 {
		if !n.roster.Load().peers[0].hear(helperOf(t, n), get) {
			t.Fatal("the peer hears nothing")
		}
		select {
		case err := <-refused:
			if !errors.Is(err, wire.CodeNSUnknown) {
				t.Error(err)
			}
		case <-time.After(testbed.Patience):
			t.Fatal("it waits for the store")
		}
	}
}

// Agents put their metadata into etcd for ever. One that was killed is seen by a read of
// what it has lent, and its metadata are taken out once nobody is at its address.
func TestADeadAgentOfEtcdIsSeenAndReaped(t *testing.T) {
	server := etcdnode.Start(t)
	e, err := plane.NewEtcd([]string{server.Endpoint}, plane.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	c := config(t, PeerConfig{"app", ByEtcd + "app"})
	c.Etcd, c.Reap, c.reapTime = e, true, time.Second
	n := newNode(t, c)
	env := "NIXL_ETCD_ENDPOINTS=http://" + server.Endpoint
	app, third := wheel.Start(t, "app", 1<<20, env), wheel.Start(t, "third", 1<<16, env)
	app.Send("")
	third.Fetch("app", "")
	from := ""
	testbed.Until(t, "the application is told of its window", func() bool {
		for _, told := range app.Notifs() {
			from = told[0]
		}
		return from != "" && third.Knows("app")
	})
	app.Fetch(from, "")
	testbed.Until(t, "it knows the daemon's agent", func() bool { return app.Knows(from) })
	app.Notify(from, fmt.Sprintf("mrdn lend %d %d", app.Addr, 1<<20))
	lends(t, n, "app")
	app.Kill()
	testbed.Until(t, "the death is seen", func() bool { return n.Peers()[0].State != fabric.PeerReady })
	bare, err := etcd.Open(etcd.Config{Endpoints: []string{server.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bare.Close() }()
	testbed.Until(t, "its metadata are taken out", func() bool {
		all, _, err := bare.List(t.Context(), plane.Key{Agent: "app"}.Etcd(plane.DefaultNamespace), 10)
		return err == nil && len(all) == 0
	})
	testbed.Until(t, "another agent that had them forgets it", func() bool { return !third.Knows("app") })
	if _, err := e.Get(t.Context(), from); err != nil {
		t.Error("ours are gone too:", err)
	}
	again := wheel.Start(t, "app", 1<<20, env)
	again.Send("")
	testbed.Until(t, "one that is started again is connected", func() bool { return n.Peers()[0].State == fabric.PeerReady })
	_ = n.Close()
	if all, _, err := bare.List(t.Context(), "/nixl/agents//meridian-", 10); err != nil || len(all) != 0 {
		t.Error("ours did not end with the daemon:", all, err)
	}
}

// An address that refuses connections for a short while, or only once, is no dead agent.
func TestAnAgentIsNotReapedTooSoon(t *testing.T) {
	reaped := 0
	n := &Node{life: t.Context(), cfg: Config{Reap: true, Etcd: &reapStore{memStore: newStore(), reaped: &reaped}, reapTime: time.Hour, Helper: HelperConfig{Log: testLog(t)}}}
	p := newPeer(n, PeerConfig{"app", ByEtcd + "app"})
	refused := errors.New("connect() failed: " + nobodyThere)
	for range 10 {
		p.reap(t.Context(), []byte("a"), refused)
	}
	n.cfg.reapTime = 1
	for _, one := range []struct {
		blob string
		err  error
	}{{"b", refused}, {"b", refused}, {"b", errors.New("no route to host")}, {"b", refused}, {"b", refused}, {"c", refused}, {"c", refused}, {"c", nil}} {
		p.reap(t.Context(), []byte(one.blob), one.err)
	}
	if reaped != 0 {
		t.Errorf("reaped %d times", reaped)
	}
	for range reapTimes {
		p.reap(t.Context(), []byte("d"), refused)
	}
	if reaped != 1 {
		t.Errorf("reaped %d times, want once", reaped)
	}
}

type reapStore struct {
	*memStore
	reaped *int
}

func (r *reapStore) Reap(context.Context, string, []byte) error {
	*r.reaped++
	return nil
}
