package blocks

import (
	"errors"
	"testing"
	"time"

	"meridian/blocks/quota"
	"meridian/wire"
)

// Bytes of slots that are not blocks count with the room of their class, whether
// they are reserved or written, late or doomed; so do those of segments.
func TestBytesAreCountedByState(t *testing.T) {
	y := newYard(t, 2)
	y.put(small, "a")
	v, err := y.Reserve(0, y.o, y.ns, wire.OutputCritical, []uint32{small, small, large}, time.Second, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := Commit{Slot: v[0].Ref.Slot, Key: keyOf("b"), Len: small}
	if err := y.Begin(0, y.o, &k); err != nil {
		t.Fatal(err)
	}
	each, more := stride(1024), stride(2048)
	if st := y.Stats(); st.Reserved != 3 || st.ReservedBytes != 2*each+more || st.QuarantinedBytes != 0 || st.Used != 3*each+more {
		t.Errorf("while one is written: %d reserved, %d bytes, %d used", st.Reserved, st.ReservedBytes, st.Used)
	}
	if !y.Room(v[2]) {
		t.Fatal("no room")
	}
	y.hold("a")
	y.Discard(y.ns, []wire.Key{keyOf("a")})
	var r Ready
	y.Step(time.Second, Input{}, &r)
	st := y.Stats()
	if st.Reserved != 1 || st.ReservedBytes != each || st.Quarantined != 2 || st.QuarantinedBytes != each+more {
		t.Errorf("after the deadline: %d reserved, %d bytes, %d of %d bytes out of use", st.Reserved, st.ReservedBytes, st.Quarantined, st.QuarantinedBytes)
	}
	if st.Extents != 2 || st.SegmentBytes != 2*(8192+512) {
		t.Errorf("%d extents, %d bytes", st.Extents, st.SegmentBytes)
	}
	y.Finish(time.Second, &k, wire.Header{}, nil)
}

func TestReportsOfCopiesAreCountedOneByOne(t *testing.T) {
	y := newYard(t, 1)
	y.put(small, "a", "b")
	a, b := y.ref("a"), y.ref("b")
	at := Loc{Fabric: "f", H: [32]byte{1}}
	y.Moved([]Moved{
		{Slot: a.Slot, Gen: a.Gen + 2, Loc: at}, {Slot: 1 << 30, Loc: at},
		{Slot: b.Slot, Gen: b.Gen, Err: wire.CodeUnreachable}, {Slot: a.Slot, Gen: a.Gen, Loc: at},
	})
	if st := y.Stats(); st.Copies != 1 || st.MovedStale != 2 || st.CopyFailed != 1 || st.Offloaded != 1 || st.OffloadedBytes != small || st.Remote != 1 {
		t.Errorf("%d copies, %d stale, %d failed, %d blocks of %d bytes freed, %d remembered", st.Copies, st.MovedStale, st.CopyFailed, st.Offloaded, st.OffloadedBytes, st.Remote)
	}
}

// Thinking blocks take an output block's place up to their fraction, to the byte.
func TestThinkingTakesOutputsPlaceUpToItsFraction(t *testing.T) {
	c := testCore(t, CoreConfig{Capacity: 16384, ExtentBytes: 8192, ThinkFraction: 8 * 1088 / 16384.0})
	o := c.NewOwner(false)
	fillCore(t, c, o, 16, wire.OutputCritical)
	think := func(n int) error {
		sizes := make([]uint32, n)
		for i := range sizes {
			sizes[i] = small
		}
		_, err := c.Reserve(0, o, nsOf("n"), wire.ThinkActive, sizes, time.Hour, false, nil)
		return err
	}
	var full *FullError
	if err := think(9); !errors.As(err, &full) {
		t.Errorf("a block more than the fraction: %v", err)
	}
	if err := think(8); err != nil {
		t.Errorf("the whole fraction: %v", err)
	}
	if err := think(1); !errors.As(err, &full) {
		t.Errorf("beyond it: %v", err)
	}
	if st := c.Stats(); st.Evictions != [3]uint64{0, 0, 8} || st.Full != 2 {
		t.Errorf("evictions %v, %d refused", st.Evictions, st.Full)
	}
}

// A guaranteed share that is not configured is no limit.
func TestQuotaRowsSayWhetherThereIsALimit(t *testing.T) {
	for _, share := range []float64{0, 0.5} {
		c := testCore(t, CoreConfig{Capacity: 8192, ExtentBytes: 8192, Shares: Shares{TenantGuaranteed: share, EngineGuaranteed: share}})
		for _, r := range c.Quota() {
			if r.Resource == quota.GuaranteedBytes && (r.Limited != (share > 0) || r.Limit != uint64(8192*share)) {
				t.Errorf("share %v: %+v", share, r)
			}
		}
	}
}
