package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// advance moves time on in ticks, and lets the bytes move at each.
func (r *rig) advance(d time.Duration) {
	for end := r.now + d; r.now < end; {
		r.now += 50 * time.Millisecond
		r.end[0].Tick(r.now)
		r.end[1].Tick(r.now)
		r.reap()
		r.run()
	}
}

// stall moves time on while nothing moves.
func (r *rig) stall(d time.Duration) {
	for end := r.now + d; r.now < end; {
		r.now += 50 * time.Millisecond
		r.end[0].Tick(r.now)
		r.end[1].Tick(r.now)
	}
}

func TestAnUrgentPullOvertakesBulkAtTheNextFrame(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 4*proto.MaxChunk, "bulk1", "bulk2")
	r.put(1, 2*proto.MaxChunk, "urgent")
	r.pull(0, proto.ClassBulk, num, 4*proto.MaxChunk, "bulk1")
	r.pull(0, proto.ClassBulk, num, 4*proto.MaxChunk, "bulk2")
	for r.move(0, 1, 1<<20) > 0 {
	}
	r.log.Reset()
	r.frame(1, 1) // TABLEs
	for range 3 {
		r.frame(1, 1)
	}
	r.pull(0, proto.ClassUrgent, num, 2*proto.MaxChunk, "urgent")
	for r.move(0, 1, 1<<20) > 0 {
	}
	r.run()
	var order []string
	for _, line := range strings.Split(r.log.String(), "\n") {
		if strings.HasPrefix(line, "b 1 DATA") {
			order = append(order, strings.Fields(line)[3][len("req="):])
		}
	}
	// Bulk goes round robin; the frame that was under way when the urgent request
	// came is finished, nothing else comes between.
	got := strings.Join(order, " ")
	before, after, ok := strings.Cut(got, "7 7")
	if !ok || strings.Count(before, "3")+strings.Count(before, "5") > 4 || strings.Contains(after, "7") {
		t.Errorf("order of DATA: %s", got)
	}
	if !strings.HasPrefix(got, "3 5 3") {
		t.Errorf("bulk is not round robin: %s", got)
	}
	r.settled()
}

func TestBulkKeepsOffTheLaneThatUrgentUses(t *testing.T) {
	r := newRig(t, 3, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	r.put(1, 1000, "x")
	lanes := map[proto.Class]map[uint8]bool{}
	for i := range 60 {
		class := proto.Class(i % 4)
		r.pull(0, class, num, 1000, "x")
	}
	for _, q := range r.end[0].calls {
		if lanes[q.class] == nil {
			lanes[q.class] = map[uint8]bool{}
		}
		lanes[q.class][q.lane.idx] = true
	}
	for _, class := range []proto.Class{proto.ClassNormal, proto.ClassBulk} {
		if lanes[class][1] {
			t.Errorf("class %d uses lane 1", class)
		}
	}
	r.run()
	r.lose(2)
	r.lose(3)
	c := r.pull(0, proto.ClassBulk, num, 1000, "x")
	r.run()
	wantCodes(t, c, wire.CodeOK) // with one lane left, everything uses it
	r.settled()
}

func TestHolderEndsAtTheDeadlineAndPinsAreFreed(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 900_000, "x")
	c := &Call{Type: proto.TypePull, Timeout: 300 * time.Millisecond, Items: []Item{{NS: num, Key: r.key("x"), Room: make([]byte, 900_000)}}}
	r.end[0].Start(r.now, c)
	r.move(0, 1, 1<<20)
	r.move(1, 1, 1000)
	r.stall(time.Second)
	wantCodes(t, c, wire.CodeDeadline)
	if c.Code != wire.CodeDeadline {
		t.Errorf("call: %v", c.Code)
	}
	r.run()
	r.settled()

	p := r.push(0, proto.ClassUrgent, num, 900_000, "p")
	p2 := &Call{Type: proto.TypePush, Timeout: 200 * time.Millisecond, Items: append([]Item(nil), p.Items...)}
	p2.Items[0].Key = r.key("p2")
	r.end[0].Start(r.now, p2)
	for range 5 {
		r.move(0, 1, 1000)
		r.move(1, 1, 1000)
	}
	r.stall(time.Second)
	r.run()
	wantCodes(t, p, wire.CodeOK)
	wantCodes(t, p2, wire.CodeDeadline)
	if r.store[1].blocks[r.key("p2")] != nil {
		t.Error("a push that ran out of time is visible")
	}
	r.settled()
}

