package link

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/adapters/link/internal/memstore"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/blocks/spaces"
	"meridian/wire"
)

// asked is a store that notes how it was asked.
type asked struct {
	*memstore.Store
	reserved  []string
	transient []bool
	aborts    int
	failing   error // what Acquire says
}

func (a *asked) Abort(o blocks.Owner, slots []uint32) {
	a.aborts++
	a.Store.Abort(o, slots)
}

func (a *asked) ReserveTier(o blocks.Owner, ns wire.Namespace, t wire.Tier, size []uint32, ttl time.Duration) ([]blocks.View, error) {
	a.reserved = append(a.reserved, fmt.Sprintf("%x %v %v", ns[:2], t, size))
	return a.Store.ReserveTier(o, ns, t, size, ttl)
}

func (a *asked) Commit(o blocks.Owner, c []blocks.Commit) {
	for i := range c {
		a.transient = append(a.transient, c[i].Transient)
	}
	a.Store.Commit(o, c)
}

func (a *asked) Acquire(o blocks.Owner, v []blocks.View, ttl time.Duration, hold bool) (blocks.Lease, error) {
	if a.failing != nil {
		v[0].Err = wire.CodeStale
		return blocks.Lease{}, a.failing
	}
	return a.Store.Acquire(o, v, ttl, hold)
}

