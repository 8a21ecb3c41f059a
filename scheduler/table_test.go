package scheduler

import (
	"math/rand/v2"
	"testing"
)

// The table agrees with a map through many puts and deletes, with ids chosen to
// collide and the extreme ids among them.
func TestTableAgreesWithMap(t *testing.T) {
	const entries = 64
	r := rand.New(rand.NewPCG(1, 2))
	tab, want := newTable(entries), map[ID]int32{}
	pool := []ID{0, 1, 1<<32 - 1, 1<<32 - 2}
	// Ids of one home cell, and of the last one so that runs wrap around.
	for id := ID(2); len(pool) < 200; id++ {
		if h := tab.home(id); h < 2 || h >= uint32(len(tab.cell))-2 {
			pool = append(pool, id)
		}
	}
	for range 200_000 {
		id := pool[r.IntN(len(pool))]
		if _, ok := want[id]; ok {
			tab.del(id)
			delete(want, id)
		} else if len(want) < entries {
			slot := r.Int32N(1 << 20)
			tab.put(id, slot)
			want[id] = slot
		}
		probe := pool[r.IntN(len(pool))]
		slot, ok := want[probe]
		if !ok {
			slot = -1
		}
		if got := tab.find(probe); got != slot {
			t.Fatalf("find(%d) = %d, want %d", probe, got, slot)
		}
	}
	for _, id := range pool {
		if _, ok := want[id]; ok {
			tab.del(id)
		}
	}
	for i, c := range tab.cell {
		if c != (cell{}) {
			t.Fatalf("cell %d is left over: %+v", i, c)
		}
	}
}

func TestTableIsAtMostHalfFull(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 9, 1023, 1024, 1025, LimitMaxRequests} {
		tab := newTable(n)
		if len(tab.cell) < 2*n || len(tab.cell)&(len(tab.cell)-1) != 0 || uint64(1)<<(32-tab.shift) != uint64(len(tab.cell)) {
			t.Errorf("%d entries: %d cells, shift %d", n, len(tab.cell), tab.shift)
		}
	}
}
