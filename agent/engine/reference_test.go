package engine_test

import (
	"testing"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// A reference names a block of its namespace with its key or with a zero key, for
// ACQUIRE and HAS alike; anything else about it that does not fit is STALE.
func TestAReferenceIsTakenWithItsKeyOrWithNone(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	put(t, e, client.Block{NS: ns, Key: keyOf("b"), Body: body(2, 100)})
	r, _ := n.opened(t, "acme")
	m := manifest("acme")
	m.Revision = "r2"
	r.write(message(link.TypeOpen, 3, link.Open{Manifest: m.Append(nil)}))
	for f := r.next(); f.f.Type != link.TypeEnd; f = r.next() {
	}
	a := r.acquire(5, []link.Want{{Key: keyOf("a")}})[0]
	want := func(ns uint16, slot, gen uint32, key wire.Key) link.Want {
		return link.Want{NS: ns, Slot: slot, Gen: gen, Key: key}
	}
	items := []link.Want{
		want(0, a.Slot, a.Gen, wire.Key{}),
		want(0, a.Slot, a.Gen, keyOf("a")),
		want(0, a.Slot, a.Gen, keyOf("b")),
		want(0, a.Slot, a.Gen+2, wire.Key{}),
		want(0, a.Slot+1000, a.Gen, keyOf("a")),
		want(1, a.Slot, a.Gen, keyOf("a")),
		want(9, a.Slot, a.Gen, keyOf("a")),
		want(0, a.Slot, 0, keyOf("b")), // generation 0: the key alone counts
		want(0, a.Slot, 0, wire.Key{}),
	}
	wants := []wire.Code{wire.CodeOK, wire.CodeOK, wire.CodeStale, wire.CodeStale, wire.CodeStale, wire.CodeStale, wire.CodeNSUnknown, wire.CodeOK, wire.CodeAbsent}
	for i, p := range r.acquire(7, items) {
		if p.Status != wants[i] || i < 2 && (p.Slot != a.Slot || p.Gen != a.Gen || p.Off != a.Off) {
			t.Errorf("ACQUIRE %d: %s, slot %d generation %d; want %s", i, p.Status, p.Slot, p.Gen, wants[i])
		}
	}
	r.write(message(link.TypeHas, 9, link.Has{DeadlineMS: 1000, Items: items}))
	tab, err := link.Parse[link.Table](r.next().p)
	if err != nil {
		t.Fatal(err)
	}
	r.end(r.next(), 9)
	for i, h := range tab.Items {
		if h.Status != wants[i] || i < 2 && (h.Slot != a.Slot || h.Gen != a.Gen) {
			t.Errorf("HAS %d: %s, slot %d generation %d; want %s", i, h.Status, h.Slot, h.Gen, wants[i])
		}
	}
	if got := n.store.Stats().Leases; got != 2 {
		t.Errorf("%d leases, want those of the two ACQUIREs", got)
	}
}

// A stale reference is not fetched: its key may name another block by now.
func TestAStaleReferenceIsNotFetched(t *testing.T) {
	n := startNode(t, nil)
	n.host.mu.Lock()
	n.host.remote[keyOf("far")] = body(3, 100)
	n.host.mu.Unlock()
	r, _ := n.opened(t, "acme")
	p := r.acquire(3, []link.Want{
		{Flags: link.WantFetch, Slot: 1, Gen: 2, Key: keyOf("far")},
		{Flags: link.WantFetch, Key: keyOf("far")},
	})
	if p[0].Status != wire.CodeStale || p[1].Status != wire.CodeOK {
		t.Errorf("%s and %s, want STALE and OK", p[0].Status, p[1].Status)
	}
}

// An engine that does not like what it read says so in ERROR, like any side of a
// lane: the session ends without an answer.
func TestAnEngineMayEndItsLaneWithError(t *testing.T) {
	n := startNode(t, nil)
	r := n.greeted(t)
	r.write(link.AppendMessage(nil, link.Frame{Type: link.TypeError, Flags: link.FlagCritical}, link.Error{Code: wire.CodeCRC, Text: "what is this"}))
	if f, err := r.read(); err == nil {
		t.Errorf("%s came, want the end alone", f.f.Type)
	}
	n.wait(1)
	if got := n.srv.Stats().Refused; got != 0 {
		t.Errorf("%d sessions refused, want none", got)
	}
}

// acquire sends one ACQUIRE and returns its places.
func (r *raw) acquire(req uint64, items []link.Want) []link.Place {
	r.t.Helper()
	r.write(message(link.TypeAcquire, req, link.Acquire{DeadlineMS: 5000, LeaseMS: 5000, Items: items}))
	f := r.next()
	for f.f.Type == link.TypeMap {
		f = r.next()
	}
	a, err := link.Parse[link.Acquired](f.p)
	if err != nil || f.f.Req != req {
		r.t.Fatalf("%s of request %d: %v", f.f.Type, f.f.Req, err)
	}
	r.end(r.next(), req)
	return a.Items
}
