package link

import (
	"bytes"
	"strings"
	"testing"

	"meridian/adapters/link/internal/core"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// An agent id is only what a peer says. These tests are of two peers, each with a
// name and a key of its own, that give the same one.

func TestAnAgentIDThatIsTakenKeepsItsOwnerNotOut(t *testing.T) {
	n := start(t, 9, 90, "", nil)
	owner, err := proven(t, n, "victim", 1, 10, "10.0.0.1:7400")
	if err != nil {
		t.Fatal(err)
	}
	owner.drop(wire.CodeLaneLost)
	squatter, err := proven(t, n, "squatter", 1, 11, "10.0.0.2:7400")
	if err != nil {
		t.Fatal(err)
	}
	if owner, err = proven(t, n, "victim", 1, 10, "10.0.0.1:7400"); err != nil {
		t.Fatalf("the owner that comes back: %v", err)
	}
	for name, s := range map[string]*session{"owner": owner, "squatter": squatter} {
		if _, dead := s.core.Dead(); dead {
			t.Errorf("the session of the %s was dropped", name)
		}
	}
	all := n.Duplicates()
	if len(all) != 1 || all[0].Seen != 0 {
		t.Fatalf("%+v, want one that refused nobody", all)
	}
	for _, part := range []string{"victim at 10.0.0.1:7400", "squatter at 10.0.0.2:7400"} {
		if !strings.Contains(all[0].Text(), part) {
			t.Errorf("%s: want %s in it", all[0].Text(), part)
		}
	}
}

// victimAndSquatter is b with two listed peers of one tenant that give the same
// agent id and incarnation, at the same slots of which lie different bodies.
func victimAndSquatter(t *testing.T) (b, victim, squatter *side, ns wire.Namespace) {
	t.Helper()
	noLeaks(t)
	b = start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Insecure, c.Name = false, "b"
		c.Peers = []PeerConfig{{Name: "squatter", PSK: keyTwo}, {Name: "victim", PSK: keyOne}}
	})
	ns, err := b.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	join := func(name string, psk []byte) *side {
		s := start(t, 1, 10, "", func(c *Config) {
			c.Insecure, c.Name = false, name
			c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, PSK: psk}}
		})
		ready(t, s.Peer("b"))
		ready(t, b.Peer(name))
		if _, err := s.ns.Add(testManifest("t")); err != nil {
			t.Fatal(err)
		}
		return s
	}
	squatter = join("squatter", keyTwo)
	return b, join("victim", keyOne), squatter, ns
}

func TestAnAgentIDUnderTwoNamesMixesNothingUp(t *testing.T) {
	b, victim, squatter, ns := victimAndSquatter(t)
	ctx, g := testContext(t), b.Group()
	theirs, lies := randomBody(1000), randomBody(1000)
	victim.store.Add(ns, key0(ns), wire.OutputCritical, theirs)
	squatter.store.Add(ns, key0(ns), wire.OutputCritical, lies)

	at := func(p *Peer) fabric.Item {
		it := []fabric.Item{{NS: ns, Key: key0(ns)}}
		p.Find(ctx, it)
		if it[0].Err != nil {
			t.Fatalf("%s: %v", p.Name(), it[0].Err)
		}
		it[0].M.B = make([]byte, wire.HeaderLen+1000)
		return it[0]
	}
	good, bad := at(b.Peer("victim")), at(b.Peer("squatter"))
	if good.H == bad.H {
		t.Error("the handles of both are equal")
	}
	pull := []fabric.Item{good}
	g.Pull(ctx, pull)
	if pull[0].Err != nil || !bytes.Equal(pull[0].M.B[wire.HeaderLen:], theirs) {
		t.Errorf("a load by the victim's handle: %v, its bytes: %v", pull[0].Err, bytes.Equal(pull[0].M.B[wire.HeaderLen:], theirs))
	}
	pull[0] = good
	if b.Peer("squatter").Pull(ctx, pull); wire.CodeOf(pull[0].Err) != wire.CodeStale {
		t.Errorf("the squatter is asked for the victim's handle: %v, want STALE", pull[0].Err)
	}

	push := []fabric.Item{{NS: ns, Key: key(ns, 1), M: payload(t, wire.ThinkActive, randomBody(1000))}}
	b.Peer("victim").Push(ctx, push)
	if push[0].Err != nil || !g.Keeps(push[0].H) {
		t.Errorf("an offload to the victim: %v, counts as a copy: %v", push[0].Err, g.Keeps(push[0].H))
	}
	victim.stop(t)
	until(t, func() bool { return b.Peer("victim").Usable(ns) != nil })
	if g.Keeps(push[0].H) {
		t.Error("the victim is gone, and its copy counts because the squatter is there")
	}
	pull[0] = good
	if g.Pull(ctx, pull); wire.CodeOf(pull[0].Err) != wire.CodeUnreachable {
		t.Errorf("a load by the victim's handle while it is away: %v, want UNREACHABLE", pull[0].Err)
	}
}

