package nixl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/adapters/nixl/internal/wheel"
	"meridian/adapters/nixl/plane"
	"meridian/blocks"
	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/internal/testbed"
	"meridian/wire"
)

// list puts peers in force.
func (n *Node) list(t *testing.T, peers ...PeerConfig) {
	t.Helper()
	next, err := n.Prepare(t.Context(), peers)
	if err == nil {
		err = next.Apply()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// helperNow is the session that serves.
func (n *Node) helperNow(t *testing.T) *session {
	t.Helper()
	return n.await(t.Context())
}

func pushed(t *testing.T, f fabric.Fabric, key byte) fabric.Item {
	t.Helper()
	it := []fabric.Item{{Key: wire.Key{key}, M: fabric.Mem{B: payload(t, 1000, uint64(key))}}}
	f.Push(t.Context(), it)
	return it[0]
}

// A new peer is connected by the helper that runs, and the one whose entry stays keeps its
// connection and its blocks. Of one that is gone no copy counts, and calls by what led to it
// fail. The same agent may be listed again.
func TestPeersComeAndGoWithoutARestart(t *testing.T) {
	a, b := newLender(t, "agent-a", 1<<20), newLender(t, "agent-b", 1<<20)
	toA, toB := PeerConfig{"a", a.addr}, PeerConfig{"b", b.addr}
	n := newNode(t, config(t, toA))
	lends(t, n, "a")
	helper, first := n.helperNow(t), pushed(t, n, 1)
	if first.Err != nil || !n.Keeps(first.H) {
		t.Fatal(first.Err)
	}
	led := n.Peer("a")
	n.list(t, toB, toA)
	lends(t, n, "b")
	if n.Peer("a") != led || !n.Keeps(first.H) || n.roster.Load().peers[1].Usable() != nil {
		t.Errorf("the entry that stayed: %+v", n.Peers())
	}
	if it := pushed(t, n.Peer("b"), 2); it.Err != nil || !n.Keeps(it.H) {
		t.Errorf("the new peer: %v", it.Err)
	}
	n.list(t, toB)
	if n.Keeps(first.H) || n.Peer("a") != nil || len(n.Peers()) != 1 {
		t.Errorf("a peer that is gone: %+v", n.Peers())
	}
	if it := pushed(t, led, 3); !errors.Is(it.Err, wire.CodeUnreachable) {
		t.Errorf("a push to it: %v", it.Err)
	}
	n.list(t, PeerConfig{"again", a.addr}, toB)
	lends(t, n, "again")
	if it := pushed(t, n.Peer("again"), 4); it.Err != nil {
		t.Errorf("its agent by another name: %v", it.Err)
	}
	if n.helperNow(t) != helper || n.restarts.Load() != 0 {
		t.Error("the helper was started again")
	}
}

// A new peer of a store finds metadata there that have its window, when it is told of it.
func TestANewPeerOfAStoreFindsItsWindow(t *testing.T) {
	far, store := newLender(t, "far", 1<<20), newStore()
	c := config(t)
	c.TCPStore = store
	n := newNode(t, c)
	s := n.helperNow(t)
	testbed.Until(t, "ours are there", func() bool { b, err := store.Get(t.Context(), s.agent); return err == nil && len(b) > 0 })
	without := s.metadata()
	_ = store.Publish(t.Context(), "far", far.blob)
	n.list(t, PeerConfig{"far", ByTCPStore + "far"})
	if got := <-far.box; got.peer != s.agent {
		t.Fatalf("%q", got)
	}
	b, err := store.Get(t.Context(), s.agent)
	if err != nil || !bytes.Equal(b, s.metadata()) || bytes.Equal(b, without) {
		t.Errorf("%d bytes in the store, %d are the helper's, %d without the window: %v", len(b), len(s.metadata()), len(without), err)
	}
}

// What a peer that is gone asks for is not done, and what it says is nobody's.
func TestAPeerThatIsGoneIsNotHeard(t *testing.T) {
	a := newLender(t, "agent-a", 1<<20)
	n := newNode(t, config(t, PeerConfig{"a", a.addr}))
	lends(t, n, "a")
	s := n.helperNow(t)
	n.list(t)
	testbed.Until(t, "its agent is forgotten", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.names) == 0
	})
	before := n.count.refusals.Load()
	s.deliver("agent-a", []byte("mrdn put 00 00 0 0"))
	if n.count.refusals.Load() != before+1 {
		t.Error("a notification of it was taken")
	}
}

