package blocks

import (
	"testing"
	"time"

	"meridian/wire"
)

func TestABodyOfAWholeExtentIsStored(t *testing.T) {
	r := newRig(t, nil)
	body := bodyOf(keyOf("a"), 256<<10)
	r.put("a", body)
	v, l := r.acquire("a", time.Minute, false)
	checkPayload(t, r.Payload(v), body)
	r.Release(r.o, l)
	_, err := r.Reserve(r.o, r.ns, []uint32{256<<10 + 1}, time.Minute)
	wantCode(t, "a byte more", err, wire.CodeTooLarge)
}

// Of the items of one commit some may name slots that are not there: those are
// refused, and the others are stored.
func TestACommitToASlotThatIsNotThereHarmsNoOther(t *testing.T) {
	r := newRig(t, nil)
	v, err := r.Reserve(r.o, r.ns, []uint32{1000}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	items := []Commit{
		{Slot: 1 << 30, Key: keyOf("none")},
		{Slot: v[0].Ref.Slot, Key: keyOf("a"), Len: 1000},
		{Slot: v[0].Ref.Slot + 1000, Key: keyOf("none")},
	}
	r.Commit(r.o, items)
	wantCode(t, "a slot of no extent", items[0].Err, wire.CodeStale)
	wantCode(t, "a slot that was never taken", items[2].Err, wire.CodeStale)
	if items[1].Err != nil {
		t.Errorf("the one that is there: %v", items[1].Err)
	}
	if st := r.Stats(); st.Commits != 1 || st.Reserved != 0 {
		t.Errorf("%d commits, %d reserved", st.Commits, st.Reserved)
	}
	r.look("a")
}

// A key that is there already is refused and counted, for all and for its owner alone.
func TestEachKeyThatIsThereAlreadyIsCounted(t *testing.T) {
	y := newYard(t, 1)
	commit := func(name string, transient bool) error {
		v := mustReserve(t, y.Core, y.o, small)
		k := []Commit{{Slot: v.Ref.Slot, Key: keyOf(name), Tier: wire.OutputCritical, Len: small, Transient: transient}}
		y.Commit(0, y.o, k)
		return k[0].Err
	}
	for i, step := range []struct {
		name          string
		transient     bool
		want          wire.Code
		commits, seen uint64
	}{
		{"a", false, wire.CodeOK, 1, 0}, {"a", false, wire.CodeExists, 1, 1}, {"a", true, wire.CodeExists, 1, 2},
		{"b", true, wire.CodeOK, 2, 2}, {"b", true, wire.CodeExists, 2, 3},
	} {
		if err := commit(step.name, step.transient); wire.CodeOf(err) != step.want {
			t.Errorf("commit %d: %v", i, err)
		}
		if st := y.Stats(); st.Commits != step.commits || st.Exists != step.seen {
			t.Errorf("commit %d: %d commits, %d exist already", i, st.Commits, st.Exists)
		}
	}
}
