package link

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// A further lane belongs to the session of who dialled that: whoever else names its
// id, by another name, agent or incarnation, is refused, and so is one that names a
// session which this side dialled.
func TestALaneJoinsOnlyTheSessionOfItsOwnPeer(t *testing.T) {
	a, b, _ := pair(t, "tcp://127.0.0.1:0")
	s := b.allSessions()[0]
	for name, bend := range map[string]func(*identity){
		"name":        func(id *identity) { id.who = "somebody" },
		"agent":       func(id *identity) { id.agent = agentID(9) },
		"incarnation": func(id *identity) { id.inc++ },
	} {
		id := s.peer
		bend(&id)
		got, err := b.admit(&hello{origin: origin{addr: "127.0.0.1"}}, s.entry, id, &proto.Hello{Session: s.id, Lane: 2})
		if got != nil || !errors.Is(err, wire.CodeAuth) {
			t.Errorf("another %s: session %v, %v; want AUTH", name, got != nil, err)
		}
	}
	d := a.allSessions()[0]
	if got, err := a.admit(&hello{origin: origin{addr: "127.0.0.1"}}, d.entry, d.peer, &proto.Hello{Session: d.id, Lane: 2}); got != nil || !errors.Is(err, wire.CodeAuth) {
		t.Errorf("a session that this side dialled: %v, %v; want AUTH", got != nil, err)
	}
	if got, err := b.admit(&hello{origin: origin{addr: "127.0.0.1"}}, s.entry, s.peer, &proto.Hello{Session: s.id, Lane: 2}); got != s || err != nil {
		t.Errorf("its own peer: the session %v, %v", got == s, err)
	}
	if b.Stats().Sessions != 1 || a.Stats().Sessions != 1 {
		t.Error("the sessions are no longer what they were")
	}
}

// What a lost lane leaves over is asked for from the byte that it had come to, under
// the same reference and header; what cannot go on begins anew, and what has a
// verdict is not asked for again.
func TestARestIsAskedForFromWhereItStopped(t *testing.T) {
	head := [wire.HeaderLen]byte{1, 2, 3}
	room := make([]byte, 1000)
	item := func(code wire.Code, seen bool, got uint32) core.Item {
		return core.Item{Code: code, Seen: seen, Got: got, Len: 1000, Slot: 7, Gen: 4, Head: head, Room: room}
	}
	old := &core.Call{Items: []core.Item{
		item(wire.CodeLaneLost, true, 600),  // in mid-body
		item(wire.CodeLaneLost, true, 0),    // before its first byte
		item(wire.CodeLaneLost, false, 600), // no TABLE told of it
		item(wire.CodeOK, true, 1000),
		item(wire.CodeAbsent, true, 0),
		item(wire.CodeNoProgress, true, 600),
		{Code: wire.CodeStale, Seen: true, Off: 600, Room: room}, // went on, and the slot was used again
		{Code: wire.CodeStale, Seen: true, Room: room},           // a reference of the caller's
		item(wire.CodeLaneLost, true, 1000),                      // all of it, and no verdict
	}}
	b := &batch{it: make([]fabric.Item, 9), num: make([]uint16, 9), ref: make([]bool, 9)}
	for i := range b.it {
		b.it[i].Key = wire.Key{byte(i + 1)}
	}
	left, next := b.rest([]int{0, 1, 2, 3, 4, 5, 6, 7, 8}, old)
	type asked struct {
		item           int
		off, slot, gen uint32
		head           [wire.HeaderLen]byte
	}
	want := []asked{{0, 600, 7, 4, head}, {1, 0, 0, 0, [32]byte{}}, {2, 0, 0, 0, [32]byte{}}, {6, 0, 0, 0, [32]byte{}}, {8, 0, 0, 0, [32]byte{}}}
	if len(left) != len(want) {
		t.Fatalf("asks for %v", left)
	}
	for n, w := range want {
		it := &next[n]
		if got := (asked{left[n], it.Off, it.Slot, it.Gen, it.Head}); got != w {
			t.Errorf("asks for %+v, want %+v", got, w)
		}
		if it.Key != b.it[w.item].Key || &it.Room[0] != &room[0] {
			t.Errorf("item %d: another key, or another place", w.item)
		}
	}
}

// counted counts how often a peer opens a namespace here.
type counted struct {
	Namespaces
	opens atomic.Int32
}

func (c *counted) OpenPeer(peer quota.Holder, m wire.Manifest) (wire.Namespace, func(), error) {
	c.opens.Add(1)
	return c.Namespaces.OpenPeer(peer, m)
}

// A namespace that the peer refused is answered from memory for refusedFor, and asked
// for again after that.
func TestARefusedNamespaceIsNotAskedForAtEachCall(t *testing.T) {
	noLeaks(t)
	var ahead atomic.Int64
	began := time.Now()
	seen := &counted{}
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		seen.Namespaces = c.Namespaces
		c.Namespaces = seen
		c.Peers = []PeerConfig{{Name: "agent1", Tenants: []string{"t"}}}
	})
	a := start(t, 1, 10, "", func(c *Config) {
		c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
		c.Clock = func() time.Duration { return time.Since(began) + time.Duration(ahead.Load()) }
	})
	ready(t, a.Peer("b"))
	if _, err := b.ns.Add(testManifest("t")); err != nil {
		t.Fatal(err)
	}
	m := testManifest("t")
	m.Dtype = "fp8"
	ns, err := a.ns.Add(m)
	if err != nil {
		t.Fatal(err)
	}
	find := func() {
		t.Helper()
		it := []fabric.Item{{NS: ns, Key: key0(ns)}}
		a.Peer("b").Find(testContext(t), it)
		if !errors.Is(it[0].Err, wire.CodeGeometry) {
			t.Errorf("find: %v, want GEOMETRY", it[0].Err)
		}
	}
	for range 20 {
		find()
	}
	if n := seen.opens.Load(); n != 1 {
		t.Errorf("%d OPEN for 20 calls at once, want 1", n)
	}
	ahead.Add(int64(refusedFor))
	find()
	if n := seen.opens.Load(); n != 2 {
		t.Errorf("%d OPEN after the time is over, want 2", n)
	}
}
