package mooncake

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/adapters/mooncake/internal/realmeta"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/fabric"
	"meridian/internal/testbed"
	"meridian/wire"
)

// fakePlane is a metadata server in memory.
type fakePlane struct {
	mu      sync.Mutex
	nodes   map[string]metadata.Node
	err     error // what every call fails with
	puts    int
	removed int
}

func (p *fakePlane) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *fakePlane) look(name string) (metadata.Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, there := p.nodes[name]
	switch {
	case p.err != nil:
		return n, p.err
	case !there:
		return n, wire.CodeAbsent
	}
	return n, nil
}

func (p *fakePlane) Get(_ context.Context, name string) (segment.Descriptor, string, error) {
	n, err := p.look(name)
	return n.Segment, n.At.Host, err
}

func (p *fakePlane) Endpoint(_ context.Context, name string) (metadata.Endpoint, error) {
	n, err := p.look(name)
	return n.At, err
}

func (p *fakePlane) Publish(_ context.Context, n metadata.Node) error {
	was, err := p.look(n.Name())
	switch {
	case err == nil && !was.At.At(n.At):
		return &metadata.OwnedError{Name: n.Name(), By: was.At, Epoch: n.At.Epoch, Asked: true}
	case err != nil && !errors.Is(err, wire.CodeAbsent):
		return err
	}
	p.set(func() {
		p.puts++
		p.nodes[n.Name()] = n
	})
	return nil
}

func (p *fakePlane) Remove(_ context.Context, n metadata.Node) error {
	p.set(func() {
		p.removed++
		delete(p.nodes, n.Name())
	})
	return nil
}

func (p *fakePlane) Close() error { return nil }

func (p *fakePlane) count() (n int) {
	p.set(func() { n = p.puts })
	return n
}

// clock is the waits of a publisher: it goes on when the test says so.
type clock struct {
	asked chan time.Duration
	ring  chan time.Time
}

func (c *clock) after(d time.Duration) <-chan time.Time {
	c.asked <- d
	return c.ring
}

func ourNode() metadata.Node {
	return metadata.Node{At: metadata.Endpoint{Host: "127.0.0.1", Port: 9, Epoch: 5}, Segment: segment.Descriptor{Name: "house", DataHost: "127.0.0.1", DataPort: 8}}
}

// A metadata server that is down, that has forgotten us, or that gave our name to
// somebody else is asked again and again, never more often than the pauses allow; the
// finding says each time what is wrong.
func TestWhatIsPublishedComesBack(t *testing.T) {
	plane := &fakePlane{nodes: map[string]metadata.Node{}, err: wire.CodeUnreachable}
	c := &clock{asked: make(chan time.Duration), ring: make(chan time.Time)}
	node := ourNode()
	var mu sync.Mutex
	p := publish(t.Context(), plane, slog.New(slog.DiscardHandler), c.after, func() metadata.Node {
		mu.Lock()
		defer mu.Unlock()
		return node
	})
	step := func(want time.Duration, bad string) {
		t.Helper()
		if got := <-c.asked; got != want {
			t.Errorf("it waits %v, want %v", got, want)
		}
		if f := p.finding(); f.Bad != (bad != "") || !strings.Contains(f.Reason+f.Fix, bad) {
			t.Errorf("finding %+v, want %q", f, bad)
		}
	}
	for wait := firstRetry; wait < publishEvery; wait *= 2 {
		step(wait, "UNREACHABLE")
		c.ring <- time.Time{}
	}
	step(publishEvery, "UNREACHABLE")
	plane.set(func() { plane.err = nil })
	c.ring <- time.Time{}
	step(publishEvery, "")
	c.ring <- time.Time{} // nothing has changed
	step(publishEvery, "")
	if n := plane.count(); n != 1 {
		t.Errorf("published %d times, want once", n)
	}
	plane.set(func() { clear(plane.nodes) })
	c.ring <- time.Time{}
	step(publishEvery, "")
	mu.Lock()
	node.Segment.Buffers = []segment.Buffer{{Name: "house", Addr: 4096, Len: 1}}
	mu.Unlock()
	p.again()
	step(publishEvery, "")
	if n := plane.count(); n != 3 {
		t.Errorf("published %d times, want 3: at first, when it was forgotten, and when it changed", n)
	}
	other := ourNode()
	other.At.Port = 10
	plane.set(func() { plane.nodes["house"] = other })
	c.ring <- time.Time{}
	step(firstRetry, "give this daemon another name")
	plane.set(func() { clear(plane.nodes) })
	c.ring <- time.Time{}
	step(publishEvery, "")
	p.close()
	p.close()
	plane.set(func() {
		if len(plane.nodes) != 0 || plane.removed != 1 {
			t.Errorf("after the end: %v, removed %d times", plane.nodes, plane.removed)
		}
	})
}

