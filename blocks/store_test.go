package blocks

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

func TestRoomCommitPayload(t *testing.T) {
	r := newRig(t, nil)
	body := bodyOf(keyOf("a"), 3000)
	v, err := r.Reserve(r.o, r.ns, []uint32{4000, 0}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	room := r.Room(v[0])
	if len(room) != wire.HeaderLen+4000 || cap(room) != len(room) {
		t.Fatalf("room of %d, capacity %d", len(room), cap(room))
	}
	copy(room[wire.HeaderLen:], body)
	if r.Payload(v[0]) != nil {
		t.Fatal("a reservation has a payload")
	}
	head := wire.Header{BodyLen: 0, Tier: wire.ThinkActive, Sum: wire.SumOf(nil)}
	items := []Commit{
		{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: r.ns, Key: keyOf("a"), Tier: wire.OutputCritical, Len: 3000, Att: wire.AttestIngest},
		{Slot: v[1].Ref.Slot, Gen: v[1].Ref.Gen, Key: keyOf("empty"), Tier: wire.ThinkComplete, Head: &head, Att: wire.AttestProducer},
		{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, Key: keyOf("again")},
	}
	r.Commit(r.o, items)
	if items[0].Err != nil || items[1].Err != nil {
		t.Fatalf("%v, %v", items[0].Err, items[1].Err)
	}
	wantCode(t, "a second commit of a slot", items[2].Err, wire.CodeStale)
	if r.Room(v[0]) != nil || r.Payload(r.look("a")) != nil {
		t.Fatal("room after commit, or payload without a lease")
	}
	got, l := r.acquire("a", time.Minute, false)
	checkPayload(t, r.Payload(got), body)
	if got.Att != wire.AttestIngest || got.Head.Tier != wire.OutputCritical || got.Cap < 3000 {
		t.Fatalf("view %+v", got)
	}
	// The header keeps the tier that it was made with; the block's tier is beside it.
	got, l2 := r.acquire("empty", time.Minute, false)
	checkPayload(t, r.Payload(got), nil)
	if got.Head.Tier != wire.ThinkActive || got.Tier != wire.ThinkComplete {
		t.Fatalf("view %+v", got)
	}
	r.Release(r.o, l)
	r.Release(r.o, l2)
	if r.Payload(got) != nil {
		t.Fatal("payload after release")
	}
	if err := r.Verify(View{NS: r.ns, Ref: got.Ref}); err != nil {
		t.Fatal(err)
	}
	r.check()
}

func TestADiscardedBlockStaysReadableUnderItsLease(t *testing.T) {
	r := newRig(t, nil)
	body := bodyOf(keyOf("a"), 4096)
	r.put("a", body)
	v, l := r.acquire("a", time.Minute, false)
	if n := r.Discard(r.ns, []wire.Key{keyOf("a")}); n != 0 {
		t.Fatalf("%d slots freed under a lease", n)
	}
	_, err := r.Stat(keyOf("a"))
	wantCode(t, "Stat", err, wire.CodeAbsent)
	again := r.put("a", bodyOf(keyOf("other"), 4096))
	if again.Ref.Slot == v.Ref.Slot {
		t.Fatal("a leased slot was reused")
	}
	checkPayload(t, r.Payload(v), body)
	r.Release(r.o, l)
	if r.Payload(v) != nil {
		t.Fatal("a payload after the release")
	}
	r.check()
}

func TestIngestRefusesWhatDoesNotFit(t *testing.T) {
	r := newRig(t, nil)
	body := bodyOf(keyOf("a"), 1000)
	good := wire.Header{BodyLen: 1000, Sum: wire.SumOf(body)}
	bad, short := good, good
	bad.Sum[3] ^= 1
	short.BodyLen--
	for _, c := range []struct {
		name string
		body []byte
		k    Commit
		want wire.Code
	}{
		{"checksum", body, Commit{Head: &bad}, wire.CodeChecksum},
		{"length", body, Commit{Head: &short}, wire.CodeInvalid},
		{"too long for the slot", append(body, 0), Commit{}, wire.CodeTooLarge},
		{"too long for any slot", make([]byte, 300<<10), Commit{}, wire.CodeTooLarge},
		{"tier", body, Commit{Tier: 3}, wire.CodeTier},
		{"attest", body, Commit{Att: 3}, wire.CodeInvalid},
		{"namespace", body, Commit{NS: nsOf("other")}, wire.CodeInvalid},
		{"zero key", body, Commit{Key: wire.Key{}}, wire.CodeInvalid},
		{"generation", body, Commit{Gen: 1000}, wire.CodeStale},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := r.Reserve(r.o, r.ns, []uint32{1000}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if c.k.Slot = v[0].Ref.Slot; c.name != "zero key" {
				c.k.Key = keyOf("a")
			}
			wantCode(t, "Ingest", r.Ingest(r.o, c.body, &c.k), c.want)
			if !errors.Is(c.k.Err, c.want) {
				t.Fatalf("item: %v", c.k.Err)
			}
			r.Abort(r.o, []uint32{v[0].Ref.Slot})
			if st := r.Stats(); st.Reserved != 0 || st.Used != 0 {
				t.Fatalf("something is left: %+v", st)
			}
		})
	}
	if st := r.Stats(); st.ChecksumFailures != 1 {
		t.Fatalf("%d checksum failures", st.ChecksumFailures)
	}
	k := Commit{Slot: 1 << 30, Key: keyOf("a")}
	wantCode(t, "Ingest into no slot", r.Ingest(r.o, body, &k), wire.CodeStale)
	wantCode(t, "Ingest of no owner", r.Ingest(Owner(99), body, &k), wire.CodeInvalid)
}

