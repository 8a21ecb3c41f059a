package core

import (
	"fmt"
	"slices"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// Item is one block of a Call. Which fields are asked and which are answered
// depends on the call: see Call.
type Item struct {
	NS        uint16 // the number that OPENED gave
	Flags     uint16
	Key       wire.Key
	Slot, Gen uint32
	Off       uint32               // PULL: bytes that are in Room from an earlier try
	Room      []byte               // PULL: room for the body. PUSH: the body
	Head      [wire.HeaderLen]byte // PULL with Off: of the earlier try, if known
	Tier      wire.Tier
	Att       wire.Attest

	Len  uint32 // answer: bytes of the body
	Got  uint32 // PULL: bytes that are in Room now, verified or not
	Seen bool   // a TABLE told about it
	Code wire.Code

	Proof wire.Verified // PULL: of the body in Room, where all of it came and matched
}

// Call is a request of this side. Type says which, and the lane it goes by.
//
//	HAS, STAT  Items by NS and Key, or Slot and Gen; answered Head, Tier, Att, Len, Slot, Gen
//	PULL       the same, and Room; answered also Got
//	PUSH       Items with NS, Key, Head, Tier, Att and Room; answered Slot, Gen
//	OPEN       Manifest; answered Opened
//	RENEW      Lease and LeaseFor; RELEASE Leases; PING: answered RTT
//
// From Start until Done is closed the session owns the call and its items. Once
// it is closed no memory of the call is touched any more.
type Call struct {
	Type     proto.Type
	Class    proto.Class
	Timeout  time.Duration
	LeaseFor time.Duration
	Items    []Item
	Manifest []byte
	Lease    [16]byte
	Leases   [][16]byte

	Hops       uint32 // HAS, PUSH: daemons that the question or the blocks came through
	TwoFlights bool   // PUSH: wait for GRANT, also where homes stand ready
	Grows      bool   // PUSH of one item, whose Room is filled meanwhile: see grow.go

	Code   wire.Code
	Text   string
	Retry  time.Duration
	Opened proto.Opened
	RTT    time.Duration
	Done   chan struct{} // may be nil

	Delivered bool // PUSH: it went in one flight
	Starved   bool // PUSH that grows: it got no further for want of bytes, not by the peer

	deadline time.Duration
	bytes    uint64
	r        *request
	over     bool
	ready    int  // of a push that grows: what Grow said
	agreed   bool // and Agree
}

// Start sends a call, or keeps it until the peer's limits leave room.
func (s *Session) Start(now time.Duration, c *Call) {
	c.Timeout = min(max(c.Timeout, proto.MinDeadline), proto.MaxDeadline)
	c.deadline = now + c.Timeout
	for i := range c.Items {
		c.bytes += c.Items[i].cost()
	}
	switch {
	case s.dead:
		s.finishCall(c, s.why, "the session ended")
	case s.peerLeaves:
		s.finishCall(c, wire.CodeDraining, "the peer is leaving")
	case len(c.Items) > int(s.cfg.Theirs.Items):
		s.finishCall(c, wire.CodeTooLarge, fmt.Sprintf("%d items: the peer takes %d in one request", len(c.Items), s.cfg.Theirs.Items))
	case c.bytes > uint64(s.cfg.Theirs.BytesInFlight):
		s.finishCall(c, wire.CodeTooLarge, fmt.Sprintf("%d bytes: the peer takes %d at once", c.bytes, s.cfg.Theirs.BytesInFlight))
	case c.Grows:
		if code, text := s.mayGrow(c); code != wire.CodeOK {
			s.finishCall(c, code, text)
			return
		}
		s.begin(now, c)
	case c.counted() && (s.queued(c.Class) || !s.room(c)):
		s.queue[c.Class] = append(s.queue[c.Class], c)
	default:
		s.begin(now, c)
	}
}

// cost is what an item counts for against BytesInFlight.
func (it *Item) cost() uint64 { return uint64(max(len(it.Room)-int(it.Off), 0)) }

// Again makes a call ready to be started once more, where the peer was too busy to
// begin with it and said for how long. It reports whether that is so.
func (c *Call) Again() bool {
	if c.Code != wire.CodeBusy || c.Retry == 0 {
		return false
	}
	for i := range c.Items {
		if c.Items[i].Seen {
			return false
		}
	}
	c.Code, c.Text, c.Retry, c.RTT, c.Done, c.deadline, c.bytes, c.over = wire.CodeOK, "", 0, 0, nil, 0, 0, false
	for i := range c.Items {
		c.Items[i].Code = wire.CodeOK
	}
	return true
}

// Fail ends a call that the session does not have, with every item.
func (c *Call) Fail(code wire.Code) {
	c.Code = code
	for i := range c.Items {
		c.Items[i].Code = code
	}
}

// counted says whether the call counts against the peer's limits.
func (c *Call) counted() bool {
	switch c.Type {
	case proto.TypePing, proto.TypeCancel, proto.TypeAbort:
		return false
	}
	return true
}

// queued reports whether a call of this class, or of a more urgent one, waits.
func (s *Session) queued(class proto.Class) bool {
	for _, q := range s.queue[:class+1] {
		if len(q) > 0 {
			return true
		}
	}
	return false
}

// room reports whether the peer's limits leave room for c.
func (s *Session) room(c *Call) bool {
	return s.callReqs < int(s.cfg.Theirs.Reqs) && s.callBytes+c.bytes <= uint64(s.cfg.Theirs.BytesInFlight)
}

// pump starts what waits for the peer's limits, the most urgent first.
func (s *Session) pump(now time.Duration) {
	if s.dead {
		return
	}
	for class := range s.queue {
		for len(s.queue[class]) > 0 {
			c := s.queue[class][0]
			if !s.room(c) {
				return
			}
			s.queue[class][0] = nil
			s.queue[class] = s.queue[class][1:]
			s.begin(now, c)
		}
	}
}

// begin picks a lane and sends.
func (s *Session) begin(now time.Duration, c *Call) {
	l := s.lanes[0]
	if c.Type == proto.TypePull || c.Type == proto.TypePush {
		l = s.pick(c.Class)
	}
	if !l.open() {
		s.finishCall(c, wire.CodeLaneLost, "no lane")
		return
	}
	s.startOn(now, l, c)
}

// pick chooses the data lane for a class. The lowest lane that is up is kept
// free of normal and bulk traffic where there is another, so that what is
// urgent never queues behind it in a socket.
func (s *Session) pick(class proto.Class) *Lane {
	var best *Lane
	spare := s.DataLanes() > 1 && class >= proto.ClassNormal
	for _, l := range s.lanes[1:] {
		if !l.open() {
			continue
		}
		if spare {
			spare = false
			continue
		}
		if best == nil || l.load < best.load {
			best = l
		}
	}
	return best
}

// startOn sends a call on a lane.
func (s *Session) startOn(now time.Duration, l *Lane, c *Call) {
	r := &request{
		id: s.nextReq, typ: c.Type, class: c.Class, lane: l,
		began: now, deadline: max(c.deadline, now) + max(cancelSlack, s.rtt), bytes: c.bytes,
		ask: &ask{call: c, counted: c.counted(), items: len(c.Items)},
	}
	r.out.grows = c.Grows
	s.countGrowing(r, true)
	r.progress(now)
	s.nextReq += 2
	if c.Type == proto.TypePull {
		r.room = make([]wantRoom, len(c.Items))
		for i := range c.Items {
			it := &c.Items[i]
			r.room[i] = wantRoom{uint32(len(it.Room)), it.Off, it.Flags&proto.WantKeepLease != 0}
		}
	}
	c.r = r
	s.calls[r.id] = r
	if r.counted {
		s.callReqs++
		s.callBytes += r.bytes
		l.load += r.bytes
		s.totals.RequestsOut++
	}
	f := proto.Frame{Type: c.Type, Class: c.Class, Req: r.id, Arg: c.Hops}
	ms := uint32(min(max(c.deadline-now, time.Millisecond), proto.MaxDeadline) / time.Millisecond)
	switch c.Type {
	case proto.TypeOpen:
		l.send(f, proto.Open{Manifest: c.Manifest})
	case proto.TypeHas, proto.TypeStat:
		l.send(f, proto.Has{DeadlineMS: ms, Items: s.wants(c.Items)})
	case proto.TypePull:
		lease := uint32(c.LeaseFor / time.Millisecond)
		l.send(f, proto.Pull{DeadlineMS: ms, LeaseMS: lease, Items: s.wants(c.Items)})
	case proto.TypePush:
		a := s.oneFlight(c)
		if c.Delivered = a != nil; c.Delivered {
			l.deliver(f, ms, r, a)
			return
		}
		l.send(f, proto.Push{DeadlineMS: ms, Items: offers(c.Items)})
	case proto.TypeRenew:
		l.send(f, proto.Renew{Lease: c.Lease, MS: uint32(c.LeaseFor / time.Millisecond)})
	case proto.TypeRelease:
		l.send(f, proto.Release{Leases: c.Leases})
	default:
		l.send(f, proto.Empty{})
	}
}

// wants is good until the next call.
func (s *Session) wants(items []Item) []proto.Want {
	w := s.scratch.want[:0]
	for i := range items {
		it := &items[i]
		w = append(w, proto.Want{
			NS: it.NS, Flags: it.Flags, Off: it.Off, Max: uint32(len(it.Room)), Slot: it.Slot, Gen: it.Gen, Key: it.Key,
		})
	}
	s.scratch.want = w
	return w
}

func offers(items []Item) []proto.PushItem {
	p := make([]proto.PushItem, len(items))
	for i := range items {
		it := &items[i]
		p[i] = proto.PushItem{NS: it.NS, Key: it.Key, Have: proto.Have{
			Tier: it.Tier, Att: it.Att, Len: uint32(len(it.Room)), Head: it.Head,
		}}
	}
	return p
}

// Cancel takes a call back: its memory is given back as soon as no read or
// write is under way in it, and Done is closed then. Idempotent.
func (s *Session) Cancel(now time.Duration, c *Call, code wire.Code) {
	if c.over {
		return
	}
	if c.r != nil {
		s.endCall(now, c.r, code, "")
		return
	}
	q := s.queue[c.Class]
	for i := range q {
		if q[i] == c {
			s.queue[c.Class] = append(q[:i], q[i+1:]...)
			s.finishCall(c, code, "")
			s.pump(now)
			return
		}
	}
}

// endCall ends a call of mine from this side. Idempotent.
func (s *Session) endCall(now time.Duration, r *request, code wire.Code, text string) {
	if r.dead {
		if r.laneGone {
			r.lane.dequeue(r)
			s.settle(now, r)
		}
		return
	}
	r.dead = true
	if !r.ended {
		r.code, r.text = code, text
	}
	through := r.lane.dequeue(r)
	if !r.laneGone && !r.ended {
		switch {
		case r.typ == proto.TypePush && through && r.ask.state < askCommitted:
			r.lane.send(proto.Frame{Type: proto.TypeAbort, Req: r.id}, proto.Empty{})
		case r.typ == proto.TypePush: // ABORT follows the frame at hand
		default:
			r.lane.send(proto.Frame{Type: proto.TypeCancel, Req: r.id}, proto.Empty{})
		}
	}
	s.settle(now, r)
}

// settleCall hands a call back once no memory of it is in use, and forgets the
// request once the peer will say no more about it.
func (s *Session) settleCall(now time.Duration, r *request) {
	if !r.dead && !r.ended {
		return
	}
	if r.call != nil {
		s.deliver(r)
	}
	if !r.ended && !r.laneGone || s.calls[r.id] != r {
		return
	}
	delete(s.calls, r.id)
	r.landed()
	s.countGrowing(r, false)
	if r.counted {
		s.callReqs--
		s.callBytes -= r.bytes
		r.lane.load -= r.bytes
	}
	s.pump(now)
}

// deliver writes down what became of each item, and hands the call back.
func (s *Session) deliver(r *request) {
	c := r.call
	r.call = nil
	for i := range c.Items {
		it := &c.Items[i]
		switch {
		case s.verdict(r, i, it):
		case it.Code != wire.CodeOK:
		case r.code != wire.CodeOK:
			it.Code = r.code
		default:
			it.Code = wire.CodeInternal
		}
	}
	if f := r.flight; f != nil && slices.ContainsFunc(c.Items, func(it Item) bool { return it.Code == wire.CodeFull }) {
		f.have = 0 // until the peer says otherwise
	}
	c.Retry, c.Starved = r.retry, r.starved()
	s.finishCall(c, r.code, r.text)
}

// verdict reports whether item i is decided, whatever became of its request. A
// body that had come whole and was verified is OK, also where the rest of its
// batch ran out of time; without that nothing of a pull is.
func (s *Session) verdict(r *request, i int, it *Item) bool {
	switch r.typ {
	case proto.TypeHas, proto.TypeStat:
		return it.Seen
	case proto.TypePush:
		return r.code == wire.CodeOK && it.Seen
	case proto.TypePull:
		if i >= len(r.in.items) {
			return false
		}
		in := &r.in.items[i]
		if in.skip { // its lease alone, or why not
			return it.Seen && r.room[i].bare()
		}
		it.Got = uint32(in.got)
		if in.proof.OK() {
			it.Code, it.Proof = wire.CodeOK, in.proof
			s.totals.BytesIn += uint64(in.size)
			return true
		}
		if in.code != wire.CodeChecksum {
			return false
		}
		it.Code = wire.CodeChecksum
		s.totals.ChecksumFailures++
		s.events = append(s.events, Event{Kind: EventChecksum, Lane: r.lane.idx, Code: wire.CodeChecksum, Items: 1})
		return true
	}
	return false
}

// finishCall closes a call. Items without a verdict get the call's code.
func (s *Session) finishCall(c *Call, code wire.Code, text string) {
	if c.r == nil && code != wire.CodeOK {
		for i := range c.Items {
			c.Items[i].Code = code
		}
	}
	c.Code, c.Text, c.over, c.r = code, text, true, nil
	if c.Done != nil {
		close(c.Done)
	}
}

// tickCalls ends the calls whose time is up, and the pulls that get nothing.
func (s *Session) tickCalls(now time.Duration) {
	for _, r := range inOrder(s.calls) {
		switch {
		case r.dead, r.ended:
		case now >= r.deadline:
			s.endCall(now, r, wire.CodeDeadline, "")
		case r.typ != proto.TypePing && r.stuck(now):
			s.endCall(now, r, wire.CodeNoProgress, "")
		}
	}
	for class := range s.queue {
		for i := 0; i < len(s.queue[class]); {
			c := s.queue[class][i]
			if now < c.deadline {
				i++
				continue
			}
			s.queue[class] = append(s.queue[class][:i], s.queue[class][i+1:]...)
			s.finishCall(c, wire.CodeDeadline, "waited for the peer's limits")
		}
	}
}

// StartOn sends a call by lane idx, whatever its type would choose.
func (s *Session) StartOn(now time.Duration, idx uint8, c *Call) {
	c.Timeout = min(max(c.Timeout, proto.MinDeadline), proto.MaxDeadline)
	c.deadline = now + c.Timeout
	l := s.lanes[idx]
	if !l.open() {
		s.finishCall(c, wire.CodeLaneLost, "no lane")
		return
	}
	s.startOn(now, l, c)
}
