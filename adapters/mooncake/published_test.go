package mooncake

import (
	"net/netip"
	"strings"
	"testing"

	"meridian/adapters/mooncake/internal/fakeplane"
	"meridian/adapters/mooncake/internal/realmeta"
	"meridian/adapters/mooncake/metadata"
	"meridian/fabric"
	"meridian/internal/testbed"
)

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
	h.server.mu.Lock()
	h.server.found.addrs["app"] = []netip.Addr{netip.MustParseAddr("127.0.0.9")}
	h.server.mu.Unlock()
	if f := findingOf(t, h.Node, "source.app"); !f.Bad || f.Severe || !strings.Contains(f.Reason, "127.0.0.9, as before") {
		t.Errorf("without a server, of a peer that was found before: %+v", f)
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
	plane := &fakeplane.Plane{Nodes: map[string]metadata.Node{
		"one": {At: metadata.Endpoint{Host: "127.0.0.1", Port: 9}},
		"two": {At: metadata.Endpoint{Host: "127.0.0.2", Port: 9}},
	}}
	h := newHouseAt(t, plane, []PeerConfig{{"a", "one"}, {"b", "two"}}, nil)
	if g := h.server.from(netip.MustParseAddr("127.0.0.2")); g == nil || g.Name() != "b" {
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
	if _, _, err := h.server.Enter("b", h.server.guest("a").window.Addr+h.server.Window, 1, true); err == nil {
		t.Error("beyond its end an address means something")
	}

	// A name whose entry leads to another peer's address takes nothing from it.
	plane.Set(func() { plane.Nodes["two"] = plane.Nodes["one"] })
	h.server.lookAgain(t.Context(), h.roster.Load())
	if g := h.server.from(netip.MustParseAddr("127.0.0.1")); g == nil || g.Name() != "a" {
		t.Error("127.0.0.1 is not peer a any more")
	}
	if f := findingOf(t, h.Node, "source.b"); !f.Bad || !strings.Contains(f.Reason, "peer a has the address 127.0.0.1 too") {
		t.Errorf("%+v", f)
	}
}
