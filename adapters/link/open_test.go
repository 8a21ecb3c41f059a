package link

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// unopened is a session without lanes, so that a question ends with LANE_LOST or
// UNREACHABLE at once, and a namespace to open.
func unopened(t *testing.T, n *side) (*session, wire.Namespace) {
	t.Helper()
	s, err := proven(t, n, "a", 1, 10, "there")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := n.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	return s, ns
}

func answered(code wire.Code, until time.Duration) *nsEntry {
	e := &nsEntry{ready: make(chan struct{}), err: code, until: until}
	close(e.ready)
	return e
}

func (s *session) set(ns wire.Namespace, e *nsEntry) {
	s.mu.Lock()
	s.ns[ns] = e
	s.mu.Unlock()
}

// A caller that leaves while its OPEN is under way takes no other caller with it, whose
// own context goes on.
func TestWhoWaitsForAnotherCallersOpenAsksItself(t *testing.T) {
	for _, gone := range []wire.Code{wire.CodeCancelled, wire.CodeDeadline} {
		synctest.Test(t, func(t *testing.T) {
			n := start(t, 9, 90, "", nil)
			s, ns := unopened(t, n)
			e := &nsEntry{ready: make(chan struct{})}
			s.set(ns, e)
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan error, 2)
			go func() { _, err := s.open(t.Context(), ns); over <- err }()
			go func() { _, err := s.open(ctx, ns); over <- err }()
			synctest.Wait()
			cancel()
			if err := <-over; !errors.Is(err, wire.CodeCancelled) {
				t.Errorf("a caller that leaves: %v", err)
			}
			s.mu.Lock()
			delete(s.ns, ns)
			e.err = gone
			s.mu.Unlock()
			close(e.ready)
			if err := <-over; err == nil || errors.Is(err, gone) {
				t.Errorf("a caller that stays is told %v of another one", err)
			}
			n.stop(t)
		})
	}
}

// A refusal is answered from memory for refusedFor, whatever its code, and then asked for
// again.
func TestARefusedNamespaceIsAskedForAgainInTime(t *testing.T) {
	n, now := clocked(t, nil)
	s, ns := unopened(t, n)
	for _, code := range []wire.Code{wire.CodeNSUnknown, wire.CodeDeadline} {
		s.set(ns, answered(code, time.Duration(now.Load())+refusedFor))
		now.Add(int64(refusedFor) - 1)
		if _, err := s.open(t.Context(), ns); !errors.Is(err, code) {
			t.Errorf("within %v: %v, want %v", refusedFor, err, code)
		}
		now.Add(1)
		if _, err := s.open(t.Context(), ns); err == nil || errors.Is(err, code) {
			t.Errorf("after %v: %v, which was not asked for", refusedFor, err)
		}
	}
}

func TestASessionOpensAsManyNamespacesAsThePeerTakes(t *testing.T) {
	s, ns := unopened(t, start(t, 9, 90, "", nil))
	for i := range proto.MaxNamespaces - 1 {
		s.set(wire.Namespace{1, byte(i), byte(i >> 8)}, answered(wire.CodeOK, 0))
	}
	if _, err := s.open(t.Context(), ns); errors.Is(err, wire.CodeNSUnknown) {
		t.Errorf("the last one was not asked for: %v", err)
	}
	s.set(wire.Namespace{2}, answered(wire.CodeOK, 0))
	if _, err := s.open(t.Context(), ns); !errors.Is(err, wire.CodeNSUnknown) {
		t.Errorf("one more: %v, want NS_UNKNOWN", err)
	}
}

// A call that its caller gives up says so; one whose time is over says that.
func TestACallSaysHowItsContextEnded(t *testing.T) {
	noLeaks(t)
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) { c.Peers = listed("liar") })
	a := start(t, 7, 70, "", func(c *Config) { c.Name = "liar" })
	ns, err := b.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{}, 2)
	lie(t, newPeer(a.Node, PeerConfig{Name: "b", Addr: b.addr, Tenants: []string{"t"}}), func(*liar, proto.Frame) []byte {
		select {
		case came <- struct{}{}:
		default:
		}
		return nil // no answer
	})
	ready(t, b.Peer("liar"))
	ctx, cancel := context.WithCancel(testContext(t))
	go func() { <-came; cancel() }()
	it := []fabric.Item{{NS: ns, Key: key0(ns)}}
	if b.Peer("liar").Find(ctx, it); !errors.Is(it[0].Err, wire.CodeCancelled) {
		t.Errorf("a call that was given up: %v, want CANCELLED", it[0].Err)
	}
	ctx, cancel = context.WithTimeout(testContext(t), time.Millisecond)
	defer cancel()
	if b.Peer("liar").Find(ctx, it); !errors.Is(it[0].Err, wire.CodeDeadline) {
		t.Errorf("a call whose time is over: %v, want DEADLINE", it[0].Err)
	}
}

// How long a session that has to go may take, by what changed, and what comes next.
func TestWhatASessionThatHasToGoMayTake(t *testing.T) {
	n := start(t, 9, 90, "", func(c *Config) { c.Peers = []PeerConfig{{Name: "a"}, {Name: "dialled", Addr: "tcp://127.0.0.1:1"}} })
	s, err := proven(t, n, "a", 1, 10, "there")
	if err != nil {
		t.Fatal(err)
	}
	s.entry = n.Peer("a")
	for name, c := range map[string]struct {
		peers []PeerConfig
		want  time.Duration
	}{
		"the entry is gone":                {listed("b"), time.Hour},
		"the address changed":              {[]PeerConfig{{Name: "a", Addr: "tcp://127.0.0.1:2", Tenants: []string{"t"}}}, time.Hour},
		"the key changed":                  {[]PeerConfig{{Name: "a", PSK: keyOne, Tenants: []string{"t"}}}, drainStill},
		"the entry stays, the proof ended": {[]PeerConfig{s.entry.cfg}, drainStill},
	} {
		r := n.newRoster(Update{Peers: c.peers}, n.roster.Load())
		if got := s.mayTake(r, time.Hour); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := s.mayTake(r, time.Millisecond); got != time.Millisecond {
			t.Errorf("%s: %v beyond a drain of 1 ms", name, got)
		}
	}
	for name, want := range map[string]string{"a": "the peer connects", "dialled": "this agent connects", "nobody": "none"} {
		s.peer.name = name
		if got := s.next(); !strings.HasPrefix(got, want) {
			t.Errorf("after a session of %s: %s", name, got)
		}
	}
	s.peer.name = "a"
}

// What is remembered of a name goes with its entry, and of no other.
func TestARemovedNameIsForgotten(t *testing.T) {
	n := start(t, 9, 90, "", func(c *Config) { c.Peers = listed("stays", "goes") })
	n.Node.mu.Lock()
	for _, name := range []string{"stays", "goes", "10.0.0.1 07"} {
		n.remember(name, instance{agentID(1), 10})
	}
	n.Node.mu.Unlock()
	n.apply(t, Update{Peers: listed("stays", "comes")})
	n.Node.mu.Lock()
	defer n.Node.mu.Unlock()
	if len(n.past) != 2 || n.past["goes"] != nil {
		t.Errorf("what is remembered: %v", fmt.Sprint(n.past))
	}
}