// storeOfSession is a session's view of a store, with two namespaces of blocks and one
// of probes.
func storeOfSession(t *testing.T) (st *asked, s *sessionStore, one, other, probes wire.Namespace) {
	t.Helper()
	st = &asked{Store: memstore.New(agentID(1), 10, 0)}
	reg := spaces.New(func(wire.Namespace, [32]byte) error { return nil })
	var ns [3]wire.Namespace
	for i, role := range []string{"decode", "prefill", probeRole} {
		m := testManifest("t")
		m.Role = role
		var err error
		if ns[i], err = reg.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	s = newSessionStore(st, &sessionNamespaces{n: reg, peer: quota.Holder{Kind: quota.Peer, Name: "p"}}, agentID(1), 10)
	return st, s, ns[0], ns[1], ns[2]
}

func codesOf(b []core.Block) (codes []wire.Code) {
	for i := range b {
		codes = append(codes, b[i].Code)
	}
	return codes
}

// Keys of several namespaces, references and what was refused already stand beside each
// other: each is looked at as what it is.
func TestStatLooksAtEachItemAsWhatItIs(t *testing.T) {
	st, s, one, other, _ := storeOfSession(t)
	add := func(ns wire.Namespace, i int) wire.Ref { return st.Add(ns, key(ns, i), wire.ThinkActive, []byte{1}) }
	r0, r1, r2, r3 := add(one, 0), add(one, 1), add(other, 2), add(one, 3)
	b := []core.Block{
		{NS: one, Key: key(one, 0)},
		{NS: one, Key: key(one, 9), Code: wire.CodeFull},
		{NS: one, Key: key(one, 1)},
		{NS: other, Key: key(other, 2)},
		{NS: one, Key: key(one, 8)},
		{NS: one, Slot: r3.Slot, Gen: r3.Gen},
		{NS: other, Slot: r0.Slot, Gen: r0.Gen}, // of the other namespace
	}
	s.Stat(b)
	if got, want := codesOf(b), []wire.Code{0, wire.CodeFull, 0, 0, wire.CodeAbsent, 0, wire.CodeStale}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for i, r := range map[int]wire.Ref{0: r0, 2: r1, 3: r2, 5: r3} {
		if b[i].Slot != r.Slot || b[i].Gen != r.Gen || b[i].Body != nil {
			t.Errorf("item %d is slot %d, generation %d, want %d and %d; body %v", i, b[i].Slot, b[i].Gen, r.Slot, r.Gen, b[i].Body)
		}
	}
	if _, _, leases, pins := st.Counts(); leases != 0 || pins != 0 {
		t.Errorf("%d leases and %d pins are left", leases, pins)
	}
}

// A store that gives no lease says why for each item that has no reason of its own.
func TestPinOfAStoreThatGivesNone(t *testing.T) {
	st, s, one, _, _ := storeOfSession(t)
	st.failing = fmt.Errorf("closed: %w", wire.CodeDraining)
	b := []core.Block{{NS: one, Key: key(one, 0)}, {NS: one, Key: key(one, 1)}}
	if l := s.Pin(b, time.Second); l != (core.Lease{}) {
		t.Errorf("a lease %x", l)
	}
	if got, want := codesOf(b), []wire.Code{wire.CodeStale, wire.CodeDraining}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Room is asked for in runs of one namespace and one tier; what is there already, or was
// refused, needs none.
func TestReserveAsksByNamespaceAndTier(t *testing.T) {
	st, s, one, other, _ := storeOfSession(t)
	known := st.Add(one, key(one, 9), wire.ThinkActive, []byte{1})
	block := func(ns wire.Namespace, tier wire.Tier, i int, code wire.Code) core.Block {
		return core.Block{NS: ns, Tier: tier, Key: key(ns, i), Code: code, Head: wire.Header{BodyLen: uint32(10 + i)}}
	}
	b := []core.Block{
		block(one, wire.ThinkActive, 0, wire.CodeOK),
		block(one, wire.ThinkActive, 9, wire.CodeOK),
		block(one, wire.ThinkActive, 9, wire.CodeTooLarge),
		block(one, wire.ThinkActive, 1, wire.CodeOK),
		block(one, wire.OutputCritical, 2, wire.CodeOK),
		block(other, wire.OutputCritical, 3, wire.CodeOK),
	}
	s.Reserve(b, time.Minute)
	want := []string{
		fmt.Sprintf("%x %v [10 11]", one[:2], wire.ThinkActive),
		fmt.Sprintf("%x %v [12]", one[:2], wire.OutputCritical),
		fmt.Sprintf("%x %v [13]", other[:2], wire.OutputCritical),
	}
	if !slices.Equal(st.reserved, want) {
		t.Errorf("the store was asked for %q, want %q", st.reserved, want)
	}
	if got, want := codesOf(b), []wire.Code{0, wire.CodeExists, wire.CodeTooLarge, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if b[1].Slot != known.Slot || b[1].Gen != known.Gen || b[2].Slot != 0 {
		t.Errorf("what is there: slot %d, generation %d; what was refused: slot %d", b[1].Slot, b[1].Gen, b[2].Slot)
	}
	for _, i := range []int{0, 3, 4, 5} {
		if len(b[i].Body) != int(b[i].Head.BodyLen) {
			t.Errorf("item %d has room for %d bytes", i, len(b[i].Body))
		}
	}
	s.Abort(b)
	s.Abort(b[1:3]) // nothing that has room: the store is not asked
	if _, reserved, _, _ := st.Counts(); reserved != 0 || st.aborts != 1 {
		t.Errorf("%d reservations are left after %d aborts", reserved, st.aborts)
	}
}

// Each block is committed as what its namespace is for; one that came meanwhile has the
// reference of the one that is there.
func TestPublishCommitsAndFindsReferences(t *testing.T) {
	st, s, one, other, probes := storeOfSession(t)
	var b []core.Block
	for _, ns := range []wire.Namespace{one, one, probes, probes, other} {
		b = append(b, core.Block{NS: ns, Tier: wire.ThinkActive, Key: key(ns, len(b)), Head: wire.Header{BodyLen: 10}})
	}
	b = append(b, b[0]) // reserved before the first was published
	for i := range b {
		s.Reserve(b[i:i+1], time.Minute)
	}
	b = slices.Insert(b, 1, core.Block{NS: one, Code: wire.CodeChecksum})
	s.Publish(b)
	if want := []bool{false, false, true, true, false, false}; !slices.Equal(st.transient, want) {
		t.Errorf("transient: %v, want %v", st.transient, want)
	}
	if got, want := codesOf(b), []wire.Code{0, wire.CodeChecksum, 0, 0, 0, 0, wire.CodeExists}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for i := range b {
		if b[i].Code == wire.CodeChecksum {
			continue
		}
		v := make([]blocks.View, 1)
		if st.Lookup(b[i].NS, []wire.Key{b[i].Key}, v); v[0].Ref.Slot != b[i].Slot || v[0].Ref.Gen != b[i].Gen {
			t.Errorf("item %d: slot %d, generation %d; the store has it at %d, %d", i, b[i].Slot, b[i].Gen, v[0].Ref.Slot, v[0].Ref.Gen)
		}
	}
	if b[6].Slot != b[0].Slot {
		t.Errorf("the block that came second is slot %d, the first is %d", b[6].Slot, b[0].Slot)
	}
}