func TestVerifyTakesABadBlockOutOfService(t *testing.T) {
	for _, where := range []string{"body", "header"} {
		t.Run(where, func(t *testing.T) {
			r := newRig(t, nil)
			r.put("a", bodyOf(keyOf("a"), 4096))
			v, l := r.acquire("a", time.Minute, false)
			gfd, gsize := r.fd(v.Seg, true)
			gens := peerMap(t, gfd, gsize, unix.PROT_READ)
			if err := r.Verify(View{NS: r.ns, Key: keyOf("a")}); err != nil {
				t.Fatal(err)
			}
			at := v.Off + 17
			if where == "header" {
				at = v.Off - 3
			}
			r.arena.segs[v.Seg].bytes.B[at] ^= 0x40
			err := r.Verify(View{NS: r.ns, Key: keyOf("a")})
			var sum *wire.ChecksumError
			if !errors.As(err, &sum) || sum.Want != v.Head.Sum || sum.Got == sum.Want {
				t.Fatalf("Verify: %v", err)
			}
			wantCode(t, "a second Verify", r.Verify(View{NS: r.ns, Key: keyOf("a")}), wire.CodeAbsent)
			wantCode(t, "Verify by reference", r.Verify(View{NS: r.ns, Ref: v.Ref}), wire.CodeStale)
			if w := word(gens, v.GenOff); w%2 == 0 {
				t.Fatalf("readers still see the even word %d", w)
			}
			if st := r.Stats(); st.Quarantined != 1 || st.ChecksumFailures != 1 || st.Verified != 2 {
				t.Fatalf("stats %+v", st)
			}
			if r.Payload(v) != nil {
				t.Fatal("a payload that failed its check")
			}
			r.Release(r.o, l)
			if st := r.Stats(); st.Quarantined != 0 || st.Used != 0 {
				t.Fatalf("stats after release %+v", st)
			}
			r.put("a", bodyOf(keyOf("a"), 4096))
			r.check()
		})
	}
}

func TestVerifyAlwaysHashesAtAcquire(t *testing.T) {
	r := newRig(t, func(c *Config) { c.VerifyAlways = true })
	good := bodyOf(keyOf("good"), 4096)
	r.put("good", good)
	v := r.put("bad", bodyOf(keyOf("bad"), 4096))
	r.arena.segs[v.Seg].bytes.B[v.Off] ^= 1
	items := []View{{NS: r.ns, Key: keyOf("bad")}, {NS: r.ns, Key: keyOf("good")}, {NS: r.ns, Key: keyOf("none")}}
	l, err := r.Acquire(r.o, items, time.Minute, false)
	if err != nil || l == (Lease{}) {
		t.Fatalf("lease %x, %v", l, err)
	}
	wantCode(t, "the bad item", items[0].Err, wire.CodeChecksum)
	wantCode(t, "the missing item", items[2].Err, wire.CodeAbsent)
	if items[1].Err != nil {
		t.Fatal(items[1].Err)
	}
	checkPayload(t, r.Payload(items[1]), good)
	r.Release(r.o, l)
	r.check()

	v = r.put("bad", bodyOf(keyOf("bad"), 4096))
	r.arena.segs[v.Seg].bytes.B[v.Off] ^= 1
	items = []View{{NS: r.ns, Key: keyOf("bad")}}
	l, err = r.Acquire(r.o, items, time.Minute, false)
	if err != nil || l != (Lease{}) {
		t.Fatalf("a lease on nothing: %x, %v", l, err)
	}
	wantCode(t, "the only item", items[0].Err, wire.CodeChecksum)
	if st := r.Stats(); st.Leases != 0 || st.ChecksumFailures != 2 || st.Leaked != 0 {
		t.Fatalf("stats %+v", st)
	}
	r.check()
}

