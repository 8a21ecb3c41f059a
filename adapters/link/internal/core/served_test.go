package core

import (
	"slices"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// The store is told of a block that went out to its end, once, while it is pinned; not of
// one that is not there, of a lease alone, of a pull that was given up, or whose
// session ended.
func TestStoreIsToldOfBlocksThatWereServed(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 600_000, "x", "y")
	h := r.store[1]

	wantCodes(t, ran(r, r.pull(0, 0, num, 600_000, "x", "absent", "y")), wire.CodeOK, wire.CodeAbsent, wire.CodeOK)
	if want := []wire.Key{r.key("x"), r.key("y")}; !slices.Equal(h.pulled, want) {
		t.Fatalf("the store was told of %v, want %v", h.pulled, want)
	}

	h.pulled = nil
	lease := &Call{Type: proto.TypePull, Timeout: time.Second, LeaseFor: time.Second, Items: []Item{{NS: num, Flags: proto.WantKeepLease, Key: r.key("x")}}}
	r.end[0].Start(r.now, lease)
	ran(r, lease)
	short := r.pull(0, 0, num, 1000, "x")
	ran(r, short)
	wantCodes(t, short, wire.CodeTooLarge)
	if len(h.pulled) > 0 {
		t.Errorf("the store was told of %v, of which nothing was sent", h.pulled)
	}

	for _, end := range []string{"cancelled", "lost"} {
		c := r.pull(0, 0, num, 600_000, "x")
		r.move(0, 1, 1<<20)
		r.move(1, 1, 100_000) // TABLE, and the beginning of DATA
		if end == "cancelled" {
			r.end[0].Cancel(r.now, c, wire.CodeCancelled)
		} else {
			r.lose(1)
		}
		r.run()
		if len(h.pulled) > 0 {
			t.Errorf("a pull that is %s: the store was told of %v", end, h.pulled)
		}
	}
	if len(h.faults) > 0 {
		t.Error(h.faults)
	}
}

func ran(r *rig, c *Call) *Call {
	r.run()
	return c
}
