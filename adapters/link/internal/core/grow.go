package core

import (
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// A push whose body is still coming in, as a gateway makes one of a block that it gets
// from somebody else (cut-through):
//
//	1 Start sends PUSH, where the peer's limits leave room at once. It never waits for
//	  them: others would wait behind a body that may be slow.
//	2 Grow says how many bytes of the body are there. After GRANT so many go out as DATA.
//	3 Agree brings the proof of the whole body. COMMIT goes out behind the last byte, and
//	  never without that proof.
//	4 Cancel takes the push back, and ABORT goes out: so do a deadline, and a body
//	  that has not grown for proto.NoProgress.
//
// Such pushes may have half of what the peer grants, so that a slow source leaves the rest
// to others.
const growShare = 2

// growStep is by how much a body that comes in has grown when who sends it on is told: a
// DATA frame.
const growStep = proto.MaxChunk

// mayGrow says whether a growing push may be begun.
func (s *Session) mayGrow(c *Call) (code wire.Code, text string) {
	switch {
	case c.Type != proto.TypePush || len(c.Items) != 1:
		return wire.CodeInvalid, "what grows is one block that is pushed"
	case s.queued(c.Class), !s.room(c):
		return wire.CodeBusy, "the peer's limits leave no room"
	case s.growReqs >= int(s.cfg.Theirs.Reqs)/growShare, s.growBytes+c.bytes > uint64(s.cfg.Theirs.BytesInFlight)/growShare:
		return wire.CodeBusy, "pushes that grow have their share of the peer's limits"
	}
	return wire.CodeOK, ""
}

// countGrowing counts a growing push against their share, or ends to.
func (s *Session) countGrowing(r *request, on bool) {
	switch {
	case !r.out.grows:
	case on:
		s.growReqs++
		s.growBytes += r.bytes
	default:
		s.growReqs--
		s.growBytes -= r.bytes
	}
}

// Grow says that the first n bytes of a growing push's body are there. They stay as they
// are from then on.
func (s *Session) Grow(now time.Duration, c *Call, n int) {
	if !c.Grows || c.over || len(c.Items) != 1 {
		return
	}
	c.ready = max(c.ready, min(n, len(c.Items[0].Room)))
	s.goOn(now, c)
}

// Agree lets a growing push be committed, by the proof of its body. It reports false, and
// changes nothing, where that is the proof of anything else.
func (s *Session) Agree(now time.Duration, c *Call, proof wire.Verified) bool {
	if !c.Grows || c.over || len(c.Items) != 1 {
		return false
	}
	it := &c.Items[0]
	h, err := wire.ParseHeader(it.Head[:], wire.Strict, wire.MaxBody)
	if err != nil || !proof.Of(it.Room) || h.Match(proof) != nil {
		return false
	}
	c.ready, c.agreed = len(it.Room), true
	s.goOn(now, c)
	return true
}

// goOn hands on to a call's request what Grow and Agree said.
func (s *Session) goOn(now time.Duration, c *Call) {
	r := c.r
	if r == nil || r.dead || r.ended || r.ask.state != askGranted {
		return // after GRANT
	}
	dry := r.out.dry()
	r.out.ready, r.out.agreed = c.ready, c.agreed
	if dry && !r.out.dry() {
		r.progress(now) // from now on it is for the peer to go on
	}
	r.lane.sendGrown(r)
}

// growGranted starts the body of a growing push. What the peer does not take is taken
// back: there is nothing to commit.
func (l *Lane) growGranted(now time.Duration, r *request, code wire.Code) {
	c := r.call
	if code != wire.CodeOK {
		l.s.endCall(now, r, code, "")
		return
	}
	r.out.items[0].body = c.Items[0].Room
	r.out.left = uint64(len(c.Items[0].Room))
	l.s.goOn(now, c)
}

// sendGrown queues what a growing push can send now, unless that is under way.
func (l *Lane) sendGrown(r *request) {
	o := &r.out
	switch {
	case r.dead, r.ended, o.queue, l.tx.cur == r:
	case o.due() > 0:
		l.enqueue(r)
	case o.left == 0 && o.agreed && r.ask.state == askGranted:
		r.ask.state = askCommitted
		l.send(proto.Frame{Type: proto.TypeCommit, Req: r.id}, proto.Empty{})
	}
}

// due is how many bytes of the bodies can go now.
func (o *outflow) due() uint64 {
	if !o.grows {
		return o.left
	}
	return uint64(max(o.ready-o.items[0].off, 0))
}

// dry reports whether the push waits for its source: all that is there of the body has gone.
func (o *outflow) dry() bool {
	return o.grows && len(o.items) == 1 && !o.items[0].skip && o.due() == 0 && (o.left > 0 || !o.agreed)
}

// starved reports whether a push that got no further waited for its source, and not for
// the peer.
func (r *request) starved() bool {
	switch {
	case !r.out.grows:
		return false
	case r.code == wire.CodeDeadline:
		return !r.out.agreed
	}
	return r.code == wire.CodeNoProgress && r.out.dry()
}

// tellComing tells who sends item i of a push on that more of it is there.
func (r *request) tellComing(i int) {
	it := &r.in.items[i]
	if it.came == nil || r.dead {
		return
	}
	if it.got == it.size && it.told < it.size || it.got/growStep > it.told/growStep {
		it.told = it.got
		it.came(it.got)
	}
}

// tellNext tells who sends on the item that the next byte belongs to that it begins.
func (r *request) tellNext() {
	if r.dead || r.in.cur >= len(r.in.items) {
		return
	}
	if it := &r.in.items[r.in.cur]; it.came != nil && !it.begun {
		it.begun = true
		it.came(0)
	}
}
