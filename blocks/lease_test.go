package blocks

import (
	"errors"
	"testing"
	"time"

	"meridian/blocks/quota"
	"meridian/wire"
)

// Each lease, each hold that ages and each that lapses is counted once.
func TestLeasesAreCountedOneByOne(t *testing.T) {
	y := newYard(t, 1)
	y.put(small, "a", "b")
	acquire := func(now time.Duration, name string, hold bool) Lease {
		t.Helper()
		l, err := y.Acquire(now, y.o, []View{{NS: y.ns, Key: keyOf(name)}}, 5*time.Second, hold)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	want := func(when string, granted, lapsed, aged uint64, agedNow int) {
		t.Helper()
		st := y.Stats()
		if st.LeasesGranted != granted || st.LeasesLapsed != lapsed || st.HoldsAged != aged || st.AgedHolds != agedNow {
			t.Errorf("%s: granted %d, lapsed %d, aged %d, %d of them now; want %d, %d, %d, %d", when,
				st.LeasesGranted, st.LeasesLapsed, st.HoldsAged, st.AgedHolds, granted, lapsed, aged, agedNow)
		}
	}
	acquire(0, "none", false)
	want("a lease on nothing", 0, 0, 0, 0)
	hold := acquire(0, "a", true)
	acquire(0, "b", false)
	want("two leases", 2, 0, 0, 0)
	var r Ready
	y.Step(5*time.Second, Input{}, &r)
	want("after their time", 2, 1, 1, 1)
	if err := y.Renew(5*time.Second, y.o, hold, time.Second); err != nil {
		t.Fatal(err)
	}
	want("the hold is renewed", 2, 1, 1, 0)
	y.Step(7*time.Second, Input{}, &r)
	want("it ages again", 2, 1, 2, 1)
	y.Release(y.o, hold)
	want("it is released", 2, 1, 2, 0)
	acquire(7*time.Second, "a", true)
	want("the owner may hold again", 3, 1, 2, 0)
}

// Without an age limit a peer may renew for ever; with one, up to it and not beyond.
func TestAPeersLeaseHasTheAgeThatIsConfigured(t *testing.T) {
	for _, age := range []time.Duration{0, 10 * time.Second} {
		c := testCore(t, CoreConfig{Capacity: 8192, ExtentBytes: 8192, Shares: Shares{LeaseAge: age}})
		fillCore(t, c, c.NewOwner(false), 1, wire.OutputCritical)
		peer := c.NewOwnerFor(quota.Holder{Kind: quota.Peer, Name: "p"}, false)
		l, err := c.Acquire(0, peer, []View{{NS: nsOf("n"), Key: benchKey(0)}}, 2*time.Second, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Renew(time.Second, peer, l, 9*time.Second); err != nil {
			t.Fatalf("age limit %v, up to ten seconds: %v", age, err)
		}
		err = c.Renew(time.Second, peer, l, 9*time.Second+time.Millisecond)
		var e *LimitError
		if age == 0 && err != nil || age > 0 && (!errors.As(err, &e) || e.Code != wire.CodeBusy || e.Got != 10001 || e.Limit != 10000) {
			t.Errorf("age limit %v, a millisecond beyond: %v", age, err)
		}
	}
}

// A block that fails its check leaves the lease at once, wherever it stands in it;
// the others stay. A lease that is gone by then is left alone.
func TestABlockThatFailsItsCheckLeavesTheLease(t *testing.T) {
	r := newRig(t, func(c *Config) { c.VerifyAlways = true })
	names := []string{"bad first", "good", "bad last"}
	for _, n := range names {
		v := r.put(n, bodyOf(keyOf(n), 4096))
		if n != "good" {
			r.arena.segs[v.Seg].bytes.B[v.Off] ^= 1
		}
	}
	used := r.Stats().Used / 3
	var v []View
	for _, n := range names {
		v = append(v, View{NS: r.ns, Key: keyOf(n)})
	}
	l, err := r.Acquire(r.o, v, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	if st := r.Stats(); st.Quarantined != 0 || st.Used != used || st.Blocks[wire.OutputCritical] != 1 || st.Verified != 3 || st.ChecksumFailures != 2 {
		t.Errorf("while the lease lives: %+v", st)
	}
	if r.Payload(v[1]) == nil {
		t.Error("the good block is not leased")
	}
	r.check()
	r.Release(r.o, l)
	r.mu.Lock()
	r.core.refuse(r.o, l, v[1].Ref.Slot)
	r.unlock()
	if r.Payload(v[1]) != nil {
		t.Error("the good block is still leased")
	}
	r.check()
}

// Without a word in the configuration an owner holds a quarter of the capacity.
func TestHoldsHaveAQuarterOfTheCapacity(t *testing.T) {
	r := newRig(t, nil)
	var v []View
	for i := range 5 {
		name := string('a' + rune(i))
		r.put(name, bodyOf(keyOf(name), 240<<10))
		v = append(v, View{NS: r.ns, Key: keyOf(name)})
	}
	_, err := r.Acquire(r.o, v, time.Minute, true)
	var e *LimitError
	if !errors.As(err, &e) || e.Code != wire.CodeBusy || e.Limit != 1<<20 || e.Got != 5*stride(240<<10) {
		t.Errorf("1.2 MB of 4 MiB: %v", err)
	}
	l, err := r.Acquire(r.o, v[:4], time.Minute, true)
	if err != nil {
		t.Errorf("0.96 MB of 4 MiB: %v", err)
	}
	r.Release(r.o, l)
}
