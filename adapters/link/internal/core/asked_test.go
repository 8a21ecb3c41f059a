package core

import (
	"fmt"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// sent takes what side i has to send on a lane, and gives its first message, which
// the other side does not get.
func (r *rig) sent(i int, idx uint8) (f proto.Frame, p []byte) {
	r.tb.Helper()
	l := r.end[i].Lane(idx)
	var run []byte
	for _, b := range l.TxWant(nil) {
		run = append(run, b...)
	}
	l.TxDid(r.now, len(run))
	sp := proto.Splitter{Begun: true}
	for len(run) > 0 {
		n, ev, err := sp.Next(run)
		if err != nil {
			r.tb.Fatal(err)
		}
		if ev.Kind == proto.EventMessage {
			return ev.Frame, append([]byte(nil), ev.Payload...)
		}
		run = run[n:]
	}
	r.tb.Fatalf("%s sends nothing on lane %d", sides[i], idx)
	return f, nil
}

func asMessage[M any, P interface {
	*M
	Parse([]byte) error
}](tb testing.TB, p []byte) (m M) {
	tb.Helper()
	if err := P(&m).Parse(p); err != nil {
		tb.Fatal(err)
	}
	return m
}

// What a call asks for goes out in milliseconds from now.
func TestWhatIsAskedForIsInMilliseconds(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	s := r.end[0]
	items := []Item{{NS: num, Key: r.key("x"), Room: make([]byte, 10)}}
	s.Start(r.now, &Call{Type: proto.TypeHas, Timeout: 1234 * time.Millisecond, Items: items})
	if _, p := r.sent(0, 0); asMessage[proto.Has](t, p).DeadlineMS != 1234 {
		t.Errorf("HAS: %+v", asMessage[proto.Has](t, p))
	}
	s.Start(r.now, &Call{Type: proto.TypePull, Timeout: 2345 * time.Millisecond, LeaseFor: 3456 * time.Millisecond, Items: items})
	if _, p := r.sent(0, 1); asMessage[proto.Pull](t, p).DeadlineMS != 2345 || asMessage[proto.Pull](t, p).LeaseMS != 3456 {
		t.Errorf("PULL: %+v", asMessage[proto.Pull](t, p))
	}
	s.Start(r.now, &Call{Type: proto.TypePush, Timeout: 4567 * time.Millisecond, Items: items})
	if _, p := r.sent(0, 1); asMessage[proto.Push](t, p).DeadlineMS != 4567 {
		t.Errorf("PUSH: %+v", asMessage[proto.Push](t, p))
	}
	s.Start(r.now, &Call{Type: proto.TypeRenew, Lease: [16]byte{1}, LeaseFor: 5678 * time.Millisecond})
	if _, p := r.sent(0, 0); asMessage[proto.Renew](t, p).MS != 5678 {
		t.Errorf("RENEW: %+v", asMessage[proto.Renew](t, p))
	}
	if got := s.Stats().Totals.RequestsOut; got != 5 { // OPEN too
		t.Errorf("%d requests went out", got)
	}
}

// What is pinned, and room that is made, lasts a little longer than the request.
func TestPinsAndRoomOutliveTheDeadlineALittle(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	r.put(1, 100, "x")
	r.end[0].Start(r.now, &Call{Type: proto.TypePull, Timeout: 3 * time.Second, Items: []Item{{NS: num, Key: r.key("x"), Room: make([]byte, 100)}}})
	r.run()
	if got := r.store[1].ttl; got != 3*time.Second+pinSlack {
		t.Errorf("pinned for %v", got)
	}
	c := r.push(0, proto.ClassUrgent, num, 100, "y")
	r.run()
	wantCodes(t, c, wire.CodeOK)
	if got := r.store[1].ttl; got != 30*time.Second+pinSlack {
		t.Errorf("room for %v", got)
	}
	r.settled()
}

// The time from a call to its answer is known, of each call and of the session.
func TestTheTimeOfAnAnswer(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	has := &Call{Type: proto.TypeHas, Timeout: time.Second, Items: []Item{{NS: num, Key: r.key("x")}}}
	ping := &Call{Type: proto.TypePing, Timeout: time.Second}
	r.end[0].Start(r.now, has)
	r.end[0].Start(r.now, ping)
	r.now += 7 * time.Millisecond
	r.run()
	if has.RTT != 7*time.Millisecond || ping.RTT != 7*time.Millisecond || r.end[0].rtt != 7*time.Millisecond {
		t.Errorf("HAS %v, PING %v, session %v", has.RTT, ping.RTT, r.end[0].rtt)
	}
}

// GOAWAY says how long there is, and the session is over when it is.
func TestTheTimeThatGoAwayGives(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.end[1].GoAway(r.now, 1500, wire.CodeDraining, "bye")
	began := r.now
	r.handedOut(1, 0)()
	if e := r.end[0].TakeEvents(); len(e) != 1 || e[0].Kind != EventGoAway || e[0].Took != 1500*time.Millisecond {
		t.Errorf("the peer heard %+v", e)
	}
	r.end[1].Tick(began + 1499*time.Millisecond)
	if _, dead := r.end[1].Dead(); dead {
		t.Error("over before its time")
	}
	r.end[1].Tick(began + 1500*time.Millisecond)
	if _, dead := r.end[1].Dead(); !dead {
		t.Error("not over at its time")
	}
}

// The offset in ERROR is that of the fault in the lane.
func TestTheOffsetOfAFault(t *testing.T) {
	for name, bad := range map[string][]byte{
		"in its payload": frameOf(proto.TypeStanding, 0, proto.Standing{NS: 1, Tier: 3}),
		"out of place":   frameOf(proto.TypeCommit, 77, proto.Empty{}),
	} {
		r := newRig(t, 1, proto.Limits{})
		r.quiet = true
		r.open(0)
		l := r.end[1].Lane(1)
		ping := frameOf(proto.TypePing, 101, proto.Empty{})
		r.feed(1, ping)
		r.sent(1, 1)
		start := l.rx.sp.Offset()
		if start != uint64(len(ping)) {
			t.Fatalf("the lane is at %d", start)
		}
		r.feed(1, bad)
		f, p := r.sent(1, 1)
		if f.Type != proto.TypeError {
			t.Fatalf("%s: %s", name, f.Type)
		}
		want := start
		if name == "in its payload" {
			want += proto.FrameLen + 2
		}
		if m := asMessage[proto.Error](t, p); m.Offset != want {
			t.Errorf("%s: fault at %d, want %d", name, m.Offset, want)
		}
	}
}

// What was served is told with its blocks, bytes and refusals.
func TestWhatWasServedIsTold(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	r.put(1, 100, "x", "y")
	served := func() (e Event) {
		t.Helper()
		for range 3 {
			r.handedOut(0, 1)()
			r.handedOut(1, 1)()
		}
		n := 0
		for _, x := range r.end[1].TakeEvents() {
			if x.Kind == EventServed {
				e, n = x, n+1
			}
		}
		if n != 1 {
			t.Errorf("%d were served", n)
		}
		return e
	}
	r.pull(0, proto.ClassNormal, num, 200, "x", "y", "nowhere")
	r.handedOut(0, 1)()
	r.now += time.Second
	if e := served(); e.Push || e.Items != 2 || e.Bytes != 200 || fmt.Sprint(e.Refused) != "[ABSENT]" || e.Took != time.Second || e.Class != proto.ClassNormal {
		t.Errorf("PULL: %+v", e)
	}
	r.push(0, proto.ClassUrgent, num, 100, "x", "p", "q")
	if e := served(); !e.Push || e.Items != 2 || e.Bytes != 200 || len(e.Refused) != 0 {
		t.Errorf("PUSH: %+v", e)
	}
}
