package core

import (
	"fmt"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// pass moves time on in ticks of both sides, and lets f move bytes at each.
func (r *rig) pass(d time.Duration, f func()) {
	for end := r.now + d; r.now < end; {
		r.now += 50 * time.Millisecond
		r.end[0].Tick(r.now)
		r.end[1].Tick(r.now)
		if f != nil {
			f()
		}
	}
}

// endsAt moves time on until the call is over, and fails the test unless that is
// NO_PROGRESS, at proto.NoProgress and a tick.
func (r *rig) endsAt(t *testing.T, c *Call, f func()) {
	t.Helper()
	r.pass(proto.NoProgress-100*time.Millisecond, f)
	if c.over {
		t.Fatalf("over too early: %v", c.Code)
	}
	r.pass(200*time.Millisecond, f)
	if !c.over || c.Code != wire.CodeNoProgress {
		t.Fatalf("after %v: over %v, %v; want NO_PROGRESS", proto.NoProgress, c.over, c.Code)
	}
}

// Every stage at which a peer can stop: the asker ends its request after the time
// of the page, whatever the deadline, and nothing is left when the lane goes on.
func TestAPeerThatStopsAtAnyStageCostsFiveSeconds(t *testing.T) {
	pull := func(r *rig, num uint16) *Call { return r.pull(0, proto.ClassUrgent, num, 300_000, "x") }
	push := func(r *rig, num uint16) *Call { return r.push(0, proto.ClassUrgent, num, 300_000, "p") }
	for _, c := range []struct {
		name  string
		call  func(r *rig, num uint16) *Call
		moves [][2]int // side, bytes: what moves before it stops
	}{
		{"PULL is never read", pull, nil},
		{"no TABLE", pull, [][2]int{{0, 1 << 20}}},
		{"TABLE and no DATA", pull, [][2]int{{0, 1 << 20}, {1, 96}}},
		{"DATA stops", pull, [][2]int{{0, 1 << 20}, {1, 150_000}}},
		{"no END", pull, [][2]int{{0, 1 << 20}, {1, 200_000}, {1, 100_150}}},
		{"no GRANT", push, [][2]int{{0, 1 << 20}}},
		{"takes no DATA", push, [][2]int{{0, 1 << 20}, {1, 1 << 20}, {0, 100_000}}},
		{"COMMIT and no TABLE", push, [][2]int{{0, 1 << 20}, {1, 1 << 20}, {0, 1 << 20}, {0, 1 << 20}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, proto.Limits{})
			r.quiet = true
			num := r.open(0)
			r.put(1, 300_000, "x")
			call := c.call(r, num)
			for _, m := range c.moves {
				r.move(m[0], 1, m[1])
			}
			if call.over {
				t.Fatal("over already")
			}
			r.endsAt(t, call, nil)
			r.run()
			r.settled()
		})
	}
}

// HAS of a peer that has frozen ends likewise: who asked can go on elsewhere.
func TestAFrozenPeerDoesNotHoldUpHas(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	c := &Call{Type: proto.TypeHas, Timeout: time.Minute, Items: []Item{{NS: r.open(0), Key: r.key("x")}}}
	r.end[0].Start(r.now, c)
	r.endsAt(t, c, nil)
	r.run()
	r.settled()
}

// A byte a second, or a thousand, is no progress: what counts is minProgress.
func TestATrickleIsNoProgress(t *testing.T) {
	for _, perTick := range []int{1, 50, 600} {
		for _, push := range []bool{false, true} {
			t.Run(fmt.Sprint(perTick, " a tick, push ", push), func(t *testing.T) {
				r := newRig(t, 1, proto.Limits{})
				r.quiet = true
				num := r.open(0)
				r.put(1, 900_000, "x")
				var c *Call
				from := 1
				if push {
					c, from = r.push(0, proto.ClassUrgent, num, 900_000, "p"), 0
					r.move(0, 1, 1<<20)
					r.move(1, 1, 1<<20)
				} else {
					c = r.pull(0, proto.ClassUrgent, num, 900_000, "x")
					r.move(0, 1, 1<<20)
					r.move(1, 1, 96)
				}
				r.endsAt(t, c, func() { r.move(from, 1, perTick) })
				r.run()
				r.settled()
			})
		}
	}
}

// Slow is not stuck: a transfer that keeps to minProgress in the time goes on until
// its deadline.
func TestASlowTransferGoesOn(t *testing.T) {
	for _, push := range []bool{false, true} {
		r := newRig(t, 1, proto.Limits{})
		r.quiet = true
		num := r.open(0)
		r.put(1, 350_000, "x")
		var c *Call
		from := 1
		if push {
			c, from = r.push(0, proto.ClassUrgent, num, 350_000, "p"), 0
		} else {
			c = r.pull(0, proto.ClassUrgent, num, 350_000, "x")
		}
		r.move(0, 1, 1<<20)
		r.move(1, 1, 96)
		r.pass(26*time.Second, func() {
			r.move(from, 1, 64<<10/90)
			r.move(1-from, 1, 1<<20)
			r.move(0, 0, 1<<20)
			r.move(1, 0, 1<<20)
		})
		r.run()
		wantCodes(t, c, wire.CodeOK)
		r.settled()
	}
}

