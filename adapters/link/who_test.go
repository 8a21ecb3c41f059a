package link

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"meridian/fabric"
	"meridian/internal/testlog"
	"meridian/wire"
	proto "meridian/wire/link"
)

// Who is at the other end: these tests ask from outside, as a peer or a stranger
// would.

// news counts what a node tells its observer.
type news struct {
	nobody
	mu       sync.Mutex
	restarts map[string]int // by peer
	refused  map[wire.Code]int
}

func (n *news) PeerState(peer string, _ State, code wire.Code) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.restarts == nil {
		n.restarts = map[string]int{}
	}
	if code == wire.CodeIncarnation {
		n.restarts[peer]++
	}
}

func (n *news) Refusal(_ string, code wire.Code) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refused == nil {
		n.refused = map[wire.Code]int{}
	}
	n.refused[code]++
}

func (n *news) dropped(peer string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.restarts[peer]
}

func (n *news) refusals(code wire.Code) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refused[code]
}

// outcome waits until a dialled peer is ready or refused.
func outcome(t *testing.T, p *Peer) (st State) {
	t.Helper()
	until(t, func() bool {
		st = p.info().State
		return st == StateReady || st == StateRefused
	})
	return st
}

var (
	keyOne = []byte("5b1e7f0c92d84a63b0f6a9d13e57c248")
	keyTwo = []byte("c20d94f1a7be4356980e1fd57a3b6c88")
)

func TestAListedPeerWithoutTenantsMayHaveNone(t *testing.T) {
	for name, insecure := range map[string]bool{"by key": false, "insecure": true} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			key := keyOne
			if insecure {
				key = nil
			}
			b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
				c.Insecure, c.PSK, c.Tenants = insecure, key, []string{"t"}
				c.Peers = []PeerConfig{{Name: "a", Tenants: []string{}}}
			})
			a := start(t, 1, 10, "", func(c *Config) {
				c.Insecure, c.PSK, c.Name = insecure, key, "a"
				c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
			})
			ns, err := a.ns.Add(testManifest("t"))
			if err != nil {
				t.Fatal(err)
			}
			b.store.Add(ns, key0(ns), wire.ThinkActive, randomBody(1000))
			outcome(t, a.Peer("b"))
			it := []fabric.Item{{NS: ns, Key: key0(ns)}}
			a.Peer("b").Find(testContext(t), it)
			if it[0].Err == nil {
				t.Error("it sees a block of a tenant that nobody gave it")
			}
		})
	}
}

func TestAnAllowListIsTheWholeTruth(t *testing.T) {
	for _, c := range []struct {
		name   string
		listen string
		change func(*Config)
	}{
		{"insecure", "tcp://127.0.0.1:0", func(*Config) {}},
		{"shared key", "tcp://127.0.0.1:0", func(c *Config) { c.Insecure, c.PSK = false, keyOne }},
		{"shared key and insecure", "tcp://127.0.0.1:0", func(c *Config) { c.PSK = keyOne }},
		{"Unix socket", "unix", func(c *Config) { c.Insecure = false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			if c.listen == "unix" {
				c.listen = "unix://" + t.TempDir() + "/s"
			}
			b := start(t, 2, 20, c.listen, func(cfg *Config) {
				c.change(cfg)
				cfg.Peers = []PeerConfig{{Name: "listed", Tenants: []string{"t"}}}
			})
			for name, want := range map[string]State{"listed": StateReady, "unlisted": StateRefused, "": StateRefused} {
				a := start(t, 1, 10, "", func(cfg *Config) {
					c.change(cfg)
					cfg.Name = name
					cfg.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
				})
				if got := outcome(t, a.Peer("b")); got != want {
					t.Errorf("%q is %v, want %v: %+v", name, got, want, a.Peers()[0])
				}
				a.stop(t)
				until(t, func() bool { return b.Stats().Sessions == 0 || b.Stats().Lanes == 0 })
			}
		})
	}
}

