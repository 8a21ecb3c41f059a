package core

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// handedOut is a write of side i that the peer has in full before the writer is
// told so: what a second lane brings in between finds the request ended. finish
// tells the writer.
func (r *rig) handedOut(i int, idx uint8) (finish func()) {
	tx, rx := r.end[i].Lane(idx), r.end[1-i].Lane(idx)
	var run []byte
	for _, p := range tx.TxWant(nil) {
		run = append(run, p...)
	}
	for b := run; len(b) > 0; {
		took := 0
		for _, p := range rx.RxWant(nil) {
			took += copy(p, b[took:])
		}
		rx.RxGot(r.now, took)
		b = b[took:]
		r.gather(1-i, rx)
	}
	return func() { tx.TxDid(r.now, len(run)) }
}

// A request counts to its END and no longer: whoever has END may use its place by
// another lane at once, also while the write that carried END has not returned.
func TestAPlaceIsFreeOnceEndIsHandedOut(t *testing.T) {
	r := newRig(t, 2, proto.Limits{Reqs: 1, Items: 8, Frame: 65536, BytesInFlight: 1000})
	num := r.open(1)
	r.put(0, 900, "x", "y")
	c := r.pull(1, proto.ClassUrgent, num, 1000, "x")
	idx := c.r.lane.idx
	r.move(1, idx, r.piece)
	finish := r.handedOut(0, idx)
	wantCodes(t, c, wire.CodeOK)
	if st := r.end[0].Stats(); st.Served != 1 {
		t.Fatalf("%d requests are served: the writer has been told", st.Served)
	}
	next := &Call{Type: proto.TypePull, Items: []Item{{NS: num, Key: r.key("y"), Room: make([]byte, 1000)}}}
	r.end[1].StartOn(r.now, 3-idx, next)
	r.move(1, 3-idx, r.piece)
	finish()
	r.run()
	wantCodes(t, next, wire.CodeOK)
	if n := r.end[0].Stats().Totals.Busy; n != 0 {
		t.Errorf("BUSY %d times", n)
	}
	r.settled()
}

// A write that the peer did not take in full leaves the request counted.
func TestAPlaceIsTakenUntilEndIsOut(t *testing.T) {
	r := newRig(t, 2, proto.Limits{Reqs: 1, Items: 8, Frame: 65536, BytesInFlight: 1000})
	num := r.open(1)
	r.put(0, 900, "x")
	c := r.pull(1, proto.ClassUrgent, num, 1000, "x")
	idx := c.r.lane.idx
	r.move(1, idx, r.piece)
	for r.move(0, idx, 100) == 100 {
		if st := r.end[0].Stats(); st.ServedBytes != 1000 && !c.r.ended {
			t.Fatalf("%d bytes are counted before END is out", st.ServedBytes)
		}
		if c.over {
			break
		}
	}
	r.run()
	wantCodes(t, c, wire.CodeOK)
	r.settled()
}

// A pull that goes on where another one ended counts, at both sides, for the bytes that
// are missing, and brings those.
func TestAPullGoesOnWithinLimitsThatTheWholeWouldExceed(t *testing.T) {
	r := newRig(t, 1, proto.Limits{Reqs: 1, Items: 1, Frame: 65536, BytesInFlight: 1000})
	num := r.open(0)
	r.put(1, 1500, "x")
	want := body("x", 1500)
	head := wire.Header{BodyLen: 1500, Tier: wire.OutputCritical, Sum: wire.SumOf(want)}
	room := make([]byte, 1500)
	copy(room, want[:600])
	c := &Call{Type: proto.TypePull, Timeout: time.Second, Items: []Item{{NS: num, Key: r.key("x"), Room: room, Off: 600}}}
	if h := r.store[1].blocks[r.key("x")].Head; h.Sum != head.Sum {
		t.Fatal("the block is another one")
	}
	c.Items[0].Head = [32]byte(r.store[1].blocks[r.key("x")].Head.Append(nil))
	r.end[0].Start(r.now, c)
	r.run()
	wantCodes(t, c, wire.CodeOK)
	if c.Code != wire.CodeOK {
		t.Errorf("the call: %v %s", c.Code, c.Text)
	}
	if !bytes.Equal(room, want) || r.end[1].Stats().Totals.Busy != 0 {
		t.Errorf("the bytes are right: %v; BUSY %d times", bytes.Equal(room, want), r.end[1].Stats().Totals.Busy)
	}
	r.settled()
}