// Who may send metadata to the listener follows the list, and who is not on it any more
// loses its connection.
func TestTheListenerFollowsTheList(t *testing.T) {
	r := startInbox(t, testbed.Patience, testbed.Patience)
	r.list([]PeerConfig{{"a", ByListener + "agentA"}, {"b", ByListener + "agentB"}})
	conns := map[string]net.Conn{}
	for _, agent := range []string{"agentA", "agentB"} {
		conns[agent] = r.dial()
		r.says(conns[agent], plane.Load, bytes.ReplaceAll(blob(t), []byte("agentA"), []byte(agent)))
		testbed.Until(t, agent+" has sent its metadata", func() bool { _, err := r.sent(agent); return err == nil })
	}
	r.list([]PeerConfig{{"b", ByListener + "agentB"}})
	if _, err := conns["agentA"].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection of an agent that is listed no more: %v", err)
	}
	testbed.Until(t, "it is gone", func() bool { _, err := r.sent("agentA"); return err != nil })
	if _, err := r.sent("agentB"); err != nil {
		t.Error(err)
	}
	again := r.dial()
	r.says(again, plane.Load, blob(t))
	if _, err := again.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it sends its metadata again: %v", err)
	}
}

// What cannot be is refused before anything has changed. What was prepared and is not
// wanted serves the next list, however often that is.
func TestAListOfPeersThatCannotBeChangesNothing(t *testing.T) {
	c := config(t, PeerConfig{"a", "127.0.0.1:1"})
	c.Windows = window.New(c.Store.(*blocks.Store), func() time.Duration { return 0 }, MinStaging+3*c.Window, nil)
	n := newNode(t, c)
	s := n.helperNow(t)
	var many []PeerConfig
	for i := range maxPeers + 1 {
		many = append(many, PeerConfig{fmt.Sprint("p", i), "127.0.0.1:1"})
	}
	if _, err := n.Prepare(t.Context(), many); !errors.Is(err, wire.CodeConfig) {
		t.Errorf("too many: %v", err)
	}
	for range 5 {
		next, err := n.Prepare(t.Context(), []PeerConfig{{"b", "127.0.0.1:2"}, {"c", "127.0.0.1:3"}})
		if err != nil {
			t.Fatal(err)
		}
		next.Cancel()
	}
	if st := c.Windows.Stats(); st.Windows != 4 {
		t.Errorf("%d windows, want those of a, b, c and the staging", st.Windows)
	}
	_, err := n.Prepare(t.Context(), []PeerConfig{{"b", "127.0.0.1:2"}, {"d", "127.0.0.1:4"}})
	if err == nil || !strings.Contains(err.Error(), "window of peer d") {
		t.Errorf("without room: %v", err)
	}
	if got := n.Peers(); len(got) != 1 || got[0].Name != "a" || n.helperNow(t) != s {
		t.Errorf("%+v", got)
	}
	n.list(t, PeerConfig{"b", "127.0.0.1:2"}, PeerConfig{"c", "127.0.0.1:3"})
	<-s.quit // a is gone, and its window leaves no room for another one
	testbed.Until(t, "the next helper has room", func() bool { return n.helperNow(t) != s && c.Windows.Stats().Windows == 3 })
}

// Windows of peers that are gone are kept, since their agents have the keys, until there are
// too many: then the helper is started again and gives all of them back.
func TestTooManyWindowsOfPeersThatAreGoneEndTheHelper(t *testing.T) {
	c := config(t)
	c.Window = 64 << 10
	n := newNode(t, c)
	s := n.helperNow(t)
	for i := range maxRetired {
		if n.helperNow(t) != s {
			t.Fatalf("it was started again after %d", i)
		}
		n.list(t, PeerConfig{fmt.Sprint("p", i), "127.0.0.1:1"})
	}
	n.list(t)
	<-s.quit
	testbed.Until(t, "another one has the staging only", func() bool {
		return n.helperNow(t) != s && c.Windows.Stats().Windows == 1
	})
}

// An agent takes newer metadata of one that it knows: with the window of a peer that was
// listed again.
func TestARealAgentTakesAWindowThatCameLater(t *testing.T) {
	const n = 100_000
	app := wheel.Start(t, "app", 1<<20)
	p, box := newProcess(t, helperConfig(t), "house")
	for number := range uint32(2) {
		mem, at := mapped(t, p, number, false)
		blob, err := ask[*control.Blob](t.Context(), p, &control.Metadata{}, -1)
		if err != nil {
			t.Fatal(err)
		}
		app.Load(blob.Blob)
		in := testbed.Content(n, uint64(number))
		app.Put(0, in)
		app.Write("house", 0, at+64, n, "it is there")
		if got := <-box; got.peer != "app" {
			t.Errorf("the notification is %q", got)
		}
		if !bytes.Equal(mem[64:64+n], in) {
			t.Errorf("it wrote other bytes into window %d", number)
		}
	}
}
