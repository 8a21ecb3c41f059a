package mooncake

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/fabric"
	"meridian/wire"
)

// A peer must not have blocks, or a connection at all, sent to somebody else.
func TestAPeerCannotSendBlocksToAThirdParty(t *testing.T) {
	third := newLender(t, 1<<20)
	l := newLender(t, 1<<20)
	l.mu.Lock()
	l.host, l.data = "::1", third.data // l is listed as 127.0.0.1
	l.mu.Unlock()
	h := newHouse(t, []PeerConfig{{"app", l.name}}, nil)
	it := []fabric.Item{{NS: h.ns, Key: wire.Key{1}, M: fabric.Mem{B: payloadOf(t, 1000, 1)}}}
	if h.Push(t.Context(), it); !errors.Is(it[0].Err, wire.CodeDenied) || !strings.Contains(it[0].Err.Error(), "to ::1, which is neither 127.0.0.1 nor allowed") {
		t.Error("push:", it[0].Err)
	}
	bad := ""
	for _, f := range h.Findings() {
		if f.Bad && f.ID == "unreachable.app" {
			bad = f.Reason
		}
	}
	if !strings.Contains(bad, "neither 127.0.0.1 nor allowed") {
		t.Errorf("the finding says %q", bad)
	}

	// Where the operator allows it, the data plane may be elsewhere.
	both, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here")
	}
	l.target.Open(both)
	l.mu.Lock()
	l.data = both.Addr().(*net.TCPAddr).AddrPort()
	l.mu.Unlock()
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"app", l.name}}, Allow: []netip.Prefix{netip.MustParsePrefix("::1/128")}})
	if n.Push(t.Context(), it); it[0].Err != nil {
		t.Error("to an address that is allowed:", it[0].Err)
	}
}

// A peer whose descriptor led to a place that is not allowed gets blocks again once it
// leads to the right one: a request that failed has it looked at anew.
func TestAPeerThatAsksForABlockIsLookedAtAnewWhereItCouldNotBeReached(t *testing.T) {
	l := newLender(t, 1<<20)
	h := newHouse(t, []PeerConfig{{"app", l.name}}, nil)
	l.set(func() { l.host = "::1" })
	w := h.server.guest("app").window
	payload := payloadOf(t, 1000, 1)
	n := uint64(len(payload))
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	defer in.Close()
	seg, err := in.Open(t.Context(), h.server.ourName())
	if err != nil {
		t.Fatal(err)
	}
	ops := []engine.Op{{Addr: w.Addr, B: payload}}
	if seg.Write(t.Context(), ops); ops[0].Err != nil {
		t.Fatal(ops[0].Err)
	}
	tell := func(verb string, addr uint64) (wire.Code, error) {
		m := message{verb, h.ns, wire.Key{1}, addr, n}
		err := (&handshake.Client{}).Notify(t.Context(), h.server.ourName(), handshake.Notify{Text: m.String()})
		code, _ := h.last()
		return code, err
	}
	if _, err := tell(verbPut, w.Addr); err != nil {
		t.Fatal(err)
	}
	if code, err := tell(verbGet, l.addr); err == nil || code != wire.CodeDenied {
		t.Fatalf("to another host: %v, %v", code, err)
	}
	l.set(func() { l.host = "" })
	_, _ = tell(verbGet, l.addr) // by what was known
	if code, err := tell(verbGet, l.addr); err != nil || !bytes.Equal(l.b[:n], payload) {
		t.Errorf("after it was put right: %v, %v", code, err)
	}
}

// A connection whose request is being done makes room for another one, so that the
// limit of connections does not bound what a peer has this daemon do.
func TestAPeerCannotHaveAnyNumberOfNotifiesDoneAtATime(t *testing.T) {
	const more = 8
	inside, end := make(chan struct{}, notifiesOfPeer+more), make(chan struct{})
	h := newHouse(t, []PeerConfig{{"app", "127.0.0.1:9"}}, func(c *ServeConfig) {
		c.Tenant = func(wire.Namespace) (string, bool) {
			inside <- struct{}{}
			<-end
			return "", false
		}
	})
	text := message{verbPut, h.ns, wire.Key{1}, 1, 64}.String()
	var asked sync.WaitGroup
	for range notifiesOfPeer + more {
		asked.Go(func() {
			if (&handshake.Client{}).Notify(t.Context(), h.server.ourName(), handshake.Notify{Text: text}) == nil {
				t.Error("a notify was done")
			}
		})
	}
	refused := 0
	for deadline := time.Now().Add(time.Minute); len(inside)+refused < notifiesOfPeer+more && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		h.note(func() { refused = len(h.refused) })
	}
	h.note(func() {
		for _, err := range h.refused {
			if !errors.Is(err, wire.CodeBusy) || !strings.Contains(err.Error(), "peer app") {
				t.Error(err)
			}
		}
	})
	if len(inside) != notifiesOfPeer || refused != more {
		t.Errorf("%d are being done and %d were refused, want %d and %d", len(inside), refused, notifiesOfPeer, more)
	}
	close(end)
	asked.Wait()
}

// What a notify asks for touches blocks, so it is drained as a request is.
func TestADrainWaitsForANotifyAndRefusesTheNext(t *testing.T) {
	inside, end := make(chan struct{}), make(chan struct{})
	h := newHouse(t, []PeerConfig{{"app", "127.0.0.1:9"}}, func(c *ServeConfig) {
		c.Tenant = func(wire.Namespace) (string, bool) {
			inside <- struct{}{}
			<-end
			return "", false
		}
	})
	tell := func() {
		n := handshake.Notify{Text: message{verbPut, h.ns, wire.Key{1}, 1, 64}.String()}
		if (&handshake.Client{}).Notify(t.Context(), h.server.ourName(), n) == nil {
			t.Error("a notify was done")
		}
	}
	first, drained := make(chan struct{}), make(chan struct{})
	go func() { defer close(first); tell() }()
	<-inside
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	h.Drain(ended) // refuses, and waits no longer
	if st := h.Stats(); st.Served != 1 {
		t.Errorf("%d are served, want 1", st.Served)
	}
	tell()
	if code, text := h.last(); code != wire.CodeDraining {
		t.Errorf("the next notify: %v %s", code, text)
	}
	go func() { defer close(drained); h.Drain(context.Background()) }()
	select {
	case <-drained:
		t.Error("drained while a notify was being done")
	default:
	}
	close(end)
	<-drained
	<-first
}

// How much memory a peer has is its own word, so the index is bounded by itself.
func TestAPeerThatClaimsEndlessMemoryHasABoundedIndex(t *testing.T) {
	l := newLender(t, 1<<20)
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"app", l.name}}, maxBlocks: 2})
	it := make([]fabric.Item, 3)
	for i := range it {
		it[i] = fabric.Item{Key: wire.Key{byte(i + 1)}, M: fabric.Mem{B: payloadOf(t, 100, i)}}
		n.Push(t.Context(), it[i:i+1])
	}
	if it[0].Err != nil || it[1].Err != nil || !errors.Is(it[2].Err, wire.CodeFull) || !strings.Contains(it[2].Err.Error(), "peer app has 2 blocks, limit 2") {
		t.Error(it[0].Err, it[1].Err, it[2].Err)
	}
	n.Drop(t.Context(), it[:1])
	if n.Push(t.Context(), it[2:]); it[2].Err != nil {
		t.Error("after a block was dropped:", it[2].Err)
	}
}
