package link

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"meridian/blocks/quota"
	"meridian/wire"
	proto "meridian/wire/link"
)

// proven lets an identity claim its sessions, as admit does.
func proven(t *testing.T, n *side, name string, agent byte, inc uint64, from string) (*session, error) {
	t.Helper()
	id := identity{name: name, who: name, listed: true, agent: agentID(agent), inc: inc}
	n.mu.Lock()
	older, err := n.claim(&id, from)
	if err != nil {
		n.mu.Unlock()
		return nil, err
	}
	s := n.newSession(newPeer(n.Node, PeerConfig{Name: name}), [16]byte{agent, byte(inc), byte(len(n.sessions))}, id, viaTCP, from, false, &proto.Hello{Limits: n.cfg.Limits})
	n.sessions[s.id] = s
	n.displace(&id, older)
	n.mu.Unlock()
	n.replace(&id, older)
	return s, nil
}

func TestADuplicateIsReportedWithBothAddresses(t *testing.T) {
	n := start(t, 9, 90, "", nil)
	if _, err := proven(t, n, "a", 1, 10, "10.0.0.1:7400"); err != nil {
		t.Fatal(err)
	}
	second, err := proven(t, n, "a", 1, 11, "10.0.0.2:7400")
	if err != nil {
		t.Fatalf("a later incarnation: %v", err)
	}
	if got := n.Stats().Sessions; got != 1 {
		t.Errorf("%d sessions, want that of the later incarnation", got)
	}
	for range 3 {
		if _, err := proven(t, n, "a", 1, 10, "10.0.0.1:7411"); wire.CodeOf(err) != wire.CodeIncarnation {
			t.Fatalf("the earlier one that comes back: %v", err)
		}
	}
	if _, err := proven(t, n, "b", 1, 12, "10.0.0.3:7400"); err != nil {
		t.Fatalf("another name with that agent id: %v", err)
	}
	all := n.Duplicates()
	if len(all) != 2 || all[0].Seen != 3 || all[1].Seen != 0 {
		t.Fatalf("%+v", all)
	}
	if got, want := all[0].Text(), fmt.Sprintf("two live daemons are named a and have agent id %x: one at 10.0.0.2:7400 is connected, one at 10.0.0.1:7411 is refused", agentID(1)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := all[1].Text(), fmt.Sprintf("two peers give agent id %x: a at 10.0.0.2:7400 and b at 10.0.0.3:7400; each is served by its own name", agentID(1)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	// The later one leaves for good: the earlier one may come back.
	second.drop(wire.CodeLaneLost)
	if _, err := proven(t, n, "a", 1, 10, "10.0.0.1:7400"); err != nil {
		t.Errorf("the earlier one, alone again: %v", err)
	}
}

// A peer that is another daemon at each connection fills no memory.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	n := start(t, 9, 90, "", nil)
	for i := range 3000 {
		id := identity{name: fmt.Sprint(i % 700), who: fmt.Sprint(i % 700), agent: agentID(1)}
		n.mu.Lock()
		n.remember(id.key(), instance{agentID(2), uint64(i)})
		n.duplicate(&id, "here", &identity{name: fmt.Sprint(i)}, "there")
		n.mu.Unlock()
		n.refused(refusal{origin: origin{addr: "x", source: fmt.Sprint(i)}, err: wire.CodeAuth})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.past) > maxPast || len(n.twins) > maxDuplicates || len(n.strangers) > maxStrangers {
		t.Errorf("%d names, %d duplicates, %d strangers", len(n.past), len(n.twins), len(n.strangers))
	}
	for k, v := range n.past {
		if len(v) > maxDisplaced {
			t.Errorf("%d instances of %s", len(v), k)
		}
	}
}

func TestAnotherDaemonWithThisOnesIDIsReported(t *testing.T) {
	noLeaks(t)
	b := start(t, 1, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Name = "b"
		c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}}
	})
	a := start(t, 1, 10, "", func(c *Config) {
		c.Name = "a"
		c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
	})
	refusedAs(t, a.Peer("b"), wire.CodeAuth, "another daemon with its agent id")
	if d := b.Duplicates(); len(d) != 1 || d[0].Name != "a" || d[0].OtherName != "b" || d[0].Addr == "" || d[0].Seen < 1 {
		t.Errorf("%+v", d)
	}
}