// The numbers of namespaces end with the count that the protocol allows.
func TestNumbersOfNamespacesEndWithTheirCount(t *testing.T) {
	s := New(Config{Store: newMemStore()})
	for num, ok := range map[uint16]bool{0: false, 1: true, proto.MaxNamespaces: true, proto.MaxNamespaces + 1: false} {
		if err := (&request{typ: proto.TypeOpen}).checkOpened(proto.Opened{NS: num}); (err == nil) != ok {
			t.Errorf("OPENED with %d: %v", num, err)
		}
		if err := s.standing((proto.Standing{NS: num, N: 1, Len: 1}).Append(nil)); (err == nil) != ok {
			t.Errorf("STANDING for %d: %v", num, err)
		}
	}
	r := newRig(t, 1, proto.Limits{})
	r.end[1].nsIn = make([]openNS, proto.MaxNamespaces-1)
	for i, want := range []wire.Code{wire.CodeOK, wire.CodeTooMany} {
		m := manifest("t")
		m.Role = fmt.Sprint("role ", i)
		c := &Call{Type: proto.TypeOpen, Manifest: m.Append(nil), Timeout: time.Second}
		r.end[0].Start(r.now, c)
		if r.run(); c.Code != want {
			t.Errorf("namespace %d: %v, want %v", proto.MaxNamespaces+i, c.Code, want)
		}
	}
}

// A request at an agreed count begins, up to twice as much it is BUSY, and beyond that
// the lane ends.
func TestRequestsAreJudgedByTheAgreedCounts(t *testing.T) {
	r := newRig(t, 1, proto.Limits{Reqs: 4, Items: 5, Frame: 65536, BytesInFlight: 1000})
	s, l := r.end[1], r.end[1].Lane(1)
	for _, c := range []struct {
		running, items int
		bytes          uint64
		want           wire.Code
	}{
		{3, 5, 1000, wire.CodeOK},
		{4, 1, 1, wire.CodeBusy}, {7, 1, 1, wire.CodeBusy}, {8, 1, 1, wire.CodeFlowViolation},
		{0, 6, 1, wire.CodeBusy}, {0, 10, 1, wire.CodeBusy}, {0, 11, 1, wire.CodeFlowViolation},
		{0, 1, 1001, wire.CodeBusy}, {0, 1, 2000, wire.CodeBusy}, {0, 1, 2001, wire.CodeFlowViolation},
	} {
		s.servedReqs = c.running
		code, err := l.judge(proto.Frame{Req: 101}, 1000, c.items, c.bytes)
		if re, ok := errors.AsType[*refusal](err); ok {
			code = re.code
		}
		if code != c.want {
			t.Errorf("%d run, %d items, %d bytes: %v, want %v", c.running, c.items, c.bytes, code, c.want)
		}
	}
	s.servedReqs = 0
	l.turnAway(wire.CodeDeadline)
	if e := s.TakeEvents(); len(e) != 0 {
		t.Errorf("a request that came too late is told of: %+v", e)
	}
	l.turnAway(wire.CodeBusy)
	if e := s.TakeEvents(); len(e) != 1 || e[0].Kind != EventTurnedAway || e[0].Code != wire.CodeBusy {
		t.Errorf("BUSY is told of as %+v", e)
	}
	for n, ok := range map[int]bool{2*minUnread - 1: true, 2 * minUnread: false} {
		l.tx.unreadOther = n
		if err := l.mayAsk(103); (err == nil) != ok {
			t.Errorf("a question with %d answers unread: %v", n, err)
		}
		l.tx.unreadOther = n
		if err := l.serveCancel(r.now, proto.Frame{Req: 105}); (err == nil) != ok {
			t.Errorf("CANCEL with %d answers unread: %v", n, err)
		}
	}
}

// Calls that wait for the peer's limits can be taken back, run out of time where they
// stand, and begin in their order.
func TestCallsThatWaitForLimitsEndEachByItself(t *testing.T) {
	r := newRig(t, 1, proto.Limits{Reqs: 1, Items: 8, Frame: 65536, BytesInFlight: 1 << 20})
	num := r.open(0)
	r.put(1, 1000, "x")
	start := func(timeout time.Duration) *Call {
		c := &Call{Type: proto.TypePull, Timeout: timeout, Items: []Item{{NS: num, Key: r.key("x"), Room: make([]byte, 1000)}}}
		r.end[0].Start(r.now, c)
		return c
	}
	waiting := func(n int) {
		t.Helper()
		if st := r.end[0].Stats(); st.Waiting != n || st.Calls != 1 {
			t.Errorf("%d calls wait and %d run, want %d and 1", st.Waiting, st.Calls, n)
		}
	}
	runs, long, taken, short, last := start(time.Minute), start(time.Minute), start(time.Minute), start(time.Second), start(time.Minute)
	waiting(4)
	r.end[0].Cancel(r.now, taken, wire.CodeCancelled)
	wantCodes(t, taken, wire.CodeCancelled)
	waiting(3)
	r.end[0].Tick(r.now + time.Second - 1)
	waiting(3)
	r.end[0].Tick(r.now + time.Second)
	wantCodes(t, short, wire.CodeDeadline)
	waiting(2)
	r.run()
	for i, c := range []*Call{runs, long, last} {
		if wantCodes(t, c, wire.CodeOK); !c.over || c.Items[0].Got != 1000 {
			t.Errorf("call %d: over %v with %d bytes", i, c.over, c.Items[0].Got)
		}
	}
	if n := r.end[1].Stats().Totals.Busy; n != 0 {
		t.Errorf("BUSY %d times", n)
	}
	r.settled()
}
