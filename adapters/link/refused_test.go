package link

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// What a node knows of connections that it refused, and what they cost.

// halfOpenPipe is an end of a pipe that, as a socket's, reads on once it has said
// that it writes no more.
type halfOpenPipe struct{ net.Conn }

func (halfOpenPipe) CloseWrite() error { return nil }

// A connection that was refused and does not close keeps its place until it is
// closed, and makes room for the next one.
func TestRefusedConnectionsThatStayAreBounded(t *testing.T) {
	noLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 2, 20, "", func(c *Config) { c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}} })
		began := time.Now()
		hi := greeting("stranger", proto.AuthNone)
		for i := range 10 * proto.HalfOpenPerSource {
			c, there := net.Pipe()
			defer func() { _ = c.Close() }()
			b.take(halfOpenPipe{there}, viaTCP)
			h := hello{conn: c, base: c, via: viaTCP}
			if err := h.send(&hi); err != nil {
				t.Fatal(err)
			}
			var re *RemoteError
			if _, err := h.receive(); !errors.As(err, &re) || re.Code != wire.CodeAuth {
				t.Fatalf("a stranger is answered %v, want AUTH", err)
			}
			synctest.Wait() // who made room for it is closed by a goroutine of its own
			b.Node.mu.Lock()
			open := len(b.Node.opening)
			b.Node.mu.Unlock()
			if want := min(i+1, proto.HalfOpenPerSource); open != want {
				t.Fatalf("%d refused connections of one source are open at once, want %d", open, want)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("they waited for each other, %v", took)
		}
		b.stop(t)
	})
}

// Both sides tell of a connection that was refused, with the code, the reason and
// the address. What the dialler called itself it did not prove: for the acceptor it
// is a stranger that gave a name, and the state of that name's peer is as before.
func TestARefusalIsSeenOnBothSides(t *testing.T) {
	noLeaks(t)
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Insecure, c.PSK, c.Name = false, keyOne, "b"
		c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}}
	})
	a := start(t, 1, 10, "", func(c *Config) {
		c.Insecure, c.Name = false, "a"
		c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, PSK: keyTwo, Tenants: []string{"t"}}}
	})
	refusedAs(t, a.Peer("b"), wire.CodeAuth, "pre-shared key is wrong")
	until(t, func() bool { return len(b.Refusals()) > 0 })
	r := b.Refusals()[0]
	if r.Claimed != "a" || r.Code != wire.CodeAuth || !strings.Contains(r.Text, "pre-shared key is wrong") || !strings.HasPrefix(r.Addr, "127.0.0.1:") {
		t.Errorf("the acceptor says %+v", r)
	}
	if i := b.Peers()[0]; i.State != StateConnecting || i.Text != "" || i.Addr != "" {
		t.Errorf("the acceptor says of the peer %v, %q at %q", i.State, i.Text, i.Addr)
	}
}

// Each way in which somebody without the key can fail under a listed peer's name.
func TestAStrangerChangesNoStateOfAListedPeer(t *testing.T) {
	noLeaks(t)
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Insecure, c.Name = false, "b"
		c.Peers = []PeerConfig{{Name: "a", PSK: keyOne, Agent: agentID(7)}, {Name: "keyless"}}
	})
	wrong := greeting("a", proto.AuthPSK)
	version := greeting("a", proto.AuthPSK)
	version.Min, version.Max = 99, 99
	mute := greeting("", proto.AuthPSK) // a's by the pinned agent id
	mute.Auth = mute.Auth[:1]
	for name, hellos := range map[string][]proto.Hello{
		"no proof":          {wrong, wrong},
		"another HELLO":     {wrong, version},
		"another method":    {greeting("a", proto.AuthNone)},
		"another version":   {version},
		"by its agent id":   {mute, mute},
		"of a peer without": {greeting("keyless", proto.AuthNone)},
	} {
		before := b.Stats().Refusals
		if _, err := knock(t, b, hellos...); err == nil {
			t.Errorf("%s: not refused", name)
		}
		until(t, func() bool { return b.Stats().Refusals > before })
	}
	for _, i := range b.Peers() {
		if i.State != StateConnecting || i.Text != "" || i.Addr != "" {
			t.Errorf("%s is %v, %q at %q", i.Name, i.State, i.Text, i.Addr)
		}
	}
	if r := b.Refusals(); len(r) != 1 || r[0].Seen != 6 || r[0].Addr == "" {
		t.Errorf("%+v", r)
	}
}