func TestADuplicateSaysWhatIsSharedAndWhoIsServed(t *testing.T) {
	d := Duplicate{Name: "new", OtherName: "old", Agent: agentID(1), Other: agentID(2), Addr: "1.1.1.1:1", OtherAddr: "2.2.2.2:2", Seen: 3}
	both := func(change func(*Duplicate)) string { d := d; change(&d); return d.Text() }
	id := fmt.Sprintf("%x", d.Agent)
	for got, want := range map[string]string{
		both(func(d *Duplicate) { d.Seen = 0 }):                            "two peers give agent id " + id + ": old at 2.2.2.2:2 and new at 1.1.1.1:1; each is served by its own name",
		both(func(d *Duplicate) { d.OtherName, d.Other = "new", d.Agent }): "two live daemons are named new and have agent id " + id + ": one at 2.2.2.2:2 is connected, one at 1.1.1.1:1 is refused",
		both(func(d *Duplicate) { d.OtherName = "new" }):                   "two live daemons are named new: one at 2.2.2.2:2 is connected, one at 1.1.1.1:1 is refused",
		both(func(d *Duplicate) { d.Other = d.Agent }):                     "two live daemons have agent id " + id + ": old at 2.2.2.2:2 is connected, new at 1.1.1.1:1 is refused",
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// clocked is a side whose time is set by hand.
func clocked(t *testing.T, change func(*Config)) (n *side, now *atomic.Int64) {
	t.Helper()
	now = &atomic.Int64{}
	now.Store(int64(1000 * time.Hour))
	n = start(t, 9, 90, "", func(c *Config) {
		c.Clock = func() time.Duration { return time.Duration(now.Load()) }
		if change != nil {
			change(c)
		}
	})
	return n, now
}

// A shared agent id is told of while both are connected and for a minute after; peers
// that share nothing, and several sessions of one peer, are no duplicates.
func TestASharedIDIsToldOfForAMinute(t *testing.T) {
	n, now := clocked(t, nil)
	connect := func(name string, agent byte) *session {
		t.Helper()
		s, err := proven(t, n, name, agent, 10, name+":7400")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	told := func(when string, want int) {
		t.Helper()
		if d := n.Duplicates(); len(d) != want || want > 0 && (d[0].OtherName != "a" || d[0].Name != "b") {
			t.Errorf("%s: %+v, want %d", when, d, want)
		}
	}
	connect("a", 1)
	connect("a", 1)
	connect("c", 3)
	told("two sessions of one peer and another peer", 0)
	b := connect("b", 1)
	now.Add(int64(2 * newsFor))
	told("two minutes later, both connected", 1)
	b.drop(wire.CodeLaneLost)
	now.Add(int64(newsFor) - 1)
	told("within a minute", 1)
	now.Add(1)
	told("after a minute", 0)
	connect("b", 1).drop(wire.CodeLaneLost)
	told("it came and left before anybody asked", 1)
}

// The last few instances of a name are remembered, each of which may not come back.
func TestNoneOfTheLastInstancesComesBack(t *testing.T) {
	n := start(t, 9, 90, "", nil)
	const last = maxDisplaced + 3
	for inc := uint64(1); inc <= last; inc++ {
		if _, err := proven(t, n, "a", 1, inc, "there"); err != nil {
			t.Fatalf("incarnation %d: %v", inc, err)
		}
	}
	for inc := uint64(last - maxDisplaced); inc < last; inc++ {
		if _, err := proven(t, n, "a", 1, inc, "there"); wire.CodeOf(err) != wire.CodeIncarnation {
			t.Errorf("incarnation %d comes back: %v, want INCARNATION", inc, err)
		}
	}
	if _, err := proven(t, n, "a", 1, last-maxDisplaced-1, "there"); err != nil {
		t.Errorf("one that is forgotten: %v", err)
	}
}

// The names that are remembered are those of late: as many as are on the list, and some.
func TestTheNameThatChangedLongestAgoIsForgotten(t *testing.T) {
	n, now := clocked(t, func(c *Config) { c.Peers = listed("p", "q") })
	n.mu.Lock()
	defer n.mu.Unlock()
	remember := func(name string, inc uint64) {
		now.Add(1)
		n.remember(name, instance{agentID(1), inc})
	}
	const most = maxPast + 2
	for i := range most {
		remember(fmt.Sprint(i), 1)
	}
	remember("0", 2)
	if len(n.past) != most {
		t.Errorf("%d names, want %d", len(n.past), most)
	}
	remember("new", 1)
	if len(n.past) != most || n.past["1"] != nil || n.past["0"] == nil || n.past["new"] == nil {
		t.Errorf("%d names; of 1 %v, of 0 %v, of the new one %v", len(n.past), n.past["1"], n.past["0"], n.past["new"])
	}
}

// admitted lets a peer of a name that is listed join or begin a session by a lane.
func admitted(n *side, name string, agent byte, inc uint64, session, lane byte) (*session, error) {
	id := identity{name: name, who: name, listed: true, agent: agentID(agent), inc: inc}
	return n.admit(&hello{origin: origin{addr: name + ":1"}}, n.Peer(name), id, &proto.Hello{Session: [16]byte{session}, Lane: lane})
}

// A session is of one name, agent and incarnation, and of who was dialled to none of
// those that dial.
func TestALaneJoinsNoSessionButItsOwn(t *testing.T) {
	n := start(t, 9, 90, "", func(c *Config) { c.Peers = listed("a", "b") })
	s, err := admitted(n, "a", 1, 10, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := admitted(n, "a", 1, 10, 1, 1); again != s || err != nil {
		t.Errorf("its own lane 1: %v", err)
	}
	for name, c := range map[string]struct {
		got  func() (*session, error)
		want wire.Code
	}{
		"of another name":        {func() (*session, error) { return admitted(n, "b", 1, 10, 1, 1) }, wire.CodeAuth},
		"of another agent":       {func() (*session, error) { return admitted(n, "a", 2, 10, 1, 1) }, wire.CodeAuth},
		"of another incarnation": {func() (*session, error) { return admitted(n, "a", 1, 11, 1, 1) }, wire.CodeAuth},
		"a data lane of none":    {func() (*session, error) { return admitted(n, "a", 1, 10, 2, 1) }, wire.CodeState},
		"of one that was dialled": {func() (*session, error) {
			s.dialled = true
			defer func() { s.dialled = false }()
			return admitted(n, "a", 1, 10, 1, 1)
		}, wire.CodeAuth},
	} {
		if got, err := c.got(); got != nil || wire.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	s.retire(time.Hour, wire.CodeAuth)
	if got, err := admitted(n, "a", 1, 10, 1, 1); got != nil || wire.CodeOf(err) != wire.CodeDraining {
		t.Errorf("of one that is to end: %v, want DRAINING", err)
	}
}

// A peer has its share of sessions. One that only lingers makes room, a restart frees
// those of the earlier instance, and where that is not enough nothing changes.
func TestSessionsBeyondAShareChangeNothing(t *testing.T) {
	book := &quota.Book{}
	book.SetLimit(quota.Sessions, quota.Peer, 2)
	n := start(t, 9, 90, "", func(c *Config) { c.Peers, c.Quota = listed("a"), book })
	admit := func(inc uint64, session byte, want wire.Code) *session {
		t.Helper()
		s, err := admitted(n, "a", 1, inc, session, 0)
		if wire.CodeOf(err) != want {
			t.Fatalf("session %d of incarnation %d: %v, want %v", session, inc, err, want)
		}
		return s
	}
	lingers := func(s *session) {
		s.mu.Lock()
		s.lingers = true
		s.mu.Unlock()
	}
	counted := func() {
		t.Helper()
		if u := book.Used(quota.Sessions, quota.Holder{Kind: quota.Peer, Name: "a"}); u != uint64(n.Stats().Sessions) {
			t.Errorf("%d sessions are counted, there are %d", u, n.Stats().Sessions)
		}
	}
	dead := func(s *session, want wire.Code) {
		t.Helper()
		if code, _ := deadOf(s); code != want {
			t.Errorf("a session ended with %v, want %v", code, want)
		}
	}
	first, second := admit(10, 1, wire.CodeOK), admit(10, 2, wire.CodeOK)
	admit(10, 3, wire.CodeTooMany)
	lingers(first)
	lingers(second)
	second.mu.Lock()
	if _, err := second.core.AddLane(second.now(), 0, proto.Splitter{}); err != nil {
		t.Error(err)
	}
	second.unlock()
	admit(10, 3, wire.CodeOK)
	dead(first, wire.CodeTooMany)
	dead(second, wire.CodeOK)
	counted()
	admit(10, 4, wire.CodeTooMany) // the one that has lane 0 does not make room
	last := admit(11, 5, wire.CodeOK)
	dead(second, wire.CodeIncarnation)
	counted()
	book.SetLimit(quota.Sessions, quota.Peer, 0)
	admit(12, 6, wire.CodeTooMany)
	dead(last, wire.CodeOK)
	counted()
	lingers(last)
	admit(11, 7, wire.CodeTooMany)
	dead(last, wire.CodeOK)
	counted()
}

// A session whose lane 0 was cut lingers, and goes for the next one of its peer.
func TestASessionThatLingersMakesRoom(t *testing.T) {
	noLeaks(t)
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Peers, c.Quota = listed("a"), &quota.Book{}
		c.Quota.SetLimit(quota.Sessions, quota.Peer, 1)
	})
	a := start(t, 1, 10, "", func(c *Config) { c.Name = "a" })
	p := newPeer(a.Node, PeerConfig{Name: "b", Addr: b.addr, Tenants: []string{"t"}})
	for i := range 3 {
		h, _, _, err := p.dialLane([16]byte{}, 0)
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		a.endOpening(h.base)
		_ = h.base.Close()
		until(t, func() bool {
			for _, s := range b.allSessions() {
				s.mu.Lock()
				up := s.core.Lane(0) != nil
				s.mu.Unlock()
				if up {
					return false
				}
			}
			return true
		})
	}
}