func TestPullWithoutDataEndsNoProgress(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 900_000, "x")
	c := r.pull(0, proto.ClassUrgent, num, 900_000, "x")
	r.move(0, 1, 1<<20)
	r.move(1, 1, 2000)
	r.stall(proto.NoProgress - 100*time.Millisecond)
	if c.over {
		t.Fatal("the pull ended too early")
	}
	r.stall(200 * time.Millisecond)
	wantCodes(t, c, wire.CodeNoProgress)
	r.run()
	r.settled()
}

func TestSilentPeerIsFoundOutByPings(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 100, "x")
	r.advance(time.Minute)
	if r.end[0].Lane(0) == nil || r.end[0].Lane(1) == nil {
		t.Fatal("a lane whose pings are answered was closed")
	}
	c := r.pull(0, proto.ClassUrgent, num, 100, "x")
	c.deadline += time.Hour
	start := r.now
	for !r.end[0].lanes[0].dead && r.now < start+time.Minute {
		r.stall(50 * time.Millisecond)
		// Bytes leave, and vanish.
		for idx := range uint8(2) {
			if l := r.end[0].Lane(idx); l != nil {
				n := 0
				for _, p := range l.TxWant(nil) {
					n += len(p)
				}
				l.TxDid(r.now, n)
			}
		}
	}
	if d := r.now - start; d < 20*time.Second || d > 21*time.Second {
		t.Errorf("found out after %v, want 20 s", d)
	}
}

func TestPeerThatTakesNoBytesLosesTheLane(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 3_000_000, "x")
	r.pull(0, proto.ClassUrgent, num, 3_000_000, "x")
	r.move(0, 1, 1<<20)
	r.move(1, 1, 1000)
	r.stall(WriteStall + time.Second)
	if len(r.store[1].leases) != 0 {
		t.Error("a peer that does not read still pins blocks")
	}
}

func TestLaneZeroLingersAndThenTheSessionIsOver(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 100, "x")
	lease := &Call{Type: proto.TypePull, Timeout: time.Second, LeaseFor: 20 * time.Second,
		Items: []Item{{NS: num, Key: r.key("x"), Flags: proto.WantKeepLease}}}
	r.end[0].Start(r.now, lease)
	r.run()
	if lease.Code != wire.CodeOK || lease.Lease == ([16]byte{}) || lease.Items[0].Code != wire.CodeOK {
		t.Fatalf("lease: %v %x", lease.Code, lease.Lease)
	}
	r.lose(0)
	r.advance(4 * time.Second)
	r.addLane(0)
	renew := &Call{Type: proto.TypeRenew, Timeout: time.Second, Lease: lease.Lease, LeaseFor: time.Second}
	r.end[0].Start(r.now, renew)
	r.run()
	if renew.Code != wire.CodeOK {
		t.Errorf("renew after lane 0 came back: %v", renew.Code)
	}
	r.lose(0)
	r.advance(6 * time.Second)
	for i, s := range r.end {
		if _, dead := s.Dead(); !dead {
			t.Errorf("%s lives on without lane 0", sides[i])
		}
		if !r.store[i].dropped {
			t.Errorf("%s did not free what its peer held", sides[i])
		}
	}
	r.settled()
}

