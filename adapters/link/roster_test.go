package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// apply changes a side's peers, and fails the test where that is refused.
func (s *side) apply(t *testing.T, u Update) {
	t.Helper()
	giveTenants(u.Peers)
	if err := s.Apply(u); err != nil {
		t.Fatal(err)
	}
}

func listed(names ...string) (peers []PeerConfig) {
	for _, name := range names {
		peers = append(peers, PeerConfig{Name: name})
	}
	return peers
}

// The list of peers changes while the node runs: what is new is dialled and let in,
// what says something else begins anew, what is gone is told so.
func TestPeersComeChangeAndGo(t *testing.T) {
	noLeaks(t)
	psk := []byte("the key of this test")
	closed := func(c *Config) { c.Insecure, c.PSK = false, psk }
	b := start(t, 2, 20, "tcp://127.0.0.1:0", closed)
	c := start(t, 3, 30, "tcp://127.0.0.1:0", closed)
	a := start(t, 1, 10, "", func(cfg *Config) { closed(cfg); cfg.Peers = listed("nobody") })

	b.apply(t, Update{Peers: listed("agent1"), PSK: psk})
	at := func(addr string) Update {
		return Update{Peers: []PeerConfig{{Name: "nobody"}, {Name: "b", Addr: addr}}, PSK: psk, Drain: time.Minute}
	}
	a.apply(t, at(b.addr))
	first := a.Peer("b")
	ready(t, first)
	a.apply(t, at(b.addr))
	if a.Peer("b") != first {
		t.Error("the same again is another peer")
	}
	c.apply(t, Update{Peers: listed("agent1"), PSK: psk})
	a.apply(t, at(c.addr))
	ready(t, a.Peer("b"))
	if i := a.Peer("b").info(); i.Agent != agentID(3) {
		t.Errorf("peer b is agent %x, want that of the new address", i.Agent)
	}
	until(t, func() bool { return a.Stats().Sessions == 1 && b.Stats().Sessions == 0 })
	if _, err := first.session(); !errors.Is(err, wire.CodeUnreachable) {
		t.Errorf("the peer of the old address: %v, want UNREACHABLE", err)
	}

	a.apply(t, Update{Peers: listed("nobody"), PSK: psk})
	until(t, func() bool { return a.Stats().Sessions == 0 && c.Stats().Sessions == 0 })
	if a.Peer("b") != nil || len(a.Peers()) != 1 {
		t.Errorf("a removed peer is still listed: %+v", a.Peers())
	}
}

// Each side of a change of the proof: the session that was made by the old one is
// told, and ends; until both sides have the new one there is none.
func TestAChangedProofMustBeGivenAnew(t *testing.T) {
	old, fresh := []byte("the old key"), []byte("the new key")
	for name, change := range map[string]struct {
		acceptor, dialler func(*PeerConfig)
		refused           string // while only the acceptor has changed; empty: it connects again
	}{
		"key": {func(p *PeerConfig) { p.PSK = fresh }, func(p *PeerConfig) { p.PSK = fresh }, "proof by pre-shared key is wrong"},
		"pin": {func(p *PeerConfig) { p.Agent = agentID(9) }, nil, "is agent 01"},
		"no tenant left": {
			func(p *PeerConfig) { p.Tenants = []string{} }, nil, "no tenant",
		},
		"another tenant": {func(p *PeerConfig) { p.Tenants = []string{"u"} }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			at := func(addr string) PeerConfig {
				return PeerConfig{Name: "agent1", Addr: addr, PSK: old, Tenants: []string{"t"}}
			}
			b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) { c.Peers = []PeerConfig{at("")} })
			dial := at(b.addr)
			dial.Name = "b"
			a := start(t, 1, 10, "", func(c *Config) { c.Peers = []PeerConfig{dial} })
			ready(t, a.Peer("b"))
			before := b.allSessions()[0]
			p := at("")
			change.acceptor(&p)
			b.apply(t, Update{Peers: []PeerConfig{p}, Drain: time.Minute})
			until(t, func() bool { _, dead := deadOf(before); return dead })
			if change.refused == "" {
				until(t, func() bool { return a.Peer("b").Ready(t.Context()) == nil && len(b.allSessions()) == 1 })
				if got := b.allSessions()[0].peer.tenants.Names; fmt.Sprint(got) != fmt.Sprint(p.Tenants) {
					t.Errorf("the new session is of tenants %v, want %v", got, p.Tenants)
				}
				return
			}
			until(t, func() bool { // it may be ready until it has heard of it
				i := a.Peer("b").info()
				return i.State == StateRefused && strings.Contains(i.Text, change.refused)
			})
			if change.dialler != nil {
				change.dialler(&dial)
				a.apply(t, Update{Peers: []PeerConfig{dial}})
				ready(t, a.Peer("b"))
			}
		})
	}
}

func deadOf(s *session) (wire.Code, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Dead()
}

