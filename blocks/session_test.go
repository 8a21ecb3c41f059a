package blocks

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks/quota"
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

// A session without holds is over with Drop: its process is watched no longer. One
// without a process watches none.
func TestASessionIsForgottenAtDrop(t *testing.T) {
	var opened []int
	p := &fakeProcess{}
	r := newRig(t, func(c *Config) {
		c.OpenProcess = func(pid int) (Process, error) { opened = append(opened, pid); return p, nil }
	})
	r.Drop(r.NewOwner(0))
	r.Drop(r.NewOwner(1234))
	if len(opened) != 1 || opened[0] != 1234 || p.closed != 1 || len(r.sessions) != 1 {
		t.Errorf("processes %v are watched, %d closed, %d sessions left", opened, p.closed, len(r.sessions))
	}
}

// The next Step is due when the next lease is, and within a second while a process
// that may have ended holds blocks.
func TestStepIsDueForOrphansAndForLeases(t *testing.T) {
	for _, c := range []struct {
		orphan     bool
		ttl, after time.Duration
	}{{false, time.Hour, time.Hour}, {true, time.Hour, orphanPoll}, {true, orphanPoll / 2, orphanPoll / 2}} {
		r := newRig(t, func(c *Config) { c.OpenProcess = func(int) (Process, error) { return &fakeProcess{}, nil } })
		r.put("a", bodyOf(keyOf("a"), 4096))
		r.clock.add(time.Hour)
		r.Step(Input{}) // the reservation of a is over
		if c.orphan {
			o, engine := r.o, r.NewOwner(1234)
			r.o = engine
			r.acquire("a", 2*time.Hour, true)
			r.o = o
			r.Drop(engine)
		}
		_, l := r.acquire("a", c.ttl, false)
		if got := r.Step(Input{}).Next; got != r.clock.read()+c.after {
			t.Errorf("%+v: the next Step is due in %v", c, got-r.clock.read())
		}
		r.Release(r.o, l)
	}
}

func TestAPeersAcquireHashesNothing(t *testing.T) {
	r := newRig(t, func(c *Config) { c.VerifyAlways = true })
	r.put("a", bodyOf(keyOf("a"), 4096))
	for _, c := range []struct {
		who  quota.Holder
		want uint64
	}{{quota.Holder{Kind: quota.Peer, Name: "p"}, 0}, {quota.Holder{Kind: quota.Engine, Name: "e"}, 1}} {
		r.o = r.NewOwnerFor(c.who, 0)
		_, l := r.acquire("a", time.Minute, false)
		if n := r.Stats().Verified; n != c.want {
			t.Errorf("%v: %d blocks hashed, want %d", c.who, n, c.want)
		}
		r.Release(r.o, l)
	}
}

// The owner of a transient block reads it under its lease, and nobody after that.
func TestATransientBlockIsReadUnderItsLease(t *testing.T) {
	r := newRig(t, nil)
	v, err := r.Reserve(r.o, r.ns, []uint32{4096}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	body := bodyOf(keyOf("a"), 4096)
	if err := r.Ingest(r.o, body, &Commit{Slot: v[0].Ref.Slot, Key: keyOf("a"), Transient: true}); err != nil {
		t.Fatal(err)
	}
	got, l := r.acquire("a", time.Minute, false)
	checkPayload(t, r.Payload(got), body)
	r.Release(r.o, l)
	if r.Payload(got) != nil || r.Stats().Used != 0 {
		t.Error("it is still there after its release")
	}
}