func TestLeasesAreRenewedReleasedAndBound(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 100, "x")
	c := &Call{Type: proto.TypePull, Timeout: time.Second, LeaseFor: time.Second,
		Items: []Item{{NS: num, Key: r.key("x"), Flags: proto.WantKeepLease, Room: make([]byte, 100)}}}
	r.end[0].Start(r.now, c)
	r.run()
	if len(r.store[1].leases) != 1 || c.Lease == ([16]byte{}) {
		t.Fatalf("%d leases after a pull that keeps one", len(r.store[1].leases))
	}
	plain := r.pull(0, proto.ClassUrgent, num, 100, "x")
	r.run()
	if plain.Lease != ([16]byte{}) || len(r.store[1].leases) != 1 {
		t.Error("a pull that asked for no lease got one")
	}
	release := &Call{Type: proto.TypeRelease, Timeout: time.Second, Leases: [][16]byte{c.Lease, c.Lease}}
	renew := &Call{Type: proto.TypeRenew, Timeout: time.Second, Lease: c.Lease}
	r.store[1].faults = nil
	r.end[0].Start(r.now, release)
	r.end[0].Start(r.now, renew)
	r.run()
	if release.Code != wire.CodeOK || renew.Code != wire.CodeLeaseLost || !strings.Contains(renew.Text, "was released") {
		t.Errorf("release %v, renew of it %v %q", release.Code, renew.Code, renew.Text)
	}
	r.store[1].faults = nil
	r.settled()
}

func TestGoAwayEndsWhatRunsAndRefusesWhatIsNew(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 600_000, "x")
	c := r.pull(0, proto.ClassUrgent, num, 600_000, "x")
	r.move(0, 1, 1<<20)
	r.end[1].GoAway(r.now, 3000, wire.CodeDraining, "bye")
	crossing := r.pull(0, proto.ClassUrgent, num, 600_000, "x") // GOAWAY is not there yet
	r.run()
	wantCodes(t, c, wire.CodeOK)
	wantCodes(t, crossing, wire.CodeDraining)
	late := r.pull(0, proto.ClassUrgent, num, 600_000, "x")
	wantCodes(t, late, wire.CodeDraining)
	if !r.end[0].Leaving() || r.end[0].Ready() {
		t.Error("the peer of one that leaves is still ready")
	}
	r.settled()
	r.advance(4 * time.Second)
	if _, dead := r.end[1].Dead(); !dead {
		t.Error("GOAWAY's time is over, and the session is not")
	}
}

func TestIncarnationDropsAllAtOnce(t *testing.T) {
	r := newRig(t, 2, proto.Limits{})
	num := r.open(0)
	r.put(1, 600_000, "x", "y")
	calls := []*Call{
		r.pull(0, proto.ClassUrgent, num, 600_000, "x"), r.pull(0, proto.ClassBulk, num, 600_000, "y"),
		r.push(0, proto.ClassBulk, num, 300_000, "p"),
	}
	for idx := range uint8(3) {
		r.move(0, idx, 1<<20)
		r.move(1, idx, 5000)
	}
	r.end[0].Drop(r.now, wire.CodeIncarnation)
	r.end[1].Drop(r.now, wire.CodeIncarnation)
	for _, c := range calls {
		if c.Code != wire.CodeIncarnation {
			t.Errorf("%v: %v", c.Type, c.Code)
		}
	}
	r.settled()
	late := r.pull(0, proto.ClassUrgent, num, 10, "x")
	if late.Code != wire.CodeIncarnation {
		t.Errorf("a call after the end: %v", late.Code)
	}
	for i := range r.end {
		if !r.store[i].dropped {
			t.Errorf("%s: not dropped", sides[i])
		}
	}
}

