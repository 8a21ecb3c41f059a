package core

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// These tests are of limits at their edges, and of what a message says at the places
// where it may say two things.

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

// A pull from the beginning takes the block that is there now, whatever was known of an
// earlier one.
func TestAPullFromTheBeginningTakesWhatIsThereNow(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 1000, "x")
	c := &Call{Type: proto.TypePull, Timeout: time.Second, Items: []Item{{NS: num, Key: r.key("x"), Room: make([]byte, 1000)}}}
	c.Items[0].Head = [32]byte(bodyHead(999).Append(nil))
	r.end[0].Start(r.now, c)
	r.run()
	wantCodes(t, c, wire.CodeOK)
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

// What TABLE said of an item stays so, whatever ends the pull.
func TestWhatIsNotThereStaysSoWhenAPullIsCancelled(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 300_000, "x")
	c := r.pull(0, proto.ClassUrgent, num, 300_000, "none", "x")
	r.move(0, 1, 1<<20)
	r.move(1, 1, 2000)
	r.end[0].Cancel(r.now, c, wire.CodeCancelled)
	r.run()
	wantCodes(t, c, wire.CodeAbsent, wire.CodeCancelled)
	r.settled()
}

// A push whose COMMIT is out is not taken back by ABORT: the holder is publishing it.
func TestAPushThatIsCommittedIsNotAborted(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	c := r.push(0, proto.ClassUrgent, num, 1000, "p")
	r.move(0, 1, 1<<20)
	r.move(1, 1, 1<<20)
	r.held = true // the holder has not checked it yet
	r.move(0, 1, 1<<20)
	if c.r.ask.state != askCommitted {
		t.Fatalf("state %v", c.r.ask.state)
	}
	r.end[0].Cancel(r.now, c, wire.CodeCancelled)
	r.move(0, 1, 1<<20)
	r.held = false
	r.work(1)
	r.run()
	if strings.Contains(r.log.String(), "ABORT") {
		t.Error("ABORT after COMMIT")
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

// What is under way to homes is taken off what STANDING says there are.
func TestStandingCountsWithoutWhatIsUnderWay(t *testing.T) {
	s := New(Config{Store: newMemStore()})
	s.allowed = map[uint16]*allowance{1: {out: 3}}
	for n, want := range map[uint32]int{10: 7, 3: 0, 2: 0} {
		if err := s.standing((proto.Standing{NS: 1, N: n, Len: 100}).Append(nil)); err != nil || s.allowed[1].have != want {
			t.Errorf("of %d: %d, %v; want %d", n, s.allowed[1].have, err, want)
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

// An item whose key came before in its push ends as the one before.
func TestATwinEndsAsTheItemBefore(t *testing.T) {
	s := New(Config{Store: newMemStore()})
	end := func(code wire.Code) []wire.Code {
		b := []Block{{}, {Code: wire.CodeExists}, {Code: wire.CodeFull}}
		return slices.Clone(s.endOf(&request{typ: proto.TypePush, code: code, serve: &serve{blocks: b, twin: []int32{-1, 0, -1}}}).Status)
	}
	if got, want := end(wire.CodeOK), []wire.Code{0, wire.CodeExists, wire.CodeFull}; !slices.Equal(got, want) {
		t.Errorf("of one that is done: %v, want %v", got, want)
	}
	if got, want := end(wire.CodeDeadline), []wire.Code{wire.CodeDeadline, wire.CodeDeadline, wire.CodeFull}; !slices.Equal(got, want) {
		t.Errorf("of one that is not: %v, want %v", got, want)
	}
}

// All namespaces together have as many homes as a session may, and no job is begun for
// none.
func TestNoJobIsBegunForNoHomes(t *testing.T) {
	r := newHomeRig(t, 1, proto.Limits{}, 8)
	r.quiet = true
	first := r.as("a", 4096)
	r.pushes(first, 3000, 1, "of the first")
	if got := r.stockOf(first); got != 8 {
		t.Fatalf("%d homes, want 8", got)
	}
	second := r.as("b", 4096)
	r.stockHeld = true
	r.pushes(second, 3000, 1, "of the second")
	if len(r.stocks[1]) != 0 || r.end[1].homes != 8 {
		t.Errorf("%d jobs for homes, %d homes", len(r.stocks[1]), r.end[1].homes)
	}
	r.stockHeld = false
	r.pushes(first, 3000, 4, "more of the first ") // which are filled up again, below half
	r.pushes(second, 3000, 1, "more of the second")
	if r.end[1].homes > 8 {
		t.Errorf("%d homes of all namespaces, want 8 at most", r.end[1].homes)
	}
}

// A lane that was refused and whose ERROR nobody takes is closed all the same.
func TestALaneWhoseErrorIsNotReadIsClosed(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.open(0)
	r.feed(1, frameOf(proto.TypeCommit, 999, proto.Empty{}))
	l := r.end[1].Lane(1)
	if !l.failed {
		t.Fatal("the lane was not refused")
	}
	r.end[1].Tick(r.now + 2*proto.DrainError - 1)
	if l.Dead() {
		t.Error("it is closed before its peer could read why")
	}
	r.end[1].Tick(r.now + 2*proto.DrainError)
	if !l.Dead() {
		t.Error("it is open")
	}
}

// ERROR says where the frame begins that was refused.
func TestAnErrorHasTheOffsetOfItsFrame(t *testing.T) {
	first := frameOf(proto.TypePing, 101, proto.Empty{})
	for name, c := range map[string][]byte{
		"a message":          frameOf(proto.TypeCommit, 999, proto.Empty{}),
		"an unknown frame":   frameOf(0x7f, 103, proto.Empty{}),
		"DATA of no request": append(proto.AppendData(nil, proto.Frame{Req: 999}, 0, 10), make([]byte, 10)...),
	} {
		r := newRig(t, 1, proto.Limits{})
		r.feed(1, first)
		r.end[1].Lane(1).tx.unreadOther = 2 * proto.MaxReqs // so that even an unknown frame is one too many
		r.feed(1, c)
		var m proto.Error
		sp := proto.Splitter{Begun: true}
		for _, p := range r.end[1].Lane(1).TxWant(nil) {
			for len(p) > 0 {
				n, ev, err := sp.Next(p)
				if err != nil {
					t.Fatal(err)
				}
				if p = p[n:]; ev.Kind == proto.EventMessage && ev.Frame.Type == proto.TypeError {
					m, _ = proto.Parse[proto.Error](ev.Payload)
				}
			}
		}
		if m.Code == wire.CodeOK || m.Offset != uint64(len(first)) {
			t.Errorf("%s: %v at %d, want %d", name, m.Code, m.Offset, len(first))
		}
	}
}

// What GRANT, TABLE and END say of a push's items: the first word against an item stands,
// with statuses in END or without.
func TestTheFirstWordAgainstAnItemStands(t *testing.T) {
	both := func(f func(r *rig, c *Call, req uint64), want ...wire.Code) {
		t.Helper()
		r := newRig(t, 1, proto.Limits{})
		r.quiet = true
		c := r.push(1, proto.ClassUrgent, r.open(1), 100, "x", "y")
		r.said(1)
		f(r, c, c.r.id)
		if !c.over {
			t.Fatal("the push is not over")
		}
		wantCodes(t, c, want...)
	}
	both(func(r *rig, c *Call, req uint64) {
		r.feed(1, frameOf(proto.TypeGrant, req, proto.Grant{Status: []wire.Code{wire.CodeOK, wire.CodeFull}}))
		r.said(1)
		r.feed(1, frameOf(proto.TypeTable, req, proto.Table{Items: haves(c, wire.CodeOK, wire.CodeFull)}))
		r.feed(1, frameOf(proto.TypeEnd, req, proto.End{}))
	}, wire.CodeOK, wire.CodeFull)
	both(func(r *rig, c *Call, req uint64) {
		r.feed(1, frameOf(proto.TypeEnd, req, proto.End{Code: wire.CodeTooMany, Status: []wire.Code{wire.CodeOK, wire.CodeFull}}))
	}, wire.CodeTooMany, wire.CodeFull)
	it := &Item{Code: wire.CodeFull}
	if it.told(proto.TypePush, &proto.Have{Slot: 1, Gen: 2}); it.Code != wire.CodeFull || it.Slot != 0 {
		t.Errorf("an item that GRANT refused: %v, slot %d", it.Code, it.Slot)
	}
}

func haves(c *Call, codes ...wire.Code) (h []proto.Have) {
	for i, code := range codes {
		x := proto.Have{Status: code}
		if code == wire.CodeOK {
			x = proto.Have{Len: 100, Slot: uint32(i + 1), Gen: 2, Tier: wire.OutputCritical, Att: wire.AttestProducer, Head: c.Items[i].Head}
		}
		h = append(h, x)
	}
	return h
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

// ERROR ends its lane, and is told of with its code and text.
func TestAnErrorOfThePeerEndsItsLane(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.open(0)
	r.feed(1, frameOf(proto.TypeError, 0, proto.Error{Code: wire.CodeCRC, Text: "why"}))
	l := r.end[1].Lane(1)
	i := slices.IndexFunc(r.end[1].TakeEvents(), func(e Event) bool { return e.Kind == EventPeerError && e.Code == wire.CodeCRC && e.Text == "why" })
	if i < 0 || !l.Dead() {
		t.Errorf("told of: %v; dead: %v", i >= 0, l.Dead())
	}
}

// END may come twice for what was asked; for what was not asked yet it is refused.
func TestEndOfWhatWasNotAskedYetIsRefused(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.open(1)
	l, next := r.end[1].Lane(1), r.end[1].nextReq
	if r.feed(1, frameOf(proto.TypeEnd, next-2, proto.End{})); l.failed {
		t.Error("a second END ended the lane")
	}
	if r.feed(1, frameOf(proto.TypeEnd, next, proto.End{})); !l.failed {
		t.Error("END of what was not asked was taken")
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