// Which keys go to a peer follows from its name, which it cannot choose.
func TestAnAgentIDAttractsNoKeys(t *testing.T) {
	b, _, _, ns := victimAndSquatter(t)
	count := map[string]int{}
	for i := range 200 {
		count[b.Group().Choose(ns, key(ns, i))]++
	}
	if count["victim"] < 50 || count["squatter"] < 50 {
		t.Errorf("of 200 keys: %v", count)
	}
}

// The squatter names the victim's session and its lease in its own frames.
func TestAnAgentIDOpensNoSessionAndNoLeaseOfAnotherName(t *testing.T) {
	b, victim, squatter, ns := victimAndSquatter(t)
	b.store.Add(ns, key0(ns), wire.OutputCritical, randomBody(500))
	of := func(s *side) *session {
		use, err := s.Peer("b").session()
		if err != nil {
			t.Fatal(err)
		}
		return use
	}
	mine, other := of(victim), of(squatter)
	for lane := range uint8(3) {
		if h, _, _, err := squatter.Peer("b").dialLane(mine.id, lane); wire.CodeOf(err) != wire.CodeAuth {
			t.Errorf("lane %d of the victim's session: %v, want AUTH", lane, err)
			if err == nil {
				squatter.endOpening(h.base)
				_ = h.base.Close()
			}
		}
	}
	lease := leased(t, mine, ns)
	if got := renewed(t, other, lease); got != wire.CodeLeaseLost {
		t.Errorf("RENEW of the victim's lease: %v, want LEASE_LOST", got)
	}
	if got := released(t, other, lease); got != wire.CodeOK {
		t.Errorf("RELEASE of the victim's lease: %v; it is no fault", got)
	}
	other.drop(wire.CodeLaneLost)
	until(t, func() bool { return b.Peer("squatter").Usable(ns) != nil })
	if _, _, leases, pins := b.store.Counts(); leases != 1 || pins != 1 {
		t.Errorf("%d leases, %d pins are left of the victim's, want 1", leases, pins)
	}
	if got := renewed(t, mine, lease); got != wire.CodeOK {
		t.Errorf("RENEW by the victim: %v", got)
	}
}

// leased is a lease at the other end for block 0, by PULL with KEEP_LEASE.
func leased(t *testing.T, s *session, ns wire.Namespace) [16]byte {
	t.Helper()
	num, err := s.open(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	c := &core.Call{Type: proto.TypePull, LeaseFor: proto.MaxLease, Items: []core.Item{{NS: num, Key: key0(ns), Flags: proto.WantKeepLease}}}
	if s.call(t.Context(), c); c.Code != wire.CodeOK || c.Lease == ([16]byte{}) {
		t.Fatalf("PULL with KEEP_LEASE: %v, lease %x", c.Code, c.Lease)
	}
	return c.Lease
}

// renewed is what the other end says to RENEW, and released what it says to RELEASE.
func renewed(t *testing.T, s *session, lease [16]byte) wire.Code {
	c := &core.Call{Type: proto.TypeRenew, Lease: lease, LeaseFor: proto.MaxLease}
	s.call(t.Context(), c)
	return c.Code
}

func released(t *testing.T, s *session, lease [16]byte) wire.Code {
	c := &core.Call{Type: proto.TypeRelease, Leases: [][16]byte{lease}}
	s.call(t.Context(), c)
	return c.Code
}
