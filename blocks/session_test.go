package blocks

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

// fakeProcess ends when the test says so.
type fakeProcess struct {
	gone   bool
	closed int
}

func (p *fakeProcess) Gone() bool   { return p.gone }
func (p *fakeProcess) Close() error { p.closed++; return nil }

func TestHoldsOutliveTheirSessionUntilTheProcessIsGone(t *testing.T) {
	p := &fakeProcess{}
	r := newRig(t, func(c *Config) { c.OpenProcess = func(int) (Process, error) { return p, nil } })
	r.put("a", bodyOf(keyOf("a"), 4096))
	r.o = r.NewOwner(1234)
	v, _ := r.acquire("a", time.Second, true)
	r.Drop(r.o)
	r.Drop(r.o)
	r.clock.add(time.Hour)
	if ready := r.Step(Input{Free: 1 << 40}); len(ready.Evicted) != 0 || ready.Next != r.clock.read()+orphanPoll {
		t.Fatalf("ready %+v", ready)
	}
	if st := r.Stats(); st.Orphans != 1 || st.Holds != 1 || st.HoldBytes == 0 {
		t.Fatalf("stats %+v", st)
	}
	r.Discard(r.ns, []wire.Key{keyOf("a")})
	if st := r.Stats(); st.Quarantined != 1 {
		t.Fatalf("stats %+v", st)
	}
	if again, err := r.Reserve(r.NewOwner(0), r.ns, []uint32{4096}, time.Minute); err != nil || again[0].Ref.Slot == v.Ref.Slot {
		t.Fatalf("a held slot was granted: %+v, %v", again, err)
	}
	p.gone = true
	r.Step(Input{})
	if st := r.Stats(); st.Orphans != 0 || st.Holds != 0 || st.Quarantined != 0 || st.Leaked != 0 {
		t.Fatalf("stats %+v", st)
	}
	if p.closed != 1 {
		t.Fatalf("the process was closed %d times", p.closed)
	}
	r.check()
}

func TestHoldsOfARealProcess(t *testing.T) {
	pid, end := child(t)
	r := newRig(t, nil)
	r.put("a", bodyOf(keyOf("a"), 4096))
	r.o = r.NewOwner(pid)
	r.acquire("a", time.Second, true)
	r.Drop(r.o)
	r.Step(Input{})
	if st := r.Stats(); st.Orphans != 1 || st.Holds != 1 {
		t.Fatalf("the process lives: %+v", st)
	}
	end()
	r.Step(Input{})
	if st := r.Stats(); st.Orphans != 0 || st.Holds != 0 {
		t.Fatalf("the process is gone: %+v", st)
	}
}

// A process that cannot be watched gets timed leases only.
func TestNoHoldsForAProcessThatCannotBeWatched(t *testing.T) {
	r := newRig(t, func(c *Config) { c.OpenProcess = func(int) (Process, error) { return nil, unix.ENOSYS } })
	r.put("a", bodyOf(keyOf("a"), 4096))
	o := r.NewOwner(1)
	_, err := r.Acquire(o, []View{{NS: r.ns, Key: keyOf("a")}}, time.Second, true)
	wantCode(t, "a hold", err, wire.CodeUnsupported)
	v := []View{{NS: r.ns, Key: keyOf("a")}}
	if l, err := r.Acquire(o, v, time.Second, false); err != nil || l == (Lease{}) {
		t.Fatalf("a timed lease: %v", err)
	}
	r.Drop(o)
}
