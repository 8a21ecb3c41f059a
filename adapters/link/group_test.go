package link

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"meridian/fabric"
	"meridian/wire"
)

// grouped is an agent connected to n others, and a namespace that all may know.
func grouped(t *testing.T, n int) (a *side, others []*side, ns wire.Namespace) {
	t.Helper()
	noLeaks(t)
	var peers []PeerConfig
	for i := range n {
		b := start(t, byte(2+i), uint64(20+i), "tcp://127.0.0.1:0", nil)
		others = append(others, b)
		peers = append(peers, PeerConfig{Name: fmt.Sprint("p", i), Addr: b.addr})
	}
	a = start(t, 1, 10, "", func(c *Config) { c.Peers = peers })
	for i := range n {
		ready(t, a.Peer(fmt.Sprint("p", i)))
	}
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	return a, others, ns
}

// Equal keys meet at one peer, keys spread over all of them, and only the keys of
// a peer that goes move elsewhere.
func TestAGroupGivesEachKeyAHome(t *testing.T) {
	a, others, ns := grouped(t, 3)
	g := a.Group()
	home := map[int]string{}
	count := map[string]int{}
	for i := range 300 {
		home[i] = g.Choose(ns, key(ns, i))
		count[home[i]]++
		if again := g.Choose(ns, key(ns, i)); again != home[i] {
			t.Fatalf("key %d goes to %s, then to %s", i, home[i], again)
		}
		for _, p := range a.peers() {
			if score(p.home, key(ns, i)) > score(a.Peer(home[i]).home, key(ns, i)) {
				t.Fatalf("key %d goes to %s, and has a higher score at %s", i, home[i], p.Name())
			}
		}
	}
	for name, n := range count {
		if n < 50 || name == "" {
			t.Errorf("%d of 300 keys at %q", n, name)
		}
	}
	if err := others[1].Close(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return a.Peer("p1").Usable(ns) != nil })
	for i := range 300 {
		now := g.Choose(ns, key(ns, i))
		if now == "p1" || home[i] != "p1" && now != home[i] {
			t.Fatalf("key %d of %s goes to %s after p1 has gone", i, home[i], now)
		}
	}
}

// A peer is usable for the namespaces of the tenants that it proved, and for no
// other; a group is with one usable peer.
func TestAPeerIsUsableForTheTenantsThatItProved(t *testing.T) {
	a, others, ns := grouped(t, 1)
	p, g := a.Peer("p0"), a.Group()
	other, err := a.ns.Add(testManifest("another"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ns   wire.Namespace
		code wire.Code
	}{
		"any at all":       {wire.Namespace{}, wire.CodeOK},
		"a shared tenant":  {ns, wire.CodeOK},
		"another's tenant": {other, wire.CodeNSUnknown},
		"not opened":       {wire.Namespace{9}, wire.CodeNSUnknown},
	} {
		if err := p.Usable(c.ns); wire.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
		}
		if err := g.Usable(c.ns); (err == nil) != (c.code == wire.CodeOK) {
			t.Errorf("the group, %s: %v", name, err)
		}
	}
	if to := g.Choose(other, key(other, 1)); to != "" {
		t.Errorf("a key of a tenant that nobody proved goes to %q", to)
	}
	if to := g.Choose(wire.Namespace{}, wire.Key{}); to != "p0" {
		t.Errorf("a block of no namespace, as of a test of a route, goes to %q, want p0", to)
	}
	if err := others[0].Close(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return g.Usable(wire.Namespace{}) != nil })
	if to := g.Choose(wire.Namespace{}, wire.Key{}); to != "" {
		t.Errorf("without a peer, a block of no namespace goes to %q", to)
	}
	if err := g.Usable(ns); !errors.Is(err, wire.CodeUnreachable) {
		t.Errorf("without a peer: %v, want UNREACHABLE", err)
	}
}

