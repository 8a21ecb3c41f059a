//go:build invariants

package blocks

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"meridian/internal/invariants"
	"meridian/internal/testbed"
	"meridian/wire"
)

func allCC(b []byte) bool { return bytes.Count(b, []byte{0xCC}) == len(b) }

func TestAReleasedSlotIsOverwrittenAndAReferencedOneIsNot(t *testing.T) {
	r := newRig(t, nil)
	body := bodyOf(keyOf("a"), 5000)
	v := r.put("a", body)
	held, l := r.acquire("a", time.Hour, false)
	p := r.Payload(held)
	r.Discard(r.ns, []wire.Key{keyOf("a")})
	checkPayload(t, p, body)
	quiet := r.Loose([]uint32{v.Ref.Slot})
	r.Release(r.o, l)
	checkPayload(t, p, body)
	quiet()
	if !allCC(p) {
		t.Fatal("the slot was freed and still has its bytes")
	}
}

func TestAnEvictedSlotIsOverwrittenBeforeItsNextOwnerHasIt(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Capacity, c.ExtentBytes = 256<<10, 256<<10 })
	v := r.put("a", bodyOf(keyOf("a"), 200<<10))
	next, err := r.Reserve(r.o, r.ns, []uint32{200 << 10}, time.Minute)
	if err != nil || next[0].Ref.Slot != v.Ref.Slot {
		t.Fatalf("%+v, %v", next, err)
	}
	if room := r.Room(next[0]); !allCC(room[:4000]) {
		t.Fatal("the next owner reads the block before it")
	}
	r.Abort(r.o, []uint32{next[0].Ref.Slot})
}

func TestAWriteIntoAReleasedSlotIsFound(t *testing.T) {
	r := newRig(t, nil)
	size := []uint32{5000}
	v, err := r.Reserve(r.o, r.ns, size, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	room := r.Room(v[0])
	r.Abort(r.o, []uint32{v[0].Ref.Slot})
	room[100] = 7
	what := testbed.Panic(t, func() { _, _ = r.Reserve(r.o, r.ns, size, time.Minute) })
	if !strings.Contains(what, "was written after the release") {
		t.Fatal(what)
	}
	// The panic left the store locked, which no panic of the daemon's survives.
	r.mu.Unlock()
}

func TestASecondReleaseOfASlotNamesTheFirst(t *testing.T) {
	r := newRig(t, nil)
	v := r.put("a", bodyOf(keyOf("a"), 5000))
	r.Discard(r.ns, []wire.Key{keyOf("a")})
	id := v.Ref.Slot
	what := testbed.Panic(t, func() { r.core.release(id, r.core.slot(id)) })
	if !strings.Contains(what, "released twice") || !strings.Contains(what, "blocks.(*Core).Discard") {
		t.Fatal(what)
	}
}

func TestALeaseThatOutlivesItsStoreIsNamedByWhoAcquiredIt(t *testing.T) {
	r := newRig(t, nil)
	r.put("a", bodyOf(keyOf("a"), 5000))
	r.acquire("a", time.Hour, false)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	left := invariants.TakeLeft()
	if len(left) != 1 || !strings.Contains(left[0], "a lease on 1 blocks, made by") || !strings.Contains(left[0], "blocks.(*rig).acquire") {
		t.Fatalf("%q", left)
	}
}
