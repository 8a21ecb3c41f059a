package blocks

import (
	"container/list"
	"math/rand/v2"
	"testing"
	"time"

	"meridian/wire"
)

// chains is a synthetic trace: conversations that grow turn by turn and come
// back with a bias to the recent, some of them starting with a shared prompt.
// Each request is its whole chain of block ids, front to back.
func chains(seed uint64, requests int) [][]uint64 {
	r := rand.New(rand.NewPCG(seed, 7))
	var talks [][]uint64
	next := uint64(1000)
	var out [][]uint64
	for range requests {
		i := len(talks) - 1 - min(int(r.ExpFloat64()*12), len(talks)-1)
		if len(talks) == 0 || r.IntN(4) == 0 {
			var start []uint64
			for b := range r.Uint64N(6) {
				start = append(start, r.Uint64N(4)*100+b)
			}
			talks, i = append(talks, start), len(talks)
		}
		for range 1 + r.IntN(8) {
			next++
			talks[i] = append(talks[i], next)
		}
		out = append(out, append([]uint64(nil), talks[i]...))
	}
	return out
}

// naiveLRU replays a trace with a list and a map: touch what is there, insert
// what is not, front to back. It returns the leading hits and all keys.
func naiveLRU(trace [][]uint64, capacity int) (hits, keys int) {
	order, at := list.New(), map[uint64]*list.Element{}
	for _, chain := range trace {
		for _, id := range chain {
			if at[id] == nil {
				break
			}
			hits++
		}
		keys += len(chain)
		for _, id := range chain {
			if e := at[id]; e != nil {
				order.MoveToBack(e)
				continue
			}
			if order.Len() >= capacity {
				delete(at, order.Remove(order.Front()).(uint64))
			}
			at[id] = order.PushBack(id)
		}
	}
	return hits, keys
}

// coreLRU replays it with the core: look the chain up, touch, allocate, commit.
func coreLRU(t *testing.T, trace [][]uint64, slots int) (hits int) {
	const body = 1000
	g := testGeometry(t, 8192, 8192)
	_, room := g.class(body)
	per := int(g.pitch / stride(room))
	if slots%per != 0 {
		t.Fatalf("%d slots are not whole extents of %d", slots, per)
	}
	c := testCore(t, CoreConfig{Capacity: uint64(slots/per) * 8192, ExtentBytes: 8192})
	o := c.NewOwner(false)
	for _, chain := range trace {
		keys := make([]wire.Key, len(chain))
		for i, id := range chain {
			keys[i] = benchKey(id)
		}
		hits += c.Lookup(nsOf("n"), keys, nil)
		for i := range keys {
			if c.Touch(nsOf("n"), keys[i:i+1]) == 1 {
				continue
			}
			v := mustReserve(t, c, o, body)
			k := []Commit{{Slot: v.Ref.Slot, Key: keys[i], Tier: wire.OutputCritical, Len: body}}
			if c.Commit(0, o, k); k[0].Err != nil {
				t.Fatal(k[0].Err)
			}
		}
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	return hits
}

// naiveSegmented replays a trace with two lists: what was used again after it came is
// kept, as long as no more than a quarter is.
func naiveSegmented(trace [][]uint64, capacity int) (hits int) {
	type entry struct {
		id, use uint64
		in      *list.List
	}
	fresh, kept, at, clock := list.New(), list.New(), map[uint64]*list.Element{}, uint64(0)
	for _, chain := range trace {
		for _, id := range chain {
			if at[id] == nil {
				break
			}
			hits++
		}
		for _, id := range chain {
			clock++
			if e := at[id]; e != nil {
				e.Value.(*entry).in.Remove(e)
				at[id] = kept.PushBack(&entry{id, clock, kept})
				continue
			}
			if len(at) >= capacity {
				from := fresh
				if fresh.Len() == 0 || 4*kept.Len() > len(at) && kept.Front().Value.(*entry).use < fresh.Front().Value.(*entry).use {
					from = kept
				}
				delete(at, from.Remove(from.Front()).(*entry).id)
			}
			at[id] = fresh.PushBack(&entry{id, clock, fresh})
		}
	}
	return hits
}

// One tier, one size: the store is a segmented LRU, to the block, at every capacity, and
// no worse than a plain one.
func TestOneTierIsSegmentedLRU(t *testing.T) {
	trace := chains(1, 1500)
	last := -1
	for _, slots := range []int{8, 64, 256, 1024, 8192} {
		want := naiveSegmented(trace, slots)
		plain, keys := naiveLRU(trace, slots)
		got := coreLRU(t, trace, slots)
		if got != want || got < plain {
			t.Errorf("%d slots: %d hits of %d keys, want %d, a plain LRU has %d", slots, got, keys, want, plain)
		}
		if got < last {
			t.Errorf("%d slots hit less than fewer", slots)
		}
		last = got
	}
	if ideal, _ := naiveLRU(trace, 1<<30); last != ideal || ideal == 0 {
		t.Errorf("with room for all: %d hits, ideal %d", last, ideal)
	}
}

// A chain whose hits are acquired first keeps them, however tight the room for
// its rest is; what it releases goes from its end.
func TestARequestDoesNotEvictItsOwnHits(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 8192, ExtentBytes: 8192})
	o := c.NewOwner(false)
	keys := make([]wire.Key, 8)
	for i := range keys {
		keys[i] = benchKey(uint64(i))
		v := mustReserve(t, c, o, 1000)
		k := []Commit{{Slot: v.Ref.Slot, Key: keys[i], Tier: wire.OutputCritical, Len: 1000}}
		if c.Commit(0, o, k); k[0].Err != nil {
			t.Fatal(k[0].Err)
		}
	}
	views := make([]View, 4)
	for i := range views {
		views[i] = View{NS: nsOf("n"), Key: keys[i]}
	}
	l, err := c.Acquire(0, o, views, time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		mustReserve(t, c, o, 1000)
	}
	if n := c.Lookup(nsOf("n"), keys, nil); n != 4 {
		t.Fatalf("%d leading hits left of 4 acquired", n)
	}
	c.Release(o, l)
	mustReserve(t, c, o, 1000)
	if n := c.Lookup(nsOf("n"), keys, nil); n != 3 {
		t.Fatalf("%d leading hits after one eviction, want 3: the end goes first", n)
	}
}