// A server of the wheel is killed and started again, empty: what it lost comes back by
// itself. The daemon began while there was none.
func TestARestartedMetadataServerHasUsAgain(t *testing.T) {
	port := realmeta.FreePort(t)
	server := "http://127.0.0.1:" + port + metadata.HTTPPath
	plane, err := metadata.Open(metadata.Config{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	h := newHouseAt(t, plane, []PeerConfig{{"app", "app"}}, func(c *ServeConfig) { c.Segment, c.Epoch = "house", 1 })
	if f := findingOf(t, h.Node, "published"); !f.Bad || !strings.Contains(f.Reason, "cannot find") {
		t.Errorf("without a server: %+v", f)
	}
	if f := findingOf(t, h.Node, "source.app"); !f.Bad {
		t.Errorf("without a server: %+v", f)
	}
	for range 2 {
		_, kill := realmeta.StartPython(t, port)
		testbed.Until(t, "the server has us", func() bool {
			at, err := plane.Endpoint(t.Context(), "house")
			return err == nil && at.Port == h.server.at.Port() && !findingOf(t, h.Node, "published").Bad
		})
		kill()
	}
}

func findingOf(t *testing.T, n *Node, id string) fabric.Finding {
	t.Helper()
	for _, f := range n.Findings() {
		if f.ID == id {
			return f
		}
	}
	t.Fatalf("no finding %s", id)
	return fabric.Finding{}
}

// Every peer of a metadata server reads one descriptor, and each reaches its own window
// by the address that stands there.
func TestPeersOfAMetadataServerShareAnAddressAndNoMemory(t *testing.T) {
	plane := &fakePlane{nodes: map[string]metadata.Node{
		"one": {At: metadata.Endpoint{Host: "127.0.0.1", Port: 9}},
		"two": {At: metadata.Endpoint{Host: "127.0.0.2", Port: 9}},
	}}
	h := newHouseAt(t, plane, []PeerConfig{{"a", "one"}, {"b", "two"}}, nil)
	if g := h.server.from(netip.MustParseAddr("127.0.0.2")); g == nil || g.Name != "b" {
		t.Fatal("127.0.0.2 is not peer b")
	}
	addr := h.server.published().Segment.Buffers[0].Addr
	for _, peer := range []string{"a", "b"} {
		b, leave, err := h.server.Enter(peer, addr+16, 1, true)
		if err != nil {
			t.Fatal(err)
		}
		if b[0] != 0 {
			t.Errorf("peer %s sees what another one wrote", peer)
		}
		b[0] = 1
		leave(1)
	}
	if _, _, err := h.server.Enter("127.0.0.3", addr, 1, true); err == nil {
		t.Error("a stranger has a window")
	}
	if _, _, err := h.server.Enter("b", h.server.guests["a"].window.Addr+h.server.Window, 1, true); err == nil {
		t.Error("beyond its end an address means something")
	}

	// A name whose entry leads to another peer's address takes nothing from it.
	plane.set(func() { plane.nodes["two"] = plane.nodes["one"] })
	h.server.look(t.Context(), nil)
	if g := h.server.from(netip.MustParseAddr("127.0.0.1")); g == nil || g.Name != "a" {
		t.Error("127.0.0.1 is not peer a any more")
	}
	if f := findingOf(t, h.Node, "source.b"); !f.Bad || !strings.Contains(f.Reason, "peer a has the address 127.0.0.1 too") {
		t.Errorf("%+v", f)
	}
}
