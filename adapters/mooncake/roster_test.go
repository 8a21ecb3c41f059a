package mooncake

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/fakeplane"
	"meridian/adapters/mooncake/metadata"
	"meridian/fabric"
	"meridian/internal/testbed"
	"meridian/wire"
)

// list puts peers in force.
func (n *Node) list(t *testing.T, peers ...PeerConfig) {
	t.Helper()
	next, err := n.Prepare(peers)
	if err == nil {
		err = next.Apply()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func pushed(t *testing.T, f fabric.Fabric, key byte) fabric.Item {
	t.Helper()
	it := []fabric.Item{{Key: wire.Key{key}, M: fabric.Mem{B: payloadOf(t, 1000, int(key))}}}
	f.Push(t.Context(), it)
	return it[0]
}

// A new peer is used at once. Of one that is gone no copy counts, and calls by what led to
// it fail; the one whose entry stays keeps what it has. A changed entry is a new peer.
func TestPeersComeAndGoWithoutARestart(t *testing.T) {
	a, b := newLender(t, 1<<20), newLender(t, 1<<20)
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"a", a.name}}})
	toA := n.Peer("a")
	first := pushed(t, toA, 1)
	if first.Err != nil || !n.Keeps(first.H) {
		t.Fatal(first.Err)
	}
	n.list(t, PeerConfig{"b", b.name}, PeerConfig{"a", a.name})
	if n.Peer("a") != toA || !n.Keeps(first.H) || len(n.Peers()) != 2 || n.Peers()[0].Name != "a" {
		t.Errorf("the entry that stayed: %+v", n.Peers())
	}
	toB := n.Peer("b")
	second := pushed(t, toB, 2)
	if second.Err != nil || !n.Keeps(second.H) {
		t.Errorf("a new peer: %v", second.Err)
	}
	n.list(t, PeerConfig{"b", b.name})
	if n.Keeps(first.H) || !n.Keeps(second.H) || n.Peer("a") != nil {
		t.Error("the copy of a peer that is gone counts, or that of the other does not")
	}
	it := []fabric.Item{first}
	for what, f := range map[string]fabric.Fabric{"all": n, "what led to it": toA} {
		if f.(fabric.Finder).Find(t.Context(), it); !errors.Is(it[0].Err, wire.CodeAbsent) {
			t.Errorf("%s finds its block: %v", what, it[0].Err)
		}
	}
	if late := pushed(t, toA, 3); !errors.Is(late.Err, wire.CodeUnreachable) || !strings.Contains(late.Err.Error(), "peer a is listed no more") {
		t.Errorf("a push to it: %v", late.Err)
	}
	if err := toA.(fabric.Gate).Usable(wire.Namespace{}); !errors.Is(err, wire.CodeUnreachable) {
		t.Error(err)
	}
	n.list(t, PeerConfig{"b", a.name})
	if n.Peer("b") == toB || n.Keeps(second.H) {
		t.Error("another entry of one name is the same peer")
	}
	if it := pushed(t, n, 2); it.Err != nil || n.Peers()[0].Addr != "tcp://"+a.name {
		t.Errorf("%v, %+v", it.Err, n.Peers())
	}
	n.list(t)
	if it := pushed(t, n, 4); !errors.Is(it.Err, wire.CodeUnreachable) {
		t.Errorf("without peers: %v", it.Err)
	}
}

// A peer that never answers does not hold up its removal, and the call to it ends.
func TestThePushToAPeerThatHangsEndsWithItsEntry(t *testing.T) {
	a := newLender(t, 1<<20)
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"a", a.name}}})
	if it := pushed(t, n, 1); it.Err != nil {
		t.Fatal(it.Err)
	}
	a.mu.Lock() // its memory lets nobody in
	done := make(chan fabric.Item)
	go func() { done <- pushed(t, n, 2) }()
	testbed.Until(t, "the push is under way", func() bool { _, bytes := n.store.Count(); return bytes > 2000 })
	n.list(t)
	it := <-done
	a.mu.Unlock()
	if !errors.Is(it.Err, wire.CodeUnreachable) || !strings.Contains(it.Err.Error(), "listed no more") {
		t.Error(it.Err)
	}
	if blocks, bytes := n.store.Count(); blocks != 0 || bytes != 0 {
		t.Errorf("%d blocks and %d bytes are left", blocks, bytes)
	}
}

