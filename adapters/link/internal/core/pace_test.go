package core

import (
	"testing"
	"time"

	proto "meridian/wire/link"
)

const tick = 50 * time.Millisecond

// flow is what a lane moves at each tick, for some ticks, while a request waits.
type flow struct {
	in    [4]uint64 // by class
	out   uint64
	ticks int
}

// Where a request of class normal stands still, the other bytes of its lane say for
// how long it is waited for: those that go first at any length, the others as long as
// round robin may put them before it, and a trickle not at all.
func TestWhatALaneCarriesSaysHowLongARequestMayWait(t *testing.T) {
	const (
		wait = int(proto.NoProgress / tick)
		turn = maxPassed / minProgress // looks at minProgress each, that round robin may put before it
		long = 3 * turn
	)
	urgent := func(n, ticks int) flow { return flow{in: [4]uint64{proto.ClassUrgent: uint64(n)}, ticks: ticks} }
	equal := func(n, ticks int) flow { return flow{in: [4]uint64{proto.ClassNormal: uint64(n)}, ticks: ticks} }
	sent := func(n, ticks int) flow { return flow{out: uint64(n), ticks: ticks} }
	for _, c := range []struct {
		name  string
		left  uint64 // what the request has to send
		flows []flow
		want  int // ticks until it is stuck; 0: it is not, at the end
	}{
		{"nothing", 0, nil, wait},
		{"urgent bytes go first", 0, []flow{urgent(minProgress, long)}, 0},
		{"a trickle of them is nothing", 0, []flow{urgent(minProgress/(wait+1), wait)}, wait},
		{"others of its class pass once", 0, []flow{equal(minProgress, long)}, turn + wait},
		{"less urgent ones too", 0, []flow{{in: [4]uint64{proto.ClassBulk: minProgress}, ticks: long}}, turn + wait},
		{"what is sent passes once", 0, []flow{sent(minProgress, long)}, turn + wait},
		{"what is sent goes first where it sends", 1, []flow{sent(minProgress, long)}, 0},
		{"urgent bytes count once", 0, []flow{urgent(minProgress, 100), equal(minProgress, long)}, 100 + turn + wait},
		{"sent bytes count once", 1, []flow{sent(minProgress, 100), equal(minProgress, long)}, 100 + turn + wait},
		{"urgent bytes do not pass", 0, []flow{urgent(minProgress, long), equal(minProgress, turn)}, long + turn + wait},
		{"just enough urgent bytes", 0, []flow{urgent(minProgress, 1)}, 1 + wait},
		{
			"just enough of them beside others", 0,
			[]flow{equal(minProgress, turn+1), {in: [4]uint64{proto.ClassUrgent: minProgress, proto.ClassNormal: minProgress}, ticks: 1}}, turn + 2 + wait,
		},
		{
			"urgent bytes after what may pass", 0,
			[]flow{equal(minProgress, turn+wait/2), {in: [4]uint64{proto.ClassUrgent: minProgress, proto.ClassNormal: minProgress}, ticks: long}}, 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &Lane{moved: tally{in: [4]uint64{7 << 30, 5 << 30, 3 << 30}, out: 1 << 30}} // it has moved more before
			r := &request{lane: l, class: proto.ClassNormal}
			r.out.left = c.left
			now := time.Hour
			r.progress(now)
			stuck, ticks := 0, 0
			step := func(f flow) {
				for range f.ticks {
					if ticks++; stuck > 0 {
						return
					}
					now += tick
					for k, n := range f.in {
						l.moved.in[k] += n
					}
					l.moved.out += f.out
					if r.stuck(now) {
						stuck = ticks
					}
				}
			}
			for _, f := range c.flows {
				step(f)
			}
			if c.want > 0 {
				step(flow{ticks: 2 * wait})
			}
			if stuck != c.want {
				t.Errorf("stuck after %d ticks, want %d", stuck, c.want)
			}
		})
	}
}

// A request's own bytes are progress once they are minProgress, or the last of it.
func TestOwnBytesAreProgressOnceTheyAreEnough(t *testing.T) {
	for _, c := range []struct {
		n    int
		left uint64
		want bool
	}{{minProgress - 1, 1, false}, {minProgress, 1, true}, {1, 0, true}} {
		r := &request{lane: &Lane{}}
		r.movedOwn(time.Second, c.n, c.left)
		if got := r.pace.mark == time.Second; got != c.want {
			t.Errorf("%d bytes, %d left: progress %v, want %v", c.n, c.left, got, c.want)
		}
	}
}
