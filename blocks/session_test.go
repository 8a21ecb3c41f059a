package blocks

import (
	"testing"
	"time"

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

// ofProcess is a session of a process that is watched.
func (r *rig) ofProcess(pid int, p Process) Owner {
	o := r.NewOwner(pid)
	r.SetProcess(o, p)
	return o
}

// A process that ends before its session, which somebody else goes on with, holds nothing
// any more: at the next Step, and where a hold is asked for. Nothing else of the
// session ends, and it gets no other process.
func TestHoldsDoNotOutliveTheirProcessWithASession(t *testing.T) {
	for _, how := range []string{"step", "acquire"} {
		p := &fakeProcess{}
		r := newRig(t, nil)
		r.put("a", bodyOf(keyOf("a"), 4096))
		r.o = r.ofProcess(1234, p)
		_, timed := r.acquire("a", time.Hour, false)
		r.acquire("a", time.Hour, true)
		r.acquire("a", time.Hour, true)
		r.Step(Input{})
		if st := r.Stats(); st.Holds != 2 || p.closed != 0 {
			t.Fatalf("the process lives: %+v", st)
		}
		p.gone = true
		if how == "step" {
			r.Step(Input{})
		} else {
			_, err := r.Acquire(r.o, []View{{NS: r.ns, Key: keyOf("a")}}, time.Second, true)
			wantCode(t, "a hold of a process that has ended", err, wire.CodeUnsupported)
		}
		if st := r.Stats(); st.Holds != 0 || st.HoldBytes != 0 || st.Leases != 1 || st.Leaked != 0 || p.closed != 1 {
			t.Errorf("%s: %d holds of %d bytes, %d leases, %d leaked, closed %d times", how, st.Holds, st.HoldBytes, st.Leases, st.Leaked, p.closed)
		}
		if err := r.Renew(r.o, timed, time.Hour); err != nil {
			t.Errorf("%s: the timed lease: %v", how, err)
		}
		if second := (&fakeProcess{}); r.SetProcess(r.o, second) || second.closed != 1 {
			t.Errorf("%s: the session got another process", how)
		}
		_, err := r.Acquire(r.o, []View{{NS: r.ns, Key: keyOf("a")}}, time.Second, true)
		wantCode(t, "a hold once more", err, wire.CodeUnsupported)
		r.Release(r.o, timed)
		r.check()
	}
}

func TestHoldsOutliveTheirSessionUntilTheProcessIsGone(t *testing.T) {
	p := &fakeProcess{}
	r := newRig(t, nil)
	r.put("a", bodyOf(keyOf("a"), 4096))
	r.o = r.ofProcess(1234, p)
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
	p, err := openProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	r.o = r.ofProcess(pid, p)
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
	r := newRig(t, nil)
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

// A session without holds is over with Drop: its process is watched no longer.
func TestASessionIsForgottenAtDrop(t *testing.T) {
	p := &fakeProcess{}
	r := newRig(t, nil)
	r.Drop(r.NewOwner(0))
	r.Drop(r.ofProcess(1234, p))
	if p.closed != 1 || len(r.sessions) != 1 {
		t.Errorf("the process is closed %d times, %d sessions left", p.closed, len(r.sessions))
	}
}

// The next Step is due when the next lease is, and within a second while a process
// that may have ended holds blocks, with a session or without.
func TestStepIsDueForProcessesAndForLeases(t *testing.T) {
	for _, c := range []struct {
		process, orphan bool
		ttl, after      time.Duration
	}{
		{false, false, time.Hour, time.Hour},
		{true, false, time.Hour, orphanPoll},
		{true, true, time.Hour, orphanPoll},
		{true, true, orphanPoll / 2, orphanPoll / 2},
	} {
		r := newRig(t, nil)
		r.put("a", bodyOf(keyOf("a"), 4096))
		r.clock.add(time.Hour)
		r.Step(Input{}) // the reservation of a is over
		o, engine := r.o, r.NewOwner(0)
		if c.process {
			engine = r.ofProcess(1234, &fakeProcess{})
			r.o = engine
			r.acquire("a", 2*time.Hour, true)
			if r.o = o; c.orphan {
				r.Drop(engine)
			}
		}
		_, l := r.acquire("a", c.ttl, false)
		if got := r.Step(Input{}).Next; got != r.clock.read()+c.after {
			t.Errorf("%+v: the next Step is due in %v", c, got-r.clock.read())
		}
		r.Release(r.o, l)
		r.Drop(engine)
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
