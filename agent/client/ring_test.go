package client

import (
	"math/rand/v2"
	"testing"
)

// Whatever the order in which pieces are freed, and whenever the ring grows, two in
// use never overlap, and an empty ring has room for all of itself.
func TestPiecesOfTheRingNeverOverlap(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var r ring
		r.init()
		memory := make([]byte, 16384)
		size := 4096
		r.set(memory[:size])
		type used struct{ off, n, id uint64 }
		var live []used
		for range 2000 {
			if len(live) > 0 && rnd.IntN(2) == 0 {
				i := rnd.IntN(len(live))
				r.release(live[i].id)
				live = append(live[:i], live[i+1:]...)
				continue
			}
			if rnd.IntN(500) == 0 && size < len(memory) {
				size += 4096
				r.set(memory[:size])
			}
			n := 1 + rnd.IntN(1500)
			b, off, id, ok, _ := r.take(n)
			if !ok {
				continue
			}
			if len(b) != n || cap(b) != n || off%ringAlign != 0 || off+uint64(n) > uint64(size) {
				t.Fatalf("seed %d: piece of %d at %d of a ring of %d", seed, n, off, size)
			}
			for _, u := range live {
				if off < u.off+u.n && u.off < off+uint64(n) {
					t.Fatalf("seed %d: %d+%d overlaps %d+%d", seed, off, n, u.off, u.n)
				}
			}
			live = append(live, used{off, uint64(n), id})
		}
		for _, u := range live {
			r.release(u.id)
		}
		if _, _, _, ok, _ := r.take(size); !ok {
			t.Fatalf("seed %d: an empty ring has no room for its own size", seed)
		}
	}
}

func TestRingWakesWhoWaits(t *testing.T) {
	var r ring
	r.init()
	r.set(make([]byte, 128))
	_, _, id, ok, _ := r.take(128)
	if !ok {
		t.Fatal("no room in an empty ring")
	}
	_, _, _, ok, wake := r.take(1)
	if ok {
		t.Fatal("room in a full ring")
	}
	r.release(id)
	<-wake
	if _, _, _, ok, _ = r.take(1); !ok {
		t.Fatal("no room after the release")
	}
}