func TestCancelStormComesBackToZero(t *testing.T) {
	r := newRig(t, 2, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	back := r.open(1)
	r.put(1, 70_000, "x", "y", "z")
	r.put(0, 70_000, "x", "y", "z")
	var calls []*Call
	for i := range 400 {
		side, n := i%2, num
		if side == 1 {
			n = back
		}
		if i%3 == 0 {
			calls = append(calls, r.push(side, proto.Class(i%4), n, 50_000, fmt.Sprint("p", i)))
		} else {
			calls = append(calls, r.pull(side, proto.Class(i%4), n, 70_000, "x", "y", "z"))
		}
		r.piece = 1 + i*977%100_000
		for idx := range uint8(3) {
			r.move(i/3%2, idx, r.piece)
		}
		victim := calls[i*31%len(calls)]
		owner := 0
		if victim.Items[0].NS == back && i*31%len(calls)%2 == 1 {
			owner = 1
		}
		r.end[owner].Cancel(r.now, victim, wire.CodeCancelled)
	}
	r.piece = 1 << 30
	r.run()
	for i, c := range calls {
		if !c.over {
			t.Fatalf("call %d never ended", i)
		}
	}
	r.settled()
}

// The round trip is that of PING, and of nothing that waits for something else.
func TestTheRoundTripIsThatOfPing(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	took := func(c *Call, d time.Duration) {
		t.Helper()
		r.end[0].StartOn(r.now, 0, c)
		r.move(0, 0, 1<<20)
		r.now += d
		r.run()
		if !c.over || c.Code != wire.CodeOK {
			t.Fatalf("%v: %v", c.Type, c.Code)
		}
	}
	took(&Call{Type: proto.TypePing, Timeout: time.Minute}, 30*time.Millisecond)
	took(&Call{Type: proto.TypeHas, Timeout: time.Minute, Items: []Item{{NS: num, Key: r.key("x")}}}, time.Second)
	if got := r.end[0].RTT(); got != 30*time.Millisecond {
		t.Errorf("%v, want 30ms", got)
	}
}

// A call by a lane of choice has the time that it asks for.
func TestACallByALaneHasItsTime(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	c := &Call{Type: proto.TypeHas, Timeout: 3 * time.Second, Items: []Item{{NS: num, Key: r.key("x")}}}
	r.end[0].StartOn(r.now, 1, c)
	r.stall(2 * time.Second)
	if c.over {
		t.Errorf("over with %v before its time", c.Code)
	}
	r.stall(2 * time.Second)
	if c.Code != wire.CodeDeadline {
		t.Errorf("after its time: over %v, %v", c.over, c.Code)
	}
}

// A request ends with the first look at its deadline, at either side.
func TestARequestEndsAtItsDeadline(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	r.put(1, 300_000, "x")
	c := r.pull(0, proto.ClassUrgent, num, 300_000, "x")
	r.move(0, 1, 1<<20)
	mine, theirs := c.r, r.end[1].served[c.r.id]
	mine.deadline, theirs.deadline = r.now+time.Second, r.now+2*time.Second
	r.end[0].Tick(mine.deadline - 1)
	if c.over {
		t.Error("the call ended before its deadline")
	}
	r.end[0].Tick(mine.deadline)
	if c.Code != wire.CodeDeadline {
		t.Errorf("the call at its deadline: over %v, %v", c.over, c.Code)
	}
	r.end[1].Tick(theirs.deadline - 1)
	if theirs.dead {
		t.Error("what is served ended before its deadline")
	}
	r.end[1].Tick(theirs.deadline)
	if theirs.code != wire.CodeDeadline {
		t.Errorf("what is served at its deadline: %v", theirs.code)
	}
}

// A frame that the peer begins and does not end: a byte now and then is a sign of life,
// and no frame. Small ones that follow each other slowly are.
func TestAFrameThatHasBegunEnds(t *testing.T) {
	for _, c := range []struct {
		bytes int // of 44 and more of a frame, in 4 s
		dead  bool
	}{{1, true}, {30, false}} {
		r := newRig(t, 1, proto.Limits{})
		for range 20 {
			r.end[0].StartOn(r.now, 0, &Call{Type: proto.TypeHas, Timeout: time.Hour, Items: []Item{{Key: r.key("x")}}})
		}
		start := r.now
		l := r.end[1].Lane(0)
		for n := 0; n < 20 && !l.dead; n++ {
			if r.move(0, 0, c.bytes) != c.bytes {
				t.Fatal("all frames are out")
			}
			r.move(1, 0, 1<<20)
			for end := r.now + 4*time.Second; r.now < end && !l.dead; r.now += 50 * time.Millisecond {
				r.end[1].Tick(r.now)
			}
		}
		if d := r.now - start; l.dead != c.dead || l.dead && (d < proto.FrameStall || d > proto.FrameStall+time.Second) {
			t.Errorf("%d bytes in 4 s: dead %v after %v, want %v after %v", c.bytes, l.dead, d, c.dead, proto.FrameStall)
		}
	}
}