// What was pushed to a group comes back by handle and by key, and counts as a copy
// for as long as the incarnation lives that has it.
func TestAGroupFindsItsCopiesAgain(t *testing.T) {
	a, others, ns := grouped(t, 3)
	g := a.Group()
	const n = 40
	it := make([]fabric.Item, n)
	for i := range it {
		it[i] = fabric.Item{NS: ns, Key: key(ns, i), Att: wire.AttestProducer, M: payload(t, wire.ThinkActive, randomBody(1000+i))}
	}
	g.Push(t.Context(), it)
	back := make([]fabric.Item, 0, 2*n)
	for i := range it {
		if it[i].Err != nil {
			t.Fatalf("push %d: %v", i, it[i].Err)
		}
		if !g.Keeps(it[i].H) {
			t.Errorf("copy %d does not count", i)
		}
		byKey := fabric.Item{NS: ns, Key: it[i].Key, M: fabric.Mem{B: make([]byte, 2000)}}
		byHandle := byKey
		byHandle.H, byHandle.M.B = it[i].H, make([]byte, 2000)
		back = append(back, byKey, byHandle)
	}
	g.Pull(t.Context(), back)
	for i := range back {
		if back[i].Err != nil || back[i].Head.Sum != it[i/2].Head.Sum || back[i].Att != wire.AttestProducer {
			t.Errorf("pull %d: %v, attested by %v", i, back[i].Err, back[i].Att)
		}
	}
	if err := g.Quiesce(t.Context()); err != nil {
		t.Errorf("Quiesce: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Quiesce(over); !errors.Is(err, wire.CodeCancelled) {
		t.Errorf("Quiesce that is given up: %v", err)
	}
	for i, p := range g.Peers() {
		if g.Peer(p.Name) != fabric.Fabric(a.Peer(p.Name)) {
			t.Errorf("peer %d is another one by its name", i)
		}
		if p.Name != fmt.Sprint("p", i) || !p.Listed || p.Err() != nil || p.Via != viaTCP || p.Inc != others[i].cfg.Incarnation {
			t.Errorf("peer %d: %+v", i, p)
		}
	}
	old := wire.RefOf(it[0].H)
	old.Inc++
	if g.Keeps(old.Handle()) {
		t.Error("a copy of another incarnation counts")
	}
}

// A peer on no list is told of beside those of the list.
func TestAGroupTellsOfPeersOnNoList(t *testing.T) {
	_, b, _ := pair(t, "tcp://127.0.0.1:0")
	if p := b.Group().Peer("agent1"); p != nil {
		t.Errorf("it is a fabric by itself: %v", p)
	}
	all := b.Group().Peers()
	if len(all) != 1 || all[0].Listed || all[0].State != StateReady || all[0].Agent != agentID(1) {
		t.Errorf("%+v", all)
	}
}

// A peer is found by what it says of itself, in its incarnation, while it can be
// called; a handle that is made of its reference is one of its own.
func TestAPeerIsFoundByItsAgentAndIncarnation(t *testing.T) {
	a, others, ns := grouped(t, 2)
	g := a.Group()
	peer, handle, err := g.Refer(agentID(3), 21)
	if err != nil || peer != "p1" {
		t.Fatalf("it is %q: %v", peer, err)
	}
	it := pushed(t, ns, 1, 2)
	a.Peer("p1").Push(t.Context(), it)
	if it[0].Err != nil {
		t.Fatal(it[0].Err)
	}
	ref := wire.RefOf(it[0].H)
	if h := handle(ref.Slot, ref.Gen); h != it[0].H {
		t.Errorf("a handle of the same slot and generation is another")
	}
	if peer, _, err := g.Refer(agentID(3), 22); !errors.Is(err, wire.CodeStale) || peer != "p1" {
		t.Errorf("another incarnation: %q, %v", peer, err)
	}
	if peer, _, err := g.Refer(agentID(3), 20); !errors.Is(err, wire.CodeIncarnation) || peer != "p1" {
		t.Errorf("an earlier incarnation: %q, %v", peer, err)
	}
	if peer, _, err := g.Refer(agentID(9), 21); !errors.Is(err, wire.CodeUnreachable) || peer != "" {
		t.Errorf("an unknown agent: %q, %v", peer, err)
	}
	if err := others[1].Close(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return a.Peer("p1").Usable(ns) != nil })
	if peer, _, err := g.Refer(agentID(3), 21); !errors.Is(err, wire.CodeUnreachable) {
		t.Errorf("one that has gone: %q, %v", peer, err)
	}
}
