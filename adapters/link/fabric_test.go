package link

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"meridian/adapters/link/internal/memstore"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// Blocks of several namespaces in one batch, in any order: each is asked for in its own.
func TestABatchMayBeOfSeveralNamespaces(t *testing.T) {
	a, b, p := pair(t, "tcp://127.0.0.1:0")
	var ns [2]wire.Namespace
	for i, model := range []string{"one", "another"} {
		m := testManifest("t")
		m.Model = model
		var err error
		if ns[i], err = a.ns.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	in := []wire.Namespace{ns[0], ns[0], ns[1], ns[0], ns[1], ns[1]}
	push, pull := make([]fabric.Item, len(in)), make([]fabric.Item, len(in))
	for i, ns := range in {
		m := payload(t, wire.OutputCritical, randomBody(1000+i))
		push[i] = fabric.Item{NS: ns, Key: key(ns, i), Tier: wire.OutputCritical, M: m}
		pull[i] = fabric.Item{NS: ns, Key: key(ns, i), M: fabric.Mem{B: make([]byte, len(m.B))}}
	}
	p.Push(testContext(t), push)
	p.Find(testContext(t), pull)
	for i := range pull {
		if push[i].Err != nil || pull[i].Err != nil || pull[i].H != push[i].H {
			t.Errorf("item %d: push %v, find %v", i, push[i].Err, pull[i].Err)
		}
		pull[i].H = fabric.Handle{}
	}
	p.Pull(testContext(t), pull)
	for i := range pull {
		if pull[i].Err != nil || !bytes.Equal(pull[i].M.B, push[i].M.B) {
			t.Errorf("item %d: pull %v", i, pull[i].Err)
		}
		if b.store.Lookup(in[i], []wire.Key{pull[i].Key}, make([]blocks.View, 1)) != 1 {
			t.Errorf("item %d is in another namespace at the peer", i)
		}
	}
}

// What is there already has a reference as what was taken has; what is not there says
// nothing of who vouches for it.
func TestABlockThatIsThereAlreadyHasAReference(t *testing.T) {
	a, _, p := pair(t, "tcp://127.0.0.1:0")
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	push := func() fabric.Item {
		it := []fabric.Item{{NS: ns, Key: key0(ns), Tier: wire.OutputCritical, Att: wire.AttestProducer, M: payload(t, wire.OutputCritical, make([]byte, 1000))}}
		p.Push(testContext(t), it)
		return it[0]
	}
	first, again := push(), push()
	if first.Err != nil || !errors.Is(again.Err, wire.CodeExists) || again.H != first.H || again.H == (fabric.Handle{}) {
		t.Errorf("first %v %x, then %v %x", first.Err, first.H, again.Err, again.H)
	}
	absent := []fabric.Item{{NS: ns, Key: key(ns, 1), Att: wire.AttestProducer}}
	p.Find(testContext(t), absent)
	if !errors.Is(absent[0].Err, wire.CodeAbsent) || absent[0].Att != wire.AttestProducer {
		t.Errorf("what is not there: %v, vouched for by %v", absent[0].Err, absent[0].Att)
	}
}

// Close ends the session that this side dialled, and the dialling where there is none.
func TestAClosedPeerHasNoSession(t *testing.T) {
	a, b, p := pair(t, "tcp://127.0.0.1:0")
	a.apply(t, Update{Peers: append(listed("never"), p.cfg)})
	for _, p := range []*Peer{p, a.Peer("never")} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if _, err := p.session(); !errors.Is(err, wire.CodeUnreachable) || !strings.Contains(err.Error(), "is closed") {
			t.Errorf("%s: %v", p.Name(), err)
		}
	}
	until(t, func() bool { return a.Stats().Sessions == 0 && b.Stats().Lanes == 0 })
}

func TestACodeOfThePeerKeepsItsText(t *testing.T) {
	if err := codeError(wire.CodeOK, "nothing"); err != nil {
		t.Errorf("OK is %v", err)
	}
	if err := codeError(wire.CodeFull, ""); err != error(wire.CodeFull) {
		t.Errorf("FULL without text is %v", err)
	}
	if err := codeError(wire.CodeFull, "the reason"); !errors.Is(err, wire.CodeFull) || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("FULL with text is %v", err)
	}
}

// probed is the namespace of a's probes of a tenant.
func probed(tenant string) wire.Namespace {
	m := wire.Manifest{Tenant: tenant, Model: probeModel, Role: probeRole, BlockBytes: probeBytes}
	return m.Namespace()
}

// A probe says by which way a block went and how fast, also where the peer has it from
// another probe, and what the peer said where it took none.
func TestAProbeMeasuresOrSaysWhyNot(t *testing.T) {
	_, b, p := pair(t, "tcp://127.0.0.1:0")
	for range 2 { // this store keeps the block of the first
		via, gbps, err := p.Probe(testContext(t), "b")
		if err != nil || via != viaTCP || gbps <= 1e-8 { // of 1 MiB in a day
			t.Errorf("by %s, %v GB/s, %v", via, gbps, err)
		}
	}
	if got, none := rate(3e9, 2*time.Second), rate(1, 0); got != 1.5 || none != 0 {
		t.Errorf("3 GB in 2 s are %v GB/s, 1 B in no time %v; want 1.5 and 0", got, none)
	}
	if b.store.Lookup(probed("t"), []wire.Key{wire.KeyOf(probed("t"), []byte(probeModel))}, make([]blocks.View, 1)) != 1 {
		t.Error("the block is not in the namespace of probes")
	}
	if _, _, err := p.Probe(testContext(t), "c"); !errors.Is(err, wire.CodeUnreachable) {
		t.Errorf("a probe of another peer: %v", err)
	}
	small := start(t, 3, 30, "tcp://127.0.0.1:0", func(c *Config) { c.Store = memstore.New(agentID(3), 30, probeBytes-1) })
	still := start(t, 4, 40, "", func(c *Config) {
		c.Clock = func() time.Duration { return time.Hour }
		c.Peers = []PeerConfig{{Name: "b", Addr: b.addr}, {Name: "small", Addr: small.addr}}
	})
	ready(t, still.Peer("small"))
	if _, _, err := still.Peer("small").Probe(testContext(t), ""); !errors.Is(err, wire.CodeFull) {
		t.Errorf("a peer without room: %v, want FULL", err)
	}
	ready(t, still.Peer("b"))
	if _, gbps, err := still.Peer("b").Probe(testContext(t), ""); err != nil || gbps != 0 {
		t.Errorf("in no time: %v GB/s, %v; want 0, which is unknown", gbps, err)
	}
}

// A probe is of a tenant that the two sides share already, and not of the first that was
// proved.
func TestAProbeIsOfATenantThatIsOpen(t *testing.T) {
	noLeaks(t)
	both := []string{"a tenant", "t"}
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) { c.Peers = []PeerConfig{{Name: "agent1", Tenants: []string{"t"}}} })
	a := start(t, 1, 10, "", func(c *Config) { c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: both}} })
	p := a.Peer("b")
	ready(t, p)
	s, err := p.session()
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range both { // the peer refuses the first
		ns, err := a.ns.Add(testManifest(tenant))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.open(testContext(t), ns); (err == nil) != (tenant == "t") {
			t.Fatalf("%s: %v", tenant, err)
		}
	}
	if ns, err := p.probeNamespace(s); err != nil || ns != probed("t") {
		t.Errorf("%v; it is of %q: %v", err, both[0], ns == probed(both[0]))
	}
}
