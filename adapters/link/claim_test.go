package link

import (
	"fmt"
	"testing"

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
	if d := b.Duplicates(); len(d) != 1 || d[0].Name != "a" || d[0].OtherName != "b" || d[0].Addr == "" {
		t.Errorf("%+v", d)
	}
}