// One of two pulls on a lane stands still while the other gets on: it is ended in
// the same time, since the other is not ahead of it.
func TestAPullIsNotHiddenByAnotherOnItsLane(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(1)
	r.held = true // nothing is hashed: only the time counts
	still := r.pull(1, proto.ClassUrgent, num, 1000, "x")
	moving := r.pull(1, proto.ClassBulk, num, 100<<20, "y")
	id := still.r.id
	head := bodyHead(1000)
	r.feed(1, frameOf(proto.TypeTable, id, proto.Table{Items: []proto.Have{{Len: 1000, Head: [32]byte(head.Append(nil))}}}))
	head = bodyHead(100 << 20)
	r.feed(1, frameOf(proto.TypeTable, id+2, proto.Table{Items: []proto.Have{{Len: 100 << 20, Head: [32]byte(head.Append(nil))}}}))
	off := uint32(0)
	feed := func() {
		r.feed(1, append(proto.AppendData(nil, proto.Frame{Req: id + 2}, off, proto.MaxChunk), make([]byte, proto.MaxChunk)...))
		off += proto.MaxChunk
	}
	// What may pass before its turn are 256 frames, 12.8 s of them here.
	r.pass(12800*time.Millisecond+proto.NoProgress-100*time.Millisecond, feed)
	if still.over {
		t.Fatal("ended while others may go first")
	}
	r.pass(200*time.Millisecond, feed)
	if !still.over || still.Code != wire.CodeNoProgress || moving.over {
		t.Errorf("the one that stands still: over %v, %v; the other: over %v", still.over, still.Code, moving.over)
	}
}

// Bulk waits for as long as more urgent bytes take, and is not ended for it.
func TestBulkThatWaitsForUrgentBytesIsNotStuck(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(1)
	r.held = true
	bulk := r.pull(1, proto.ClassBulk, num, 1000, "x")
	urgent := r.pull(1, proto.ClassUrgent, num, 200<<20, "y")
	head := bodyHead(1000)
	r.feed(1, frameOf(proto.TypeTable, bulk.r.id, proto.Table{Items: []proto.Have{{Len: 1000, Head: [32]byte(head.Append(nil))}}}))
	head = bodyHead(200 << 20)
	r.feed(1, frameOf(proto.TypeTable, urgent.r.id, proto.Table{Items: []proto.Have{{Len: 200 << 20, Head: [32]byte(head.Append(nil))}}}))
	off := uint32(0)
	r.pass(18*time.Second, func() {
		r.feed(1, append(proto.AppendData(nil, proto.Frame{Req: urgent.r.id}, off, proto.MaxChunk), make([]byte, proto.MaxChunk)...))
		off += proto.MaxChunk
	})
	if bulk.over || urgent.over {
		t.Errorf("bulk: %v, %v; urgent: %v, %v", bulk.over, bulk.Code, urgent.over, urgent.Code)
	}
}

// What had come whole when a pull ends is OK after its check, whatever ends it;
// only the rest fails.
func TestBodiesThatHadComeWholeAreKept(t *testing.T) {
	for _, c := range []struct {
		want wire.Code
		end  func(r *rig, call *Call)
	}{
		{wire.CodeNoProgress, func(r *rig, _ *Call) { r.pass(6*time.Second, nil) }},
		{wire.CodeDeadline, func(r *rig, call *Call) {
			r.end[0].Tick(r.now + call.Timeout + time.Second)
		}},
		{wire.CodeLaneLost, func(r *rig, _ *Call) { r.lose(1) }},
		{wire.CodeCancelled, func(r *rig, call *Call) { r.end[0].Cancel(r.now, call, wire.CodeCancelled) }},
		{wire.CodeIncarnation, func(r *rig, _ *Call) { r.end[0].Drop(r.now, wire.CodeIncarnation) }},
	} {
		for _, held := range []bool{false, true} { // the hashes are done only afterwards
			t.Run(fmt.Sprint(c.want, " held ", held), func(t *testing.T) {
				r := newRig(t, 1, proto.Limits{})
				r.quiet = true
				num := r.open(0)
				r.put(1, 1000, "x", "y", "z")
				r.store[1].blocks[r.key("y")].Body[3] ^= 1
				r.held = held
				call := r.pull(0, proto.ClassUrgent, num, 1000, "x", "y", "z")
				r.move(0, 1, 1<<20)
				// TABLE, one frame of DATA with two bodies and a half.
				r.move(1, 1, 24+20+3*48+4+proto.HeadLen+2500)
				c.end(r, call)
				r.held = false
				r.work(0)
				wantCodes(t, call, wire.CodeOK, wire.CodeChecksum, c.want)
				if call.Code != c.want {
					t.Errorf("call: %v, want %v", call.Code, c.want)
				}
				if got := call.Items[2].Got; got != 500 {
					t.Errorf("%d bytes of the last one are there, want 500", got)
				}
				r.run()
				r.settled()
			})
		}
	}
}