// gate lets a test stop Ingest between its start and its copy.
func gate(r *rig) (entered, leave chan struct{}) {
	entered, leave = make(chan struct{}), make(chan struct{})
	r.copySum = func(dst, src []byte) wire.Verified {
		entered <- struct{}{}
		<-leave
		return wire.CopySum(dst, src)
	}
	return entered, leave
}

// What ends a reservation while its bytes are copied frees the slot after the
// copy, publishes nothing (I8), and keeps the ring mapped until then.
func TestIngestInFlight(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(r *rig, slot uint32)
		want wire.Code
	}{
		{"drop", func(r *rig, _ uint32) { r.Drop(r.o) }, wire.CodeCancelled},
		{"abort", func(r *rig, slot uint32) { r.Abort(r.o, []uint32{slot}) }, wire.CodeCancelled},
		{"deadline", func(r *rig, _ uint32) { r.clock.add(time.Hour); r.Step(Input{}) }, wire.CodeDeadline},
		{"deadline unnoticed", func(r *rig, _ uint32) { r.clock.add(time.Hour) }, wire.CodeDeadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			ring, err := r.Staging(r.o, 64<<10, 64<<10)
			if err != nil {
				t.Fatal(err)
			}
			v, err := r.Reserve(r.o, r.ns, []uint32{64 << 10}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			entered, leave := gate(r)
			result := make(chan error)
			go func() {
				k := Commit{Slot: v[0].Ref.Slot, Key: keyOf("a")}
				result <- r.Ingest(r.o, ring, &k)
			}()
			<-entered
			k := Commit{Slot: v[0].Ref.Slot, Key: keyOf("a")}
			wantCode(t, "a second Ingest of the slot", r.Ingest(r.o, ring, &k), wire.CodeStale)
			c.end(r, v[0].Ref.Slot)
			if st := r.Stats(); st.Reserved != 1 || st.StagingBytes == 0 {
				t.Fatalf("the slot or the ring went while in use: %+v", st)
			}
			leave <- struct{}{}
			wantCode(t, "Ingest", <-result, c.want)
			r.Drop(r.o)
			if st := r.Stats(); st.Used != 0 || st.StagingBytes != 0 || st.Leaked != 0 || st.Owners != 1 {
				t.Fatalf("something is left: %+v", st)
			}
			r.check()
		})
	}
}

