package core

import (
	"errors"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// Lane is one byte stream of a session.
type Lane struct {
	s   *Session
	idx uint8
	rx  rx
	tx  tx

	lastRx   time.Duration // the last byte that came in
	lastTx   time.Duration // the last time that nothing was to be sent, or minProgress bytes had gone
	sentThen uint64        // bytes that went since lastTx
	frameRx  time.Duration // the last time that no frame was begun, another one was, or minProgress bytes of it had come
	frame    uint64        // where the frame begins that was at hand then
	cameThen uint64        // bytes of the lane that had come then
	moved    tally         // body bytes
	pings    int           // sent since the last byte came in
	failed   bool          // ERROR is queued; nothing else is taken
	failedAt time.Duration
	dead     bool   // the connection shall be closed
	load     uint64 // body bytes of my own requests that this lane still carries
}

// Index is the lane's number.
func (l *Lane) Index() uint8 { return l.idx }

// Dead reports whether the connection shall be closed without more ado.
func (l *Lane) Dead() bool { return l.dead }

// Failed reports whether the lane is being closed after an ERROR.
func (l *Lane) Failed() bool { return l.failed }

func (l *Lane) open() bool { return l != nil && !l.dead && !l.failed }

// send queues a control message.
func (l *Lane) send(f proto.Frame, m proto.Message) {
	if l.dead || l.failed {
		return
	}
	l.tx.ctl = proto.AppendMessage(l.tx.ctl, f, m)
	l.s.wake |= 1 << l.idx
}

// fail closes the lane for a fault of the peer: ERROR goes out behind the
// frame that is under way, then half-close; what comes in is discarded.
func (l *Lane) fail(now time.Duration, off uint64, code wire.Code, text string) {
	if l.dead || l.failed {
		return
	}
	l.send(proto.Frame{Type: proto.TypeError, Flags: proto.FlagCritical}, proto.Error{Code: code, Offset: off, Text: text})
	l.failed, l.failedAt = true, now
	l.s.events = append(l.s.events, Event{Kind: EventRefused, Lane: l.idx, Code: code, Text: text})
	l.dropRequests(now, wire.CodeLaneLost, "the lane failed: "+code.String()+": "+text)
}

// failWith is fail with the code and the offset of a codec error. base is the
// stream offset that the error's own offset counts from.
func (l *Lane) failWith(now time.Duration, base uint64, err error) {
	var fe *proto.FrameError
	if errors.As(err, &fe) {
		l.fail(now, base+fe.Offset, fe.Code, fe.Text)
		return
	}
	l.fail(now, base, wire.CodeOf(err), err.Error())
}

// kill closes the lane without a word.
func (l *Lane) kill(now time.Duration, code wire.Code, text string) {
	if l.dead {
		return
	}
	l.dead = true
	l.s.wake |= 1 << l.idx
	l.s.events = append(l.s.events, Event{Kind: EventLaneDead, Lane: l.idx, Code: code, Text: text})
	l.dropRequests(now, code, text)
}

// dropRequests ends every request of the lane.
func (l *Lane) dropRequests(now time.Duration, code wire.Code, text string) {
	s := l.s
	for _, r := range inOrder(s.calls) {
		if r.lane == l {
			r.laneGone = true
			s.endCall(now, r, code, text)
		}
	}
	for _, r := range inOrder(s.served) {
		if r.lane == l {
			r.laneGone = true
			s.endServed(now, r, code, text)
		}
	}
	for c := range l.tx.queue {
		l.tx.queue[c] = nil
	}
}

// tick is the keepalive of one lane.
func (l *Lane) tick(now time.Duration) {
	if l.failed && now-l.failedAt >= 2*proto.DrainError {
		l.kill(now, wire.CodeLaneLost, "ERROR could not be sent")
	}
	if !l.open() {
		return
	}
	switch {
	case !l.TxPending():
		l.lastTx, l.sentThen = now, 0
	case now-l.lastTx >= WriteStall:
		l.kill(now, wire.CodeLaneLost, "the peer took no bytes for too long")
		return
	}
	switch sp := &l.rx.sp; {
	case sp.Whole() == sp.Offset(), sp.Whole() != l.frame, sp.Offset()-l.cameThen >= minProgress:
		l.frameRx, l.frame, l.cameThen = now, sp.Whole(), sp.Offset()
	case now-l.frameRx >= proto.FrameStall:
		l.kill(now, wire.CodeLaneLost, "a frame that the peer began did not come whole for too long")
		return
	}
	if now-l.lastRx < proto.PingEvery*time.Duration(l.pings+1) {
		return
	}
	if l.pings >= proto.MaxPings {
		l.kill(now, wire.CodeLaneLost, "pings were not answered")
		return
	}
	l.pings++
	l.s.StartOn(now, l.idx, &Call{Type: proto.TypePing, Timeout: proto.MaxDeadline})
}