// The window of a peer that is gone ends: who is in leaves it well, late writes are
// refused, and its memory is given back. Its connections end, and who comes from its
// address afterwards is a stranger, also where the name is another host's now.
func TestTheWindowOfARemovedPeerEnds(t *testing.T) {
	for name, list := range map[string][]PeerConfig{
		"removed":          nil,
		"at another place": {{"app", "192.0.2.1:9"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, []PeerConfig{{"app", "127.0.0.1:9"}}, nil)
			in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
			defer in.Close()
			seg, err := in.Open(t.Context(), h.server.ourName())
			if err != nil {
				t.Fatal(err)
			}
			w := h.server.guest("app").window
			write := func(addr uint64) error {
				ops := []engine.Op{{Addr: addr, B: make([]byte, 8)}}
				seg.Write(t.Context(), ops)
				return ops[0].Err
			}
			if err := write(w.Addr); err != nil {
				t.Fatal(err)
			}
			_, leave, err := h.server.Enter("app", w.Addr, 8, true)
			if err != nil {
				t.Fatal(err)
			}
			h.list(t, list...)
			if _, _, err := h.server.Enter("app", w.Addr, 8, true); err == nil {
				t.Error("a late write")
			}
			if n := h.windows.Stats().Windows; n != len(list)+1 {
				t.Errorf("%d windows, want one that is left by who is in it, and %d", n, len(list))
			}
			leave(8)
			testbed.Until(t, "its memory is given back", func() bool { return h.windows.Stats().Windows == len(list) })
			if err := write(w.Addr); err == nil {
				t.Error("a write by a connection of before")
			}
			if g := h.server.guest("app"); g != nil {
				if err := write(g.window.Addr); err == nil {
					t.Error("who had the name writes into the window of who has it now")
				}
			}
			err = (&handshake.Client{}).Notify(t.Context(), h.server.ourName(), handshake.Notify{Text: message{verbPut, h.ns, wire.Key{1}, w.Addr, 40}.String()})
			if code, _ := h.last(); err == nil || code != wire.CodeDenied {
				t.Errorf("a notify of it: %v, %v", err, code)
			}
		})
	}
}

// What cannot be is refused before anything has changed, and what was prepared and is not
// wanted leaves nothing behind.
func TestAListThatCannotBeChangesNothing(t *testing.T) {
	h := newHouse(t, []PeerConfig{{"a", "127.0.0.1:1"}}, nil)
	g, windows := h.server.guest("a"), h.windows.Stats().Windows
	var many []PeerConfig
	for i := range maxPeers + 1 {
		many = append(many, PeerConfig{fmt.Sprint("p", i), fmt.Sprintf("192.0.2.%d:1", i)})
	}
	for say, list := range map[string][]PeerConfig{
		"has the address 127.0.0.1 too": {{"a", "127.0.0.1:1"}, {"c", "192.0.2.1:1"}, {"b", "127.0.0.1:2"}},
		"peers":                         many,
	} {
		if _, err := h.Prepare(list); !errors.Is(err, wire.CodeConfig) || !strings.Contains(err.Error(), say) {
			t.Errorf("%v, want %q", err, say)
		}
	}
	next, err := h.Prepare([]PeerConfig{{"b", "127.0.0.2:2"}})
	if err != nil {
		t.Fatal(err)
	}
	next.Cancel()
	if h.server.guest("a") != g || h.server.from(netip.MustParseAddr("127.0.0.1")) != g || h.Peer("b") != nil || h.windows.Stats().Windows != windows {
		t.Errorf("%d windows, want %d; peers %+v", h.windows.Stats().Windows, windows, h.Peers())
	}
	if next, err = h.Prepare(nil); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := next.Apply(); !errors.Is(err, wire.CodeDraining) {
		t.Errorf("after the end: %v", err)
	}
}

// The address that peers of a metadata server share stays when the peer goes whose window
// it was: the others remember it.
func TestTheSharedAddressOutlivesItsPeer(t *testing.T) {
	plane := &fakeplane.Plane{Nodes: map[string]metadata.Node{
		"one": {At: metadata.Endpoint{Host: "127.0.0.1", Port: 9}},
		"two": {At: metadata.Endpoint{Host: "127.0.0.2", Port: 9}},
	}}
	h := newHouseAt(t, plane, nil, nil)
	if d := h.server.published().Segment; len(d.Buffers) != 0 {
		t.Errorf("without peers: %+v", d)
	}
	h.list(t, PeerConfig{"a", "one"}, PeerConfig{"b", "two"})
	addr := h.server.published().Segment.Buffers[0].Addr
	for i, list := range [][]PeerConfig{{{"a", "one"}, {"b", "two"}}, {{"b", "two"}}, {{"a", "one"}, {"b", "two"}}} {
		h.list(t, list...)
		for _, peer := range []string{"a", "b"} {
			b, leave, err := h.server.Enter(peer, addr, 8, true)
			if listed := slices.ContainsFunc(list, func(c PeerConfig) bool { return c.Name == peer }); (err == nil) != listed {
				t.Errorf("list %d, peer %s: %v", i, peer, err)
			}
			if err == nil {
				copy(b, peer)
				leave(8)
			}
		}
		if got := h.server.published().Segment.Buffers[0].Addr; got != addr {
			t.Errorf("list %d: the address is %#x, was %#x", i, got, addr)
		}
	}
}