func TestCloseWaitsForCopies(t *testing.T) {
	r := newRig(t, nil)
	v, err := r.Reserve(r.o, r.ns, []uint32{4096}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	entered, leave := gate(r)
	result, closed := make(chan error), make(chan error)
	go func() {
		k := Commit{Slot: v[0].Ref.Slot, Key: keyOf("a")}
		result <- r.Ingest(r.o, make([]byte, 4096), &k)
	}()
	<-entered
	go func() { closed <- r.Close() }()
	// Close holds the lock from where it refuses new calls until it waits for the
	// copy: what is seen with closed set is what it does while the copy runs.
	for shut := false; !shut; {
		r.mu.Lock()
		busy, mapped, sessions := r.busy, r.arena.get(v[0].Seg) != nil, len(r.sessions)
		shut = r.closed
		r.mu.Unlock()
		if shut && (busy != 1 || !mapped || sessions == 0) {
			t.Fatalf("Close did not wait: %d copies run, the arena is mapped: %v, %d sessions are left", busy, mapped, sessions)
		}
		runtime.Gosched()
	}
	leave <- struct{}{}
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	_, err = r.Reserve(r.o, r.ns, []uint32{1}, time.Minute)
	wantCode(t, "Reserve", err, wire.CodeDraining)
	_, err = r.Acquire(r.o, []View{{NS: r.ns, Key: keyOf("a")}}, time.Minute, false)
	wantCode(t, "Acquire", err, wire.CodeDraining)
	k := []Commit{{Key: keyOf("b")}}
	r.Commit(r.o, k)
	wantCode(t, "Commit", k[0].Err, wire.CodeDraining)
	wantCode(t, "Ingest", r.Ingest(r.o, nil, &k[0]), wire.CodeDraining)
	wantCode(t, "Verify", r.Verify(View{NS: r.ns, Key: keyOf("a")}), wire.CodeDraining)
	_, err = r.Staging(r.o, 4096, 4096)
	wantCode(t, "Staging", err, wire.CodeDraining)
	if r.NewOwner(0) != 0 || r.Room(v[0]) != nil {
		t.Fatal("something was granted after Close")
	}
	r.Discard(r.ns, []wire.Key{keyOf("a")})
	r.Drop(r.o)
}

// A block that a fabric may still write to is not reused before the fabric is
// quiet, and a late quiet changes nothing.
func TestLooseSlotsAreNotReused(t *testing.T) {
	r := newRig(t, nil)
	v, err := r.Reserve(r.o, r.ns, []uint32{4096}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	room := r.Room(v[0])
	quiet := r.Loose([]uint32{v[0].Ref.Slot, 1 << 30})
	r.Abort(r.o, []uint32{v[0].Ref.Slot})
	for i := range 100 {
		got := r.put(fmt.Sprint(i), bodyOf(keyOf(fmt.Sprint(i)), 4096))
		if got.Ref.Slot == v[0].Ref.Slot {
			t.Fatal("a loose slot was reused")
		}
	}
	room[wire.HeaderLen] = 1 // the late write hits nobody
	if st := r.Stats(); st.Quarantined != 1 {
		t.Fatalf("stats %+v", st)
	}
	quiet()
	quiet()
	if st := r.Stats(); st.Quarantined != 0 || st.Leaked != 0 {
		t.Fatalf("stats %+v", st)
	}
	r.check()
}

func TestListAndStat(t *testing.T) {
	r := newRig(t, nil)
	for i := range 600 {
		r.put(fmt.Sprint(i), bodyOf(keyOf(fmt.Sprint(i)), 512))
	}
	seen := map[string]bool{}
	r.List(func(v View) bool {
		seen[nameOf(v.Key)] = true
		if _, err := r.Stat(v.Key); err != nil { // the store may be called meanwhile
			t.Fatal(err)
		}
		return true
	})
	if len(seen) != 600 {
		t.Fatalf("%d blocks listed", len(seen))
	}
	n := 0
	r.List(func(View) bool { n++; return n < 5 })
	if n != 5 {
		t.Fatalf("%d calls after false", n)
	}
	_, err := r.Stat(keyOf("nowhere"))
	wantCode(t, "Stat", err, wire.CodeAbsent)
}

func TestMovedTakesBlocksOutAndRemembersWhere(t *testing.T) {
	r := newRig(t, nil)
	r.put("a", bodyOf(keyOf("a"), 4096))
	v, l := r.acquire("a", time.Minute, false)
	loc := Loc{Fabric: "link", H: v.Ref.Handle()}
	r.Moved([]Moved{{Slot: v.Ref.Slot, Gen: v.Ref.Gen, Loc: loc}})
	checkPayload(t, r.Payload(v), bodyOf(keyOf("a"), 4096))
	r.Release(r.o, l)
	var got [1]View
	if r.Lookup(r.ns, []wire.Key{keyOf("a")}, got[:]) != 0 || got[0].Where != loc || got[0].Seg != 0 || got[0].Head != v.Head {
		t.Fatalf("view %+v", got[0])
	}
	st, err := r.Stat(keyOf("a"))
	if wantCode(t, "Stat", err, wire.CodeAbsent); st.Where != loc {
		t.Fatalf("stat %+v", st)
	}
	r.Forget(r.ns, []wire.Key{keyOf("a")})
	if r.Lookup(r.ns, []wire.Key{keyOf("a")}, got[:]); got[0].Where != (Loc{}) {
		t.Fatalf("view %+v", got[0])
	}
}

func TestErrorsNameTheirValues(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Capacity, c.ExtentBytes = 64<<10, 64<<10 })
	_, err := r.Reserve(r.o, r.ns, []uint32{40 << 10, 40 << 10}, time.Minute)
	var full *FullError
	if !errors.As(err, &full) || full.Need < 80<<10 || full.Free > 64<<10 || !errors.Is(err, wire.CodeFull) {
		t.Fatalf("%v", err)
	}
	_, err = r.Reserve(r.o, r.ns, []uint32{1 << 20}, time.Minute)
	var large *wire.TooLargeError
	if !errors.As(err, &large) || large.Got != 1<<20 || large.Limit != 64<<10 {
		t.Fatalf("%v", err)
	}
	_, err = r.ReserveTier(r.o, r.ns, 3, []uint32{1}, time.Minute)
	wantCode(t, "tier 3", err, wire.CodeTier)
	for i := 1; i < MaxNamespaces; i++ {
		if err := r.AddNamespace(nsOf(fmt.Sprint(i)), tenantOf("t")); err != nil {
			t.Fatal(err)
		}
	}
	err = r.AddNamespace(nsOf("one too many"), tenantOf("t"))
	wantCode(t, "one namespace too many", err, wire.CodeTooMany)
	if !strings.Contains(err.Error(), "1025") {
		t.Fatalf("%v", err)
	}
	if err := r.AddNamespace(nsOf("n"), tenantOf("t")); err != nil {
		t.Fatalf("a namespace again: %v", err)
	}
	if g := (&GrowError{}); !errors.Is(g, wire.CodeFull) || g.Error() == "" {
		t.Fatal("GrowError is no FULL")
	}
}