// A connection that proves itself while its entry changes has proved the old one.
func TestAProofOfAnEntryThatHasChangedMeanwhileCountsNoMore(t *testing.T) {
	b := start(t, 2, 20, "", func(c *Config) { c.Peers = listed("a", "c") })
	id := identity{name: "a", who: "a", listed: true, agent: agentID(1), inc: 10}
	entry := b.Peer("a")
	h := &hello{origin: origin{addr: "127.0.0.1"}}
	for name, peers := range map[string][]PeerConfig{
		"gone":                    listed("c"),
		"with another key":        {{Name: "a", PSK: []byte("k")}, {Name: "c"}},
		"whose id is now another": {{Name: "a"}, {Name: "c", Agent: agentID(1)}},
	} {
		b.apply(t, Update{Peers: peers})
		if s, err := b.admit(h, entry, id, &proto.Hello{Session: [16]byte{1}}); s != nil || !errors.Is(err, wire.CodeAuth) {
			t.Errorf("an accepted connection, of an entry %s: %v, want AUTH", name, err)
		}
		if s, err := b.dialled(h, entry, id, &proto.Hello{Session: [16]byte{2}}); s != nil || !errors.Is(err, wire.CodeAuth) {
			t.Errorf("a dialled connection, of an entry %s: %v, want AUTH", name, err)
		}
		b.apply(t, Update{Peers: listed("a", "c")})
		entry = b.Peer("a")
	}
}

// stuckPair is a node and its peer, which has a block of 1 MiB of which a pull gets
// 64 KiB.
func stuckPair(t *testing.T) (*side, *Peer, wire.Namespace) {
	t.Helper()
	a, b, p, _ := gated(t, func(conn int) int64 {
		if conn == 0 {
			return -1
		}
		return 64 << 10
	}, true)
	ready(t, p)
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	b.store.Add(ns, key(ns, 0), wire.OutputCritical, randomBody(1<<20))
	return a, p, ns
}

// A call that never ends is waited for no longer than the bound.
func TestARemovedPeersCallsEndWithinTheBound(t *testing.T) {
	a, p, ns := stuckPair(t)
	it := pullItems(ns, 1<<20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Pull(testContext(t), it)
	}()
	until(t, func() bool { return a.Stats().CallBytes > 0 })
	a.apply(t, Update{Peers: listed("other"), Drain: 10 * time.Millisecond})
	select {
	case <-done:
	case <-testContext(t).Done():
		t.Fatal("a call over a removed peer did not end")
	}
	if it[0].Err == nil {
		t.Error("the call succeeded without its bytes")
	}
	until(t, func() bool { return a.Stats().Sessions == 0 })
}

