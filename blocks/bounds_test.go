package blocks

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"meridian/wire"
)

// fillCore publishes n blocks of 1000 bytes under benchKey(0), benchKey(1), ...
func fillCore(t *testing.T, c *Core, o Owner, n int, tier wire.Tier) {
	t.Helper()
	for i := range n {
		v := mustReserve(t, c, o, 1000)
		k := []Commit{{Slot: v.Ref.Slot, Key: benchKey(uint64(i)), Tier: tier, Len: 1000}}
		if c.Commit(0, o, k); k[0].Err != nil {
			t.Fatal(k[0].Err)
		}
		c.Gens()
	}
}

// No list grows without bound between two Steps (I7): what does not fit is
// counted all the same.
func TestEventsBetweenStepsAreBounded(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 8192, ExtentBytes: 8192})
	o := c.NewOwner(false)
	const n = MaxEvents + 100
	fillCore(t, c, o, n+8, wire.ThinkComplete)
	var r Ready
	c.Step(0, Input{}, &r)
	if st := c.Stats(); len(r.Evicted) != MaxEvents || st.Evictions[wire.ThinkComplete] != n {
		t.Fatalf("%d events, %d counted", len(r.Evicted), st.Evictions[wire.ThinkComplete])
	}
	c.Step(0, Input{}, &r)
	if len(r.Evicted) != 0 {
		t.Fatalf("%d events twice", len(r.Evicted))
	}
}

func TestLeasesOfAnOwnerAreBounded(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 8192, ExtentBytes: 8192})
	o := c.NewOwner(false)
	fillCore(t, c, o, 1, wire.OutputCritical)
	v := []View{{}}
	var err error
	for range MaxLeases + 1 {
		v[0] = View{NS: nsOf("n"), Key: benchKey(0)}
		if _, err = c.Acquire(0, o, v, time.Second, false); err != nil {
			break
		}
	}
	var e *LimitError
	if !errors.As(err, &e) || e.Code != wire.CodeBusy || e.Got != MaxLeases+1 || e.Limit != MaxLeases {
		t.Fatalf("one lease too many: %v", err)
	}
	if st := c.Stats(); st.Leases != MaxLeases {
		t.Fatalf("%d leases", st.Leases)
	}
	// All lapse at once, beyond what one Step reports, and each exactly once.
	var r Ready
	c.Step(time.Second, Input{}, &r)
	if st := c.Stats(); st.Leases != 0 || st.LeasesLapsed != MaxLeases || len(r.Lapsed) != MaxEvents || st.Leaked != 0 {
		t.Fatalf("%d reported, stats %+v", len(r.Lapsed), st)
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
}

// Leases of many blocks are bounded by these, and leave no memory behind: one that is
// taken out of its lease counts no more.
func TestBlocksThatAnOwnerLeasesAreBounded(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 8192, ExtentBytes: 8192})
	o := c.NewOwner(false)
	fillCore(t, c, o, 1, wire.OutputCritical)
	v := make([]View, 1<<14)
	for i := range v {
		v[i] = View{NS: nsOf("n"), Key: benchKey(0)}
	}
	var lease Lease
	for range MaxLeased / len(v) {
		var err error
		if lease, err = c.Acquire(0, o, v, time.Second, false); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Acquire(0, o, v[:1], time.Second, false)
	var e *LimitError
	if !errors.As(err, &e) || e.Code != wire.CodeBusy || e.Got != MaxLeased+1 || e.Limit != MaxLeased {
		t.Fatalf("one block too many: %v", err)
	}
	c.refuse(o, lease, v[0].Ref.Slot)
	if _, err := c.Acquire(0, o, v[:1], time.Second, false); err != nil {
		t.Fatalf("where one was taken out: %v", err)
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	other := c.NewOwner(false)
	if _, err := c.Acquire(0, other, v[:1], time.Second, false); err != nil {
		t.Fatalf("another owner: %v", err)
	}
	c.Step(time.Second, Input{}, &Ready{})
	kept := 0
	for i := range c.leases.all {
		kept += cap(c.leases.all[i].slots)
	}
	if kept > keptSlots*len(c.leases.all) {
		t.Errorf("%d records of ended leases keep room for %d blocks", len(c.leases.all), kept)
	}
	if _, err := c.Acquire(time.Second, o, v, time.Second, false); err != nil {
		t.Errorf("after all lapsed: %v", err)
	}
}

// A label too many means a copy that is not remembered: the block stays.
func TestFabricLabelsAreBounded(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 512 << 10, ExtentBytes: 64 << 10, RemoteBlocks: 1000})
	o := c.NewOwner(false)
	fillCore(t, c, o, maxFabrics+1, wire.ThinkComplete)
	for i := range uint64(maxFabrics + 1) {
		v, err := c.Stat(benchKey(i))
		if err != nil {
			t.Fatal(err)
		}
		c.Moved([]Moved{{Slot: v.Ref.Slot, Loc: Loc{Fabric: fmt.Sprint(i), H: [32]byte{1}}}})
	}
	st := c.Stats()
	if st.Offloaded != maxFabrics || st.CopyFailed != 1 || st.Remote != maxFabrics || st.Blocks[wire.ThinkComplete] != 1 {
		t.Fatalf("stats %+v", st)
	}
}

func TestCheckRefusesWhatReserveNeverGrants(t *testing.T) {
	r := newRig(t, nil)
	if err := r.Check(r.o, r.ns, []uint32{0, 4096, 256 << 10}); err != nil {
		t.Error(err)
	}
	gone := r.NewOwner(0)
	r.Drop(gone)
	wantCode(t, "an owner that is gone", r.Check(gone, r.ns, []uint32{1}), wire.CodeInvalid)
	wantCode(t, "a namespace that is not open", r.Check(r.o, nsOf("other"), []uint32{1}), wire.CodeNSUnknown)
	wantCode(t, "a body above every slot", r.Check(r.o, r.ns, []uint32{1, 256<<10 + 1}), wire.CodeTooLarge)
	if st := r.Stats(); st.Reserved != 0 || st.Segments != 0 {
		t.Errorf("Check took something: %+v", st)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a closed store", r.Check(r.o, r.ns, nil), wire.CodeDraining)
}