func TestOpenRefusesWhatCannotBeCut(t *testing.T) {
	for _, c := range []Config{
		{},
		{Capacity: 100},
		{Capacity: 1 << 20, ExtentBytes: 100_000},
		{Capacity: 1 << 20, ExtentBytes: 2 << 20},
		{Capacity: 1 << 20, ThinkFraction: 1.5},
		{Capacity: 1 << 20, ThinkFraction: -1},
		{Capacity: 1 << 50, ExtentBytes: 64 << 10},
	} {
		_, err := Open(c)
		wantCode(t, fmt.Sprintf("%+v", c.Capacity), err, wire.CodeConfig)
	}
	for _, capacity := range []uint64{64 << 10, 100 << 10, 1 << 20, 3 << 20, 1 << 30, 1 << 43} {
		s, err := Open(Config{Capacity: capacity})
		if err != nil {
			t.Errorf("%d bytes: %v", capacity, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A block of a higher tier outlives a touched one, and a renewed lease its first
// deadline.
func TestTouchTierRenew(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Capacity, c.ExtentBytes = 256<<10, 256<<10 })
	for _, n := range []string{"output", "touched", "plain", "leased"} {
		r.put(n, bodyOf(keyOf(n), 60<<10))
	}
	keys := func(n ...string) (k []wire.Key) {
		for _, s := range n {
			k = append(k, keyOf(s))
		}
		return k
	}
	r.Retier(r.ns, keys("touched", "plain"), wire.ThinkComplete)
	if n := r.Touch(r.ns, keys("touched", "nowhere", "plain")); n != 1 {
		t.Fatalf("%d leading hits", n)
	}
	_, l := r.acquire("leased", time.Minute, false)
	r.clock.add(50 * time.Second)
	if err := r.Renew(r.o, l, time.Minute); err != nil {
		t.Fatal(err)
	}
	r.clock.add(50 * time.Second)
	r.put("x", bodyOf(keyOf("x"), 60<<10)) // takes the place of "plain"
	if n := r.Lookup(r.ns, keys("output", "touched", "leased", "plain"), nil); n != 3 {
		t.Fatalf("%d leading hits", n)
	}
	r.put("y", bodyOf(keyOf("y"), 60<<10)) // of "touched"
	r.Retier(r.ns, keys("output"), wire.ThinkComplete)
	r.put("z", bodyOf(keyOf("z"), 60<<10)) // of "output"
	if n := r.Lookup(r.ns, keys("leased", "output"), nil); n != 1 {
		t.Fatalf("%d leading hits", n)
	}
	r.clock.add(time.Minute)
	wantCode(t, "Renew of a lapsed lease", r.Renew(r.o, l, time.Minute), wire.CodeLeaseLost)
}
