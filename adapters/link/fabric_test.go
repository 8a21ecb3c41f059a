package link

import (
	"bytes"
	"errors"
	"strings"
	"testing"

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