// Whatever is wrong with an update, nothing of it is taken.
func TestAWrongUpdateChangesNothing(t *testing.T) {
	ca := newAuthority(t)
	a := start(t, 1, 10, "tls://127.0.0.1:0", func(c *Config) { c.TLS, c.Peers = ca.issue("a", "t"), listed("b") })
	before := a.roster.Load()
	good := ca.issue("a", "t")
	for name, u := range map[string]Update{
		"a name twice":          {Peers: listed("c", "c"), TLS: good},
		"no name":               {Peers: listed(""), TLS: good},
		"an id twice":           {Peers: []PeerConfig{{Name: "c", Agent: agentID(3)}, {Name: "d", Agent: agentID(3)}}, TLS: good},
		"no address":            {Peers: []PeerConfig{{Name: "c", Addr: "nowhere"}}, TLS: good},
		"tls:// and no files":   {Peers: []PeerConfig{{Name: "c", Addr: "tls://127.0.0.1:1"}}},
		"files of a listener's": {Peers: listed("b")},
	} {
		if err := a.Apply(u); !errors.Is(err, wire.CodeConfig) && !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if a.roster.Load() != before {
			t.Fatalf("%s: it was taken", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.Drain(ctx)
	if err := a.Apply(Update{Peers: listed("c"), TLS: good}); !errors.Is(err, wire.CodeDraining) || a.roster.Load() != before {
		t.Errorf("while it drains: %v", err)
	}
}

// New handshakes use the new certificates, whatever stands stands; an authority
// that did not sign what stands ends it, and so does the end of a certificate.
func TestCertificatesChangeAndEndWhatTheyNoLongerProve(t *testing.T) {
	noLeaks(t)
	ca, other := newAuthority(t), newAuthority(t)
	var skew atomic.Int64
	b := start(t, 2, 20, "tls://127.0.0.1:0", func(c *Config) {
		c.TLS, c.Peers = ca.issue("b", "t"), listed("a")
		c.Wall = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	})
	dial := PeerConfig{Name: "b", Addr: b.addr}
	a := start(t, 1, 10, "", func(c *Config) { c.TLS, c.Peers = ca.issue("a", "t"), []PeerConfig{dial} })
	serial := func() string { // of the certificate that a's session was proved by
		s, err := b.Peer("a").session()
		if err != nil {
			return ""
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lanes[0] == nil {
			return ""
		}
		return leaf(s.lanes[0].conn.(*tls.Conn)).SerialNumber.String()
	}
	// current is b's session once there is one: a may take the old one for ready until
	// it has heard of its end.
	current := func() (s *session) {
		until(t, func() bool {
			var err error
			s, err = b.Peer("a").session()
			return err == nil && serial() != ""
		})
		return s
	}
	first := current()
	was := serial()
	// A new certificate of the same authority: the session stays.
	next := ca.issue("a", "t")
	a.apply(t, Update{Peers: []PeerConfig{dial}, TLS: next})
	b.apply(t, Update{Peers: listed("a"), TLS: ca.issue("b", "t")})
	if _, dead := deadOf(first); dead || serial() != was {
		t.Error("a new certificate ended the session of the old one")
	}
	first.drop(wire.CodeLaneLost)
	until(t, func() bool { s := serial(); return s != "" && s != was })

	// The end of the certificates: the session goes, and cannot come back before they are new.
	second := current()
	skew.Store(int64(2 * time.Hour))
	until(t, func() bool { _, dead := deadOf(second); return dead })
	skew.Store(0)

	// Another authority on one side, then on both.
	third := current()
	b.apply(t, Update{Peers: listed("a"), TLS: other.issue("b", "t")})
	until(t, func() bool { _, dead := deadOf(third); return dead })
	until(t, func() bool { i := a.Peer("b").info(); return i.State == StateRefused && i.Code == wire.CodeAuth })
	a.apply(t, Update{Peers: []PeerConfig{dial}, TLS: other.issue("a", "t")})
	ready(t, a.Peer("b"))
}

// A thousand peers come at once and go again, and nothing of them is left.
func TestAThousandPeersComeAndGo(t *testing.T) {
	noLeaks(t)
	a := start(t, 1, 10, "", nil)
	many := listed("stays")
	for i := range 1000 {
		many = append(many, PeerConfig{Name: fmt.Sprint("p", i), Addr: "tcp://127.0.0.1:1"})
	}
	a.apply(t, Update{Peers: many})
	if n := len(a.Peers()); n != 1001 {
		t.Errorf("there are %d peers", n)
	}
	a.apply(t, Update{Peers: many[:1]})
	if len(a.Peers()) != 1 {
		t.Errorf("%d peers are left", len(a.Peers()))
	}
}

// Reloads under load: each block that is pulled is whole or an error, and in the
// end the counts are back to zero.
func TestReloadsUnderLoadGiveNoWrongByte(t *testing.T) {
	noLeaks(t)
	const n, size = 8, 256 << 10
	b := start(t, 2, 20, "tcp://127.0.0.1:0", nil)
	entry := func(psk string) Update {
		return Update{Peers: []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t", psk}}}, Drain: time.Second}
	}
	a := start(t, 1, 10, "", nil)
	a.apply(t, entry("0"))
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = randomBody(size)
		b.store.Add(ns, key(ns, i), wire.OutputCritical, bodies[i])
	}
	ready(t, a.Peer("b"))
	stop := make(chan struct{})
	var good atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				it := pullItems(ns, size, size, size, size, size, size, size, size)
				if p := a.Peer("b"); p != nil {
					p.Pull(t.Context(), it)
				} else {
					failAll(it, wire.CodeUnreachable)
				}
				for i := range it {
					switch {
					case it[i].Err != nil:
					case !bytes.Equal(it[i].M.B[wire.HeaderLen:], bodies[i]):
						t.Errorf("block %d arrived wrong", i)
					default:
						good.Add(1)
					}
				}
			}
		})
	}
	for i := range 30 {
		a.apply(t, entry(fmt.Sprint(i%2+1)))
		if i%10 == 9 {
			a.apply(t, Update{Peers: listed("other")})
			a.apply(t, entry("0"))
		}
		had := good.Load()
		until(t, func() bool { return good.Load() > had })
	}
	close(stop)
	wg.Wait()
	until(t, func() bool { st := a.Stats(); return st.Sessions == 1 && st.Calls == 0 && st.Refs == 0 })
}

// A call that does not end holds up no change of a proof, however long a drain may
// take.
func TestAChangedKeyWaitsForNoStuckCall(t *testing.T) {
	a, p, ns := stuckPair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Pull(testContext(t), pullItems(ns, 1<<20))
	}()
	until(t, func() bool { return a.Stats().CallBytes > 0 })
	entry := p.cfg
	entry.PSK = []byte("another")
	a.apply(t, Update{Peers: []PeerConfig{entry}, Drain: time.Hour})
	select {
	case <-done:
	case <-testContext(t).Done():
		t.Fatal("a call under the old key goes on")
	}
}
