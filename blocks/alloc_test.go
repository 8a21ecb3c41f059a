package blocks

import (
	"testing"
	"time"

	"meridian/wire"
)

// allocs fails if f allocates more than max times a run once it is warm.
func allocs(t *testing.T, what string, most float64, f func()) {
	t.Helper()
	for range 64 {
		f()
	}
	if n := testing.AllocsPerRun(200, f); n > most {
		t.Errorf("%s: %v allocations, at most %v", what, n, most)
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	c, o, ns := fullCore(t, 4000)
	keys := make([]wire.Key, 300)
	for i := range keys {
		keys[i] = benchKey(uint64(i))
	}
	views := make([]View, len(keys))
	allocs(t, "Lookup", 0, func() { c.Lookup(ns, keys, views) })
	allocs(t, "Touch", 0, func() { c.Touch(ns, keys) })
	allocs(t, "Retier", 0, func() { c.Retier(ns, keys, wire.OutputCritical) })
	allocs(t, "Acquire, Renew, Release", 0, func() {
		for i := range views[:16] {
			views[i] = View{NS: ns, Key: keys[i]}
		}
		l, err := c.Acquire(0, o, views[:16], time.Second, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Renew(0, o, l, time.Minute); err != nil {
			t.Fatal(err)
		}
		c.Release(o, l)
	})
	h := newChurn(c, o, ns, 16)
	next := uint64(1 << 40)
	allocs(t, "Reserve with eviction, Commit", 0, func() {
		for i := range h.keys {
			h.keys[i] = benchKey(next)
			next++
		}
		if err := h.turn(len(h.keys)); err != nil {
			t.Fatal(err)
		}
	})
	var r Ready
	allocs(t, "Step", 0, func() { c.Step(0, Input{}, &r) })
}

func TestStoreAllocatesOnlyTheViewsOfReserve(t *testing.T) {
	r := newRig(t, nil)
	body := bodyOf(keyOf("a"), 4096)
	sizes := []uint32{4096}
	next := uint64(0)
	var k Commit
	allocs(t, "Reserve and Ingest", 1, func() {
		v, err := r.Reserve(r.o, r.ns, sizes, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		next++
		k = Commit{Slot: v[0].Ref.Slot, Key: benchKey(next), Tier: wire.ThinkActive}
		if err := r.Ingest(r.o, body, &k); err != nil {
			t.Fatal(err)
		}
	})
	views := make([]View, 1)
	allocs(t, "Acquire, Payload, Release", 0, func() {
		views[0] = View{NS: r.ns, Key: benchKey(next)}
		l, err := r.Acquire(r.o, views, time.Minute, false)
		if err != nil || r.Payload(views[0]) == nil {
			t.Fatal(err, views[0].Err)
		}
		r.Release(r.o, l)
	})
}
