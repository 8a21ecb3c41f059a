package blocks

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks/quota"
	"meridian/wire"
)

// ring makes a staging ring and closes its descriptor.
func (r *rig) ring(o Owner, n, least int) (int, error) {
	fd, b, err := r.StagingUpTo(o, n, least)
	if err == nil {
		_ = unix.Close(fd)
	}
	return len(b), err
}

// total is all that the store has allocated.
func (r *rig) total() uint64 {
	st := r.Stats()
	return st.SegmentBytes + st.StagingBytes
}

// Rings and segments together stay within the capacity, no matter which comes first.
func TestRingsArePartOfTheCapacity(t *testing.T) {
	const capacity = 4 << 20
	r := newRig(t, func(c *Config) { c.StagingBytes = capacity / 2 })
	for i := range 40 { // fills the arena with idle blocks
		r.put(string('a'+rune(i)), bodyOf(keyOf("x"), 100_000))
	}
	limit := uint64(capacity) * 65 / 64 // the room for heads in front of power-of-two bodies is not counted
	var owners []Owner
	var sizes []int
	for {
		o := r.NewOwner(0)
		n, err := r.ring(o, 1<<20, 128<<10)
		if err != nil {
			var q *quota.Error
			if !errors.As(err, &q) || !errors.Is(err, wire.CodeBusy) || q.Rule != stagingRule || q.Limit != capacity/2 {
				t.Fatalf("the refusal: %v", err)
			}
			break
		}
		owners, sizes = append(owners, o), append(sizes, n)
		if got := r.total(); got > limit {
			t.Fatalf("with %d rings the store has %d bytes, the capacity is %d", len(owners), got, capacity)
		}
	}
	// Half of what is left each time, down to the least.
	for i, want := range []int{1 << 20, 512 << 10, 256 << 10, 128 << 10, 128 << 10} {
		if i >= len(sizes) || sizes[i] != want {
			t.Fatalf("rings of %v bytes", sizes)
		}
	}
	for i := range 40 {
		r.put(string('A'+rune(i)), bodyOf(keyOf("x"), 100_000))
		if got := r.total(); got > limit {
			t.Fatalf("the arena grew to %d bytes beside the rings", got)
		}
	}
	for _, o := range owners {
		r.Drop(o)
	}
	if n, err := r.ring(r.NewOwner(0), 1<<20, 1<<20); err != nil || n != 1<<20 {
		t.Errorf("after the engines left: %d, %v", n, err)
	}
	r.check()
}

// A ring evicts nothing that somebody holds, and a refusal evicts nothing at all.
func TestARingEvictsNoBlockThatIsHeld(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StagingBytes = 2 << 20 })
	var held []Lease
	for i := range 30 {
		name := string('a' + rune(i))
		r.put(name, bodyOf(keyOf("x"), 100_000))
		_, l := r.acquire(name, time.Hour, false)
		held = append(held, l)
	}
	before := r.Stats()
	if _, err := r.ring(r.NewOwner(0), 1<<20, 1<<20); !errors.Is(err, wire.CodeBusy) {
		t.Errorf("a ring in a full arena of held blocks: %v", err)
	}
	if st := r.Stats(); st.Evictions != before.Evictions || st.Blocks != before.Blocks || st.SegmentBytes != before.SegmentBytes {
		t.Errorf("the refusal changed the arena: %+v", st)
	}
	for _, l := range held {
		r.Release(r.o, l)
	}
	if _, err := r.ring(r.NewOwner(0), 1<<20, 1<<20); err != nil {
		t.Errorf("with idle blocks: %v", err)
	}
	r.check()
}

// What is kept ahead is there for the first ring: it evicts nothing.
func TestTheFirstRingEvictsNothing(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StagingBytes, c.StagingAhead = 2<<20, 1<<20 })
	for i := range 40 {
		r.put(string('a'+rune(i)), bodyOf(keyOf("x"), 100_000))
	}
	before := r.Stats().Evictions
	if n, err := r.ring(r.NewOwner(0), 1<<20, 1<<20); err != nil || n != 1<<20 {
		t.Fatalf("%d, %v", n, err)
	}
	if st := r.Stats(); st.Evictions != before {
		t.Errorf("evictions %v, before %v", st.Evictions, before)
	}
}