// The server of a push waits for its bytes and its COMMIT no longer than the page
// says, and has the room back at once.
func TestAServedPushWithoutProgressIsEnded(t *testing.T) {
	for _, c := range []struct {
		name string
		feed func(r *rig, req uint64)
		each func(r *rig, req uint64, tick int)
	}{
		{"no DATA", func(*rig, uint64) {}, nil},
		{"a trickle", func(*rig, uint64) {}, func(r *rig, req uint64, tick int) {
			r.feed(1, append(proto.AppendData(nil, proto.Frame{Req: req}, uint32(tick), 1), 0))
		}},
		{"no COMMIT", func(r *rig, req uint64) {
			r.feed(1, append(proto.AppendData(nil, proto.Frame{Req: req}, 0, 200_000), make([]byte, 200_000)...))
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, num := quietRig(t)
			item := proto.PushItem{NS: num, Key: r.key("p"), Have: proto.Have{
				Tier: wire.ThinkActive, Len: 200_000, Head: [32]byte(bodyHead(200_000).Append(nil)),
			}}
			r.feed(1, frameOf(proto.TypePush, 201, proto.Push{DeadlineMS: 600_000, Items: []proto.PushItem{item}}))
			c.feed(r, 201)
			tick := 0
			each := func() {
				if c.each != nil {
					c.each(r, 201, tick)
				}
				tick++
			}
			r.pass(proto.NoProgress-100*time.Millisecond, each)
			if len(r.store[1].reserved) != 1 {
				t.Fatal("the room is gone too early")
			}
			r.pass(200*time.Millisecond, each)
			if len(r.store[1].reserved) != 0 || len(r.store[1].blocks) != 0 {
				t.Errorf("%d reservations, %d blocks", len(r.store[1].reserved), len(r.store[1].blocks))
			}
			if _, errors, ends := r.said(1); errors != 0 || ends < 1 {
				t.Errorf("%d ERROR, %d END", errors, ends)
			}
			for idx := range uint8(3) {
				r.lose(idx)
			}
			r.settled()
		})
	}
}

// A reader that takes a byte now and then holds a lane no longer than one that
// takes none.
func TestAPeerThatTakesATrickleLosesTheLane(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	r.put(1, 3_000_000, "x")
	r.pull(0, proto.ClassUrgent, num, 3_000_000, "x")
	r.move(0, 1, 1<<20)
	ping := uint64(1001)
	for end := r.now + WriteStall + time.Second; r.now < end; ping += 2 {
		r.feed(1, frameOf(proto.TypePing, ping, proto.Empty{})) // so it is not its silence that ends the lane
		r.now += proto.PingEvery / 2
		r.end[1].Tick(r.now)
		if l := r.end[1].Lane(1); l != nil && !l.Dead() {
			l.TxWant(nil)
			l.TxDid(r.now, 1)
		}
	}
	if l := r.end[1].Lane(1); l != nil && !l.Dead() {
		t.Error("the lane of a peer that reads a byte now and then is open")
	}
	if len(r.store[1].leases) != 0 {
		t.Error("a peer that reads a byte a tick still pins blocks")
	}
}

// A lane that had nothing to send for long is not taken for one whose peer reads
// nothing, however soon after the first new byte the time is looked at.
func TestALaneThatWasQuietIsNotStalled(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(1)
	r.held = true
	c := r.pull(1, proto.ClassUrgent, num, 100<<20, "x")
	r.said(1)
	head := bodyHead(100 << 20)
	r.feed(1, frameOf(proto.TypeTable, c.r.id, proto.Table{Items: []proto.Have{{Len: 100 << 20, Head: [32]byte(head.Append(nil))}}}))
	off := uint32(0)
	r.pass(WriteStall+5*time.Second, func() { // DATA comes all the time, so no PING is due
		n := 100_000
		r.feed(1, append(proto.AppendData(nil, proto.Frame{Req: c.r.id}, off, n), make([]byte, n)...))
		off += uint32(n)
	})
	r.pull(1, proto.ClassUrgent, num, 100, "y")
	r.end[1].Tick(r.now)
	if l := r.end[1].Lane(1); l == nil || l.Dead() {
		t.Error("the lane was closed")
	}
}
