package core

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// A push that is taken back when its last body byte is out, but no byte of its
// COMMIT, is not committed: ABORT goes in its place, and nothing is published.
func TestAPushTakenBackBeforeCommitIsNotCommitted(t *testing.T) {
	for _, bodyLeft := range []int{0, 1, 2999} {
		r := newRig(t, 1, proto.Limits{})
		num := r.open(0)
		c := r.push(0, proto.ClassUrgent, num, 3000, "p")
		r.move(0, 1, 1<<20) // PUSH
		r.move(1, 1, 1<<20) // GRANT
		r.move(0, 1, proto.HeadLen+3000-bodyLeft)
		r.log.Reset()
		r.end[0].Cancel(r.now, c, wire.CodeCancelled)
		wantCodes(t, c, wire.CodeCancelled)
		r.run()
		r.run() // the frame at hand may end without a byte, and something follow it
		got := r.log.String()
		if !strings.Contains(got, "a 1 ABORT") || strings.Contains(got, "COMMIT") || strings.Contains(got, "checksum") {
			t.Errorf("%d bytes left:\n%s", bodyLeft, got)
		}
		if len(r.store[1].blocks) != 0 {
			t.Error("a push that was taken back was published")
		}
		r.settled()
	}
}

// A pull that runs out of time when its last body byte is out, but no byte of its
// END, does not end OK at the holder.
func TestAPullThatRunsOutOfTimeBeforeItsEndDoesNotEndOK(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 3000, "x")
	c := &Call{Type: proto.TypePull, Timeout: 300 * time.Millisecond, Items: []Item{{NS: num, Key: r.key("x"), Room: make([]byte, 3000)}}}
	r.end[0].Start(r.now, c)
	r.move(0, 1, 1<<20)
	r.move(1, 1, tableFrame+proto.HeadLen+3000)
	r.log.Reset()
	r.now += 320 * time.Millisecond // the holder's time; the asker's is a little longer
	r.end[1].Tick(r.now)
	r.run()
	r.run()
	if got := r.log.String(); !strings.Contains(got, "END req=3 DEADLINE [OK]") || strings.Contains(got, "END req=3 OK") {
		t.Errorf("what went:\n%s", got)
	}
	wantCodes(t, c, wire.CodeOK) // the body had come
	r.settled()
}

// A push that stops tells the receiver so, which has its room back while the lane
// lives on: taken back by its own side at any stage, or given up by the receiver.
func TestAPushThatStopsGivesItsRoomBackAtOnce(t *testing.T) {
	for name, stop := range map[string]func(r *rig, c *Call){
		"cancelled": func(r *rig, c *Call) { r.end[0].Cancel(r.now, c, wire.CodeCancelled) },
		"deadline": func(r *rig, c *Call) {
			c.r.deadline = r.now + 100*time.Millisecond
			r.now += 200 * time.Millisecond
			r.end[0].Tick(r.now)
		},
		"given up by the receiver": func(r *rig, _ *Call) {
			for _, q := range inOrder(r.end[1].served) {
				r.end[1].endServed(r.now, q, wire.CodeDeadline, "")
			}
			r.move(1, 1, 1<<20)
		},
	} {
		for stage, moves := range map[string][][2]int{
			"asked":     {{0, 1 << 20}},
			"granted":   {{0, 1 << 20}, {1, 1 << 20}},
			"in a body": {{0, 1 << 20}, {1, 1 << 20}, {0, 1000}},
		} {
			t.Run(name+" when "+stage, func(t *testing.T) {
				r := newRig(t, 1, proto.Limits{})
				num := r.open(0)
				c := r.push(0, proto.ClassUrgent, num, 3000, "p", "q")
				for _, m := range moves {
					r.move(m[0], 1, m[1])
				}
				r.log.Reset()
				stop(r, c)
				r.run()
				if got := r.log.String(); strings.Count(got, "a 1 ABORT") != 1 || strings.Contains(got, "COMMIT") {
					t.Errorf("what went:\n%s", got)
				}
				if n := len(r.store[1].reserved); n != 0 {
					t.Errorf("%d slots are still reserved", n)
				}
				if r.end[1].Lane(1) == nil {
					t.Error("the lane was closed")
				}
				r.settled()
			})
		}
	}
}

// A push that is taken back in the middle of a frame has its memory back at once: what is
// left of the frame is not read from it.
func TestWhatIsLeftOfAFrameIsNotOfMemoryThatWasGivenBack(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	c := r.push(0, proto.ClassUrgent, num, 300_000, "p")
	r.move(0, 1, 1<<20)
	r.move(1, 1, 1<<20)
	r.move(0, 1, 100_000)
	r.end[0].Cancel(r.now, c, wire.CodeCancelled)
	if !c.over {
		t.Fatal("the call is not over")
	}
	room := c.Items[0].Room
	for i := range room {
		room[i] = 0xAA
	}
	left := 0
	for _, p := range r.end[0].Lane(1).TxWant(nil) {
		left += len(p)
		if bytes.Contains(p, room[:64]) {
			t.Error("memory of a call that is over is sent")
		}
	}
	if left == 0 {
		t.Error("nothing is left of the frame")
	}
	r.end[0].Lane(1).TxDid(r.now, 0)
	r.run()
	r.settled()
}

// COMMIT that is with the writer is not out before a byte of it went: until then the peer
// may say nothing that only COMMIT allows.
func TestCommitIsOutOnceAByteOfItIs(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	c := r.push(0, proto.ClassUrgent, r.open(0), 3000, "p")
	r.move(0, 1, 1<<20)
	r.move(1, 1, 1<<20)
	l, all := r.end[0].Lane(1), 0
	for _, p := range l.TxWant(nil) {
		all += len(p)
	}
	if c.r.ask.state != askHanding {
		t.Fatalf("state %v: COMMIT goes apart", c.r.ask.state)
	}
	if l.TxDid(r.now, 100); c.r.ask.state != askGranted {
		t.Errorf("state %v after a part of the body, want that of GRANT", c.r.ask.state)
	}
	l.TxWant(nil)
	if l.TxDid(r.now, all-100); c.r.ask.state != askCommitted {
		t.Errorf("state %v after all, want that of COMMIT", c.r.ask.state)
	}
}
