package core

import (
	"errors"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

func TestASessionHasTheLanesOfTheProtocolAndEachOnce(t *testing.T) {
	s := New(Config{Store: newMemStore(), Namespaces: namespaces{}})
	for _, idx := range []uint8{0, 1, proto.MaxLanes} {
		if _, err := s.AddLane(time.Hour, idx, proto.Splitter{}); err != nil {
			t.Errorf("lane %d: %v", idx, err)
		}
		if _, err := s.AddLane(time.Hour, idx, proto.Splitter{}); !errors.Is(err, wire.CodeState) {
			t.Errorf("lane %d again: %v", idx, err)
		}
	}
	if _, err := s.AddLane(time.Hour, proto.MaxLanes+1, proto.Splitter{}); !errors.Is(err, wire.CodeState) {
		t.Errorf("lane %d: %v", proto.MaxLanes+1, err)
	}
}

// The time without lane 0 counts from its loss, whatever other lanes there are; before
// there was one it does not count.
func TestOnlyALaneZeroThatWasLostEndsASession(t *testing.T) {
	linger := time.Duration(DefaultLimits.LingerMS) * time.Millisecond
	at := func(lane uint8) *Session {
		s := New(Config{Store: newMemStore(), Namespaces: namespaces{}, Mine: DefaultLimits})
		if _, err := s.AddLane(time.Hour, lane, proto.Splitter{}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := at(0)
	s.LaneDown(time.Hour, s.Lane(0), wire.CodeLaneLost)
	s.Tick(time.Hour + linger - 1)
	if _, dead := s.Dead(); dead {
		t.Error("a session whose lane 0 may come back has ended")
	}
	s.Tick(time.Hour + linger)
	if code, dead := s.Dead(); !dead || code != wire.CodeLaneLost {
		t.Errorf("without lane 0 for %v: dead %v, %v", linger, dead, code)
	}
	s = at(1) // lane 0 may be on its way
	s.Tick(time.Hour)
	if _, dead := s.Dead(); dead {
		t.Error("a session whose lane 1 came first has ended")
	}
}

// A drain waits while something moves. What both sides do at the same time must not
// look as if nothing did.
func TestMovesChangesWithAllThatHappens(t *testing.T) {
	r := newRig(t, 2, proto.Limits{})
	num := [2]uint16{r.open(0), r.open(1)}
	last := r.end[0].Moves()
	changed := func(what string) {
		t.Helper()
		if n := r.end[0].Moves(); n == last {
			t.Errorf("%s: the number is %d as before", what, n)
		} else {
			last = n
		}
	}
	pullOf := func(num uint16) *Call {
		return &Call{Type: proto.TypePull, Timeout: time.Minute, Items: []Item{{NS: num, Key: r.key("x"), Room: make([]byte, 1000)}}}
	}
	for i, s := range r.end {
		s.Start(r.now, &Call{Type: proto.TypeHas, Timeout: time.Second, Items: []Item{{NS: num[i], Key: r.key("x")}}})
	}
	r.run()
	changed("a request each way began and ended")
	running := func(n int) {
		t.Helper()
		if st := r.end[0].Stats(); st.Calls != n || st.Served != n {
			t.Fatalf("%d calls, %d served; want %d each", st.Calls, st.Served, n)
		}
	}
	r.put(0, 1000, "x")
	theirs := pullOf(num[1])
	r.end[1].StartOn(r.now, 1, theirs)
	r.move(1, 1, 1<<20)
	r.end[0].StartOn(r.now, 2, pullOf(num[0]))
	running(1)
	changed("two requests began")
	r.move(0, 2, 1<<20)
	r.end[1].Cancel(r.now, theirs, wire.CodeCancelled)
	for lane := range uint8(3) {
		r.move(1, lane, 1<<20)
	}
	running(0)
	changed("two requests ended")
	r.run()
	r.put(1, 1000, "x")
	r.pull(0, proto.ClassUrgent, num[0], 1000, "x")
	r.run()
	changed("a body came")
	r.settled()
}
