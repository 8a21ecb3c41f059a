package link

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"meridian/wire"
	proto "meridian/wire/link"
)

// who is one way in which somebody may come to this agent.
type who struct {
	via      string // tcp, tls, unix
	insecure bool
	shared   bool   // link.psk is set
	own      bool   // the peer's entry has a key of its own
	list     string // none, listed, without tenants, unlisted, pinned to another
	local    bool   // from this host
	key      string // what the dialler proves with: right, wrong, none
}

func (w who) String() string {
	return fmt.Sprintf("%s insecure=%v shared=%v own=%v list=%s local=%v key=%s", w.via, w.insecure, w.shared, w.own, w.list, w.local, w.key)
}

// mayConnect is what docs/config.md says, in words of its own.
func (w who) mayConnect() bool {
	switch {
	case w.list == "unlisted", w.list == "without tenants", w.list == "pinned to another":
		return false // the list is the whole truth
	case w.list == "none" && !w.local && w.via != viaUnix:
		return false // without a list, only this host
	case w.via == viaTLS:
		return true // the certificate proves the name
	case w.shared || w.own && w.list == "listed":
		return w.key == "right"
	case w.key != "none":
		return false // the dialler asks for a proof that this agent cannot give
	case w.via == viaUnix:
		return true // the kernel's word
	}
	return w.insecure
}

func every(f func(who)) {
	yes := []bool{false, true}
	for _, via := range []string{viaTCP, viaTLS, viaUnix} {
		for _, list := range []string{"none", "listed", "without tenants", "unlisted", "pinned to another"} {
			for _, key := range []string{"right", "wrong", "none"} {
				for i := range 16 {
					f(who{via: via, list: list, key: key, insecure: yes[i&1], shared: yes[i>>1&1], own: yes[i>>2&1], local: yes[i>>3&1]})
				}
			}
		}
	}
}

// acceptor is the agent that is asked.
func (w who) acceptor(t *testing.T, ca *TLS) *side {
	return start(t, 2, 20, "", func(c *Config) {
		c.Name, c.Insecure, c.TLS = "b", w.insecure, ca
		if w.shared {
			c.PSK = keyOne
		}
		p := PeerConfig{Name: "a", Tenants: []string{"t"}}
		if w.own {
			p.PSK = keyTwo
		}
		switch w.list {
		case "listed":
			c.Peers = []PeerConfig{p}
		case "without tenants":
			p.Tenants = []string{}
			c.Peers = []PeerConfig{p}
		case "unlisted":
			p.Name = "another"
			c.Peers = []PeerConfig{p}
		case "pinned to another":
			c.Peers = []PeerConfig{p, {Name: "another", Agent: agentID(1), Tenants: []string{"t"}}}
		}
	})
}

// dialler is the agent that asks. It takes whatever the acceptor proves.
func (w who) dialler(t *testing.T, ca *TLS) *side {
	return start(t, 1, 10, "", func(c *Config) {
		c.Name, c.TLS = "a", ca
		p := PeerConfig{Name: "b", Tenants: []string{"t"}}
		switch {
		case w.key == "wrong":
			p.PSK = []byte("a key that nobody else has")
		case w.key == "right" && w.own && w.list == "listed":
			p.PSK = keyTwo
		case w.key == "right":
			p.PSK = keyOne
		}
		c.Peers = []PeerConfig{p}
	})
}

// try runs both sides of a handshake over a pipe, and returns what each says.
func (w who) try(t *testing.T, a, b *side) (dialled, accepted error) {
	t.Helper()
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() {
		h := &hello{conn: there, base: there, via: w.via, origin: origin{addr: "test", source: "test", local: w.local || w.via == viaUnix}, spoke: func() {}}
		err := b.receivePeer(h)
		if err != nil {
			h.say(err)
			_ = there.Close()
		}
		done <- err
	}()
	h := &hello{conn: here, base: here, via: w.via}
	var err error
	if w.via == viaTLS {
		tc := tls.Client(here, a.cfg.TLS.client("b"))
		h.conn, err = tc, tc.Handshake()
	}
	if err == nil {
		_, _, err = a.dialHello(h, a.Peer(a.cfg.Peers[0].Name), [16]byte{}, 0)
	}
	_ = here.Close()
	return err, <-done
}

// All combinations of transport, configuration and who comes: who may connect is
// let in, who may not is refused with AUTH on both sides, and leaves nothing.
func TestWhoMayConnect(t *testing.T) {
	ca := newAuthority(t)
	certA, certB := ca.issue("a", "t"), ca.issue("b", "t")
	in := 0
	every(func(w who) {
		b, a := w.acceptor(t, certB), w.dialler(t, certA)
		dialled, accepted := w.try(t, a, b)
		switch {
		case w.mayConnect():
			in++
			if dialled != nil || accepted != nil {
				t.Errorf("%v: dialler %v, acceptor %v; it may connect", w, dialled, accepted)
			}
		case wire.CodeOf(dialled) != wire.CodeAuth || wire.CodeOf(accepted) != wire.CodeAuth && !strings.Contains(dialled.Error(), "this agent wants"):
			t.Errorf("%v: dialler %v, acceptor %v; want AUTH", w, dialled, accepted)
		case b.Stats().Sessions != 0:
			t.Errorf("%v: a session of one that was refused", w)
		}
		a.stop(t)
		b.stop(t)
	})
	if in == 0 {
		t.Error("nobody may connect")
	}
}

func TestUsersOfAUnixSocket(t *testing.T) {
	n := start(t, 1, 10, "", func(c *Config) { c.UIDs = []uint32{1234} })
	for uid, want := range map[uint32]wire.Code{1234: wire.CodeOK, 4321: wire.CodeAuth} {
		err := n.mayUse(uid)
		if wire.CodeOf(err) != want || err != nil && !strings.Contains(err.Error(), "security.uids") {
			t.Errorf("user %d: %v, want %v", uid, err, want)
		}
	}
}

// What a side proved is what it said first.
func TestAHelloThatChangesIsRefused(t *testing.T) {
	a := &proto.Hello{Min: 1, Max: 1, Agent: agentID(1), Inc: 1, Auth: []proto.TLV{{Type: proto.AuthPSK}, {Type: proto.AuthName, Value: []byte("a")}}}
	for name, change := range map[string]func(*proto.Hello){
		"the proof": func(h *proto.Hello) { h.Auth[0].Value = []byte{1} },
		"inc":       func(h *proto.Hello) { h.Inc++ },
		"the name":  func(h *proto.Hello) { h.Auth[1].Value = []byte("b") },
		"a name":    func(h *proto.Hello) { h.Auth = h.Auth[:1] },
		"limits":    func(h *proto.Hello) { h.Limits.Reqs++ },
		"nonce":     func(h *proto.Hello) { h.Nonce[5]++ },
	} {
		b := *a
		b.Auth = append([]proto.TLV(nil), a.Auth...)
		change(&b)
		if got, want := sameHello(a, &b, proto.AuthPSK), name == "the proof"; got != want {
			t.Errorf("a change of %s: same %v, want %v", name, got, want)
		}
	}
}