// victimAndThief is an agent with two listed peers that have a key each, of which
// the first is connected both ways.
func victimAndThief(t *testing.T, pin bool) (b, victim *side, seen *news, dial func(inc uint64) *side) {
	t.Helper()
	noLeaks(t)
	seen = &news{}
	victim = start(t, 1, 10, "tcp://127.0.0.1:0", func(c *Config) {
		c.Insecure, c.Name = false, "victim"
		c.Peers = []PeerConfig{{Name: "b", PSK: keyOne, Tenants: []string{"t"}}}
	})
	b = start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Insecure, c.Name, c.Observer = false, "b", seen
		c.Peers = []PeerConfig{{Name: "victim", Addr: victim.addr, PSK: keyOne, Tenants: []string{"t"}}, {Name: "thief", PSK: keyTwo, Tenants: []string{"u"}}}
		if pin {
			c.Peers[0].Agent = agentID(1)
		}
	})
	ready(t, b.Peer("victim"))
	return b, victim, seen, func(inc uint64) *side {
		return start(t, 1, inc, "", func(c *Config) {
			c.Insecure, c.Name = false, "thief"
			c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, PSK: keyTwo, Tenants: []string{"u"}}}
		})
	}
}

// A peer that proves its own name and gives another one's agent id with a new
// incarnation changes nothing of that one's sessions. Where the id is pinned it is
// refused; else it is served as who it is.
func TestAnotherPeersAgentIDOpensNothingOfIts(t *testing.T) {
	for name, c := range map[string]struct {
		pin  bool
		want State
	}{"pinned": {true, StateRefused}, "not pinned": {false, StateReady}} {
		t.Run(name, func(t *testing.T) {
			b, _, seen, dial := victimAndThief(t, c.pin)
			for inc := uint64(100); inc < 105; inc++ {
				x := dial(inc)
				if st := outcome(t, x.Peer("b")); st != c.want {
					t.Errorf("the thief is %v, want %v", st, c.want)
				}
				if want := fmt.Sprint([]string{"u"}); c.want == StateReady && fmt.Sprint(b.Peer("thief").info().Tenants) != want {
					t.Errorf("the thief has the tenants %v, want its own", b.Peer("thief").info().Tenants)
				}
				x.stop(t)
			}
			i := b.Peer("victim").info()
			if seen.dropped("victim") != 0 || i.State != StateReady || i.Inc != 10 || i.Agent != agentID(1) {
				t.Errorf("%d sessions of the victim were dropped; b says of it: %+v", seen.dropped("victim"), i)
			}
		})
	}
}

// Who pins an agent id may rely on it also while that agent is away.
func TestAPinnedAgentIDIsNobodyElses(t *testing.T) {
	b, victim, _, dial := victimAndThief(t, true)
	victim.stop(t)
	until(t, func() bool { return b.Peer("victim").info().State != StateReady })
	x := dial(100)
	if st := outcome(t, x.Peer("b")); st != StateRefused {
		t.Errorf("the thief is %v", st)
	}
}

func TestSessionsAreCountedByProvenName(t *testing.T) {
	noLeaks(t)
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Insecure = false
		c.Peers = []PeerConfig{{Name: "a", PSK: keyOne, Tenants: []string{"t"}}}
	})
	var all []*side
	for i := range byte(12) {
		a := start(t, 100+i, 10, "", func(c *Config) {
			c.Insecure, c.Name = false, "a"
			c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, PSK: keyOne, Tenants: []string{"t"}}}
		})
		all = append(all, a)
		outcome(t, a.Peer("b"))
	}
	for range 20 {
		if n := b.Stats().Sessions; n > proto.MaxSessions {
			t.Fatalf("one key has %d sessions, with %d agent ids", n, len(all))
		}
	}
}

// Two live daemons with one identity, as a copied state folder makes them: one of
// them is connected and stays so, the other is refused.
func TestTwoDaemonsWithOneIdentityDoNotTakeTurns(t *testing.T) {
	for name, second := range map[string]byte{"one agent id": 1, "one name": 3} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			seen, log := &news{}, &testlog.Buffer{}
			b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
				c.Observer, c.Log = seen, slog.New(slog.NewTextHandler(log, nil))
				c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}}
			})
			for i, id := range []byte{1, second} {
				twin := start(t, id, uint64(10+i), "", func(c *Config) {
					c.Name = "a"
					c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
				})
				ready(t, twin.Peer("b"))
			}
			until(t, func() bool { return seen.refusals(wire.CodeIncarnation) >= 5 })
			if i := b.Peer("a").info(); seen.dropped("a") > 1 || i.State != StateReady || i.Inc != 11 {
				t.Errorf("sessions were dropped %d times; b says of its peer: %+v", seen.dropped("a"), i)
			}
			if n := len(log.Lines()); n > 30 {
				t.Errorf("%d log lines", n)
			}
		})
	}
}
