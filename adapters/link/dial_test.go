package link

import (
	"testing"

	"meridian/wire"
)

// The pause before a new try doubles from the shortest to the longest, half of it is
// random, and it begins anew after a connection that stood for long.
func TestThePauseBetweenTriesGrows(t *testing.T) {
	for range 100 {
		var r redial
		for want := redialMin; ; want = min(2*want, redialMax) {
			if got := r.pause(0); got < want/2 || got >= want {
				t.Fatalf("%v, want between %v and %v", got, want/2, want)
			}
			if want == redialMax {
				break
			}
		}
		if got := r.pause(steadyAfter); got < redialMax/2 || got >= redialMax {
			t.Fatalf("after a connection that stood for %v: %v", steadyAfter, got)
		}
		if got := r.pause(steadyAfter + 1); got != 0 {
			t.Fatalf("after a connection that stood for longer: %v", got)
		}
		if got := r.pause(0); got >= redialMin {
			t.Fatalf("the next one: %v", got)
		}
	}
}

// A session is complete with lane 0 and as many data lanes as are asked for.
func TestASessionIsCompleteWithAllItsLanes(t *testing.T) {
	a, _, p := pair(t, "tcp://127.0.0.1:0")
	until(t, func() bool { return a.Stats().Lanes == 1+a.cfg.Lanes })
	s, err := p.session()
	if err != nil {
		t.Fatal(err)
	}
	for lanes, want := range map[int]bool{1: true, a.cfg.Lanes: true, a.cfg.Lanes + 1: false} {
		if s.complete(lanes) != want {
			t.Errorf("with %d data lanes it is complete for %d: %v", a.cfg.Lanes, lanes, !want)
		}
	}
	s.drop(wire.CodeLaneLost)
	if s.complete(0) {
		t.Error("a session that has ended is complete")
	}
}

// A session whose lane 0 is lost gets it back, and what it holds at the peer stays.
func TestASessionOutlivesItsLane0(t *testing.T) {
	a, b, p := pair(t, "tcp://127.0.0.1:0")
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	b.store.Add(ns, key0(ns), wire.OutputCritical, randomBody(500))
	s, err := p.session()
	if err != nil {
		t.Fatal(err)
	}
	lease := leased(t, s, ns)
	lane0 := func() *lane {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.lanes[0]
	}
	old := lane0()
	_ = old.base.Close()
	until(t, func() bool { l := lane0(); _, dead := deadOf(s); return dead || l != nil && l != old })
	if now, err := p.session(); err != nil || now != s {
		t.Fatalf("another session took its place: %v", err)
	}
	if got := renewed(t, s, lease); got != wire.CodeOK {
		t.Errorf("RENEW: %v", got)
	}
	if n, m := a.Stats().Sessions, b.Stats().Sessions; n != 1 || m != 1 {
		t.Errorf("%d and %d sessions", n, m)
	}
}

// The acceptor gives a new session its id, whatever id the dialler asks for.
func TestADiallerChoosesNoSessionID(t *testing.T) {
	a, b, p := pair(t, "tcp://127.0.0.1:0")
	for _, id := range [][16]byte{{}, {1, 2, 3}} {
		h, _, theirs, err := p.dialLane(id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if theirs.Session == id || !b.knows(theirs.Session) {
			t.Errorf("asked for session %x, got %x; known: %v", id, theirs.Session, b.knows(theirs.Session))
		}
		a.endOpening(h.base)
		_ = h.base.Close()
	}
}

// Calls go over the youngest session that this side dialled, or else the youngest that
// the peer did.
func TestCallsGoOverTheYoungestSession(t *testing.T) {
	p := newPeer(start(t, 1, 10, "", nil).Node, PeerConfig{Name: "a"})
	accepted := []*session{{}, {}}
	dialled := []*session{{dialled: true}, {dialled: true}}
	any := func(*session) bool { return true }
	for _, c := range []struct {
		sessions []*session // the oldest first
		want     *session
	}{
		{nil, nil},
		{accepted, accepted[1]},
		{dialled, dialled[1]},
		{[]*session{accepted[0], dialled[0], accepted[1]}, dialled[0]},
		{[]*session{dialled[0], accepted[0], dialled[1], accepted[1]}, dialled[1]},
	} {
		p.sessions.Store(&[]*session{})
		for _, s := range c.sessions {
			p.addSession(s)
		}
		if got := p.choose(any); got != c.want {
			t.Errorf("of %d sessions another is chosen", len(c.sessions))
		}
	}
	if got := p.choose(func(s *session) bool { return s == accepted[0] }); got != accepted[0] {
		t.Error("the only good one is not chosen")
	}
}
