package core

import (
	"time"

	"meridian/internal/invariants"
	"meridian/wire"
	proto "meridian/wire/link"
)

// rx is the incoming half of a lane. The Splitter assembles frames from what
// was read to scratch; body bytes of DATA are read straight to their home, with
// the head of the next frame behind them, or what ends the request.
type rx struct {
	sp      proto.Splitter
	scratch []byte // nil while the lane waits
	at      uint64 // where the frame at hand began, from the lane's start

	req     *request // whose DATA is at hand; nil: discard
	dump    []byte   // where discarded bytes go
	planned int      // bytes of the pieces that RxWant gave out before scratch
	busy    *request // whose memory those pieces are
	jobs    []Job
	spare   [][]Job // memory of finished ones, at most maxSpare
}

// RxWant appends to iov where the next bytes of the stream shall go. RxGot
// must follow, with 0 where nothing was read.
func (l *Lane) RxWant(iov [][]byte) [][]byte {
	x := &l.rx
	x.planned, x.busy = 0, nil
	if x.scratch == nil {
		x.scratch = l.s.takeScratch()
	}
	if l.failed {
		return append(iov, x.scratch)
	}
	if left := x.sp.Left(); left > 0 {
		iov = x.wantData(iov, left)
		if x.req != nil && x.req.in.left == uint64(left) {
			return append(iov, x.scratch) // no body of this request follows
		}
		return append(iov, x.scratch[:proto.HeadLen])
	}
	if n := min(x.sp.Need(), scratchLen); n > len(x.scratch) {
		x.scratch = make([]byte, scratchLen)
	}
	return append(iov, x.scratch[:min(max(x.sp.Need(), idleRead), len(x.scratch))])
}

// wantData appends the pieces of the bodies that the rest of the DATA frame
// belongs to, or the place where it is discarded.
func (x *rx) wantData(iov [][]byte, left int) [][]byte {
	x.planned = left
	if x.req == nil || x.req.dead {
		return append(iov, x.floor(left))
	}
	x.busy = x.req
	x.req.refs++
	in := &x.req.in
	for i := in.cur; left > 0; i++ {
		it := &in.items[i]
		if it.skip || it.got == it.size {
			continue
		}
		n := min(left, it.size-it.got)
		if it.drop {
			iov = append(iov, x.floor(n))
		} else {
			iov = append(iov, it.body[it.got:it.got+n])
		}
		left -= n
	}
	return iov
}

// floor is where n discarded bytes go.
func (x *rx) floor(n int) []byte {
	if len(x.dump) < n {
		x.dump = make([]byte, n)
	}
	return x.dump[:n]
}

// takeScratch and giveScratch share scratch among the lanes of a session: one is kept
// for all that wait, since most of an idle daemon's memory would be that of thousands.
func (s *Session) takeScratch() []byte {
	b := s.idleScratch
	if s.idleScratch = nil; b == nil {
		b = make([]byte, idleRead)
	}
	return b
}

func (s *Session) giveScratch(b []byte) {
	if len(b) == idleRead { // a longer one was for one message
		s.idleScratch = b
	}
}

// RxGot says that n bytes came into the pieces of the last RxWant.
func (l *Lane) RxGot(now time.Duration, n int) {
	x := &l.rx
	busy, nothing := x.busy, n == 0
	x.busy = nil
	if n > 0 {
		l.lastRx, l.pings = now, 0
	}
	if !l.failed && !l.dead {
		if k := min(n, x.planned); k > 0 {
			n -= k
			if err := x.sp.Direct(k); err != nil {
				l.failWith(now, 0, err)
			}
			l.placed(now, k)
		}
		l.parse(now, x.scratch[:n])
		invariants.Overwrite(x.scratch[:n])
	}
	if x.planned = 0; nothing && x.sp.Need() <= idleRead { // not in the middle of a long message
		l.s.giveScratch(x.scratch)
		x.scratch = nil
	}
	if busy != nil {
		l.s.unref(now, busy)
	}
}

// parse takes what was read to scratch apart.
func (l *Lane) parse(now time.Duration, b []byte) {
	x := &l.rx
	for len(b) > 0 && !l.failed && !l.dead {
		if len(l.tx.ctl) > maxQueue {
			l.fail(now, x.sp.Offset(), wire.CodeFlowViolation, "answers are not being read")
			return
		}
		n, ev, err := x.sp.Next(b)
		if err != nil {
			l.failWith(now, 0, err)
			return
		}
		b = b[n:]
		switch ev.Kind {
		case proto.EventMessage:
			x.at = x.sp.Offset() - proto.FrameLen - uint64(ev.Frame.Len)
			err = l.message(now, ev.Frame, ev.Payload)
		case proto.EventSkipped:
			x.at = x.sp.Offset() - proto.FrameLen - uint64(ev.Frame.Len)
			err = l.unknown(ev.Frame)
		case proto.EventPlace:
			x.at = x.sp.Offset() - proto.HeadLen
			err = l.beginData(ev)
		case proto.EventBytes:
			l.copyData(ev.Payload)
			l.placed(now, len(ev.Payload))
		}
		if err != nil {
			l.refused(now, x.at, err)
		}
	}
}

// beginData finds the owner of a DATA frame and checks that it was granted. With
// an error nothing has changed.
func (l *Lane) beginData(ev proto.Event) error {
	r := l.s.find(ev.Frame.Req)
	switch {
	case ev.Frame.Len > l.s.cfg.Mine.Frame:
		return refuse(wire.CodeLength, "DATA above the agreed frame")
	case r == nil || r.lane != l || !r.in.active:
		return refuse(wire.CodeFlowViolation, "DATA for no open transfer")
	case uint64(ev.Left) > r.in.left:
		return refuse(wire.CodeFlowViolation, "DATA beyond what was granted")
	case int(ev.Frame.Arg) != r.in.cur || ev.Offset != uint64(r.in.items[r.in.cur].got):
		return refuse(wire.CodeState, "DATA out of order")
	}
	l.rx.req = r
	return nil
}

// copyData brings body bytes that were read ahead to where they belong.
func (l *Lane) copyData(src []byte) {
	r := l.rx.req
	if r == nil || r.dead {
		return
	}
	for i := r.in.cur; len(src) > 0; i++ {
		switch it := &r.in.items[i]; {
		case it.skip:
		case it.drop:
			src = src[min(it.size-it.got, len(src)):]
		default:
			src = src[copy(it.body[it.got:], src):]
		}
	}
}

// placed moves the cursor of the DATA at hand over k bytes that are in place,
// or were discarded.
func (l *Lane) placed(now time.Duration, k int) {
	r := l.rx.req
	if r == nil {
		return
	}
	in := &r.in
	in.left -= uint64(k)
	l.moved.in[r.class] += uint64(k)
	r.movedOwn(now, k, in.left)
	for k > 0 {
		it := &in.items[in.cur]
		if it.skip || it.got == it.size {
			in.cur++
			continue
		}
		n := min(k, it.size-it.got)
		it.got += n
		k -= n
		if !r.dead && !it.drop {
			l.giveHash(r, in.cur)
			r.tellComing(in.cur)
		}
	}
	in.settleCursor()
	r.tellNext()
	if l.rx.sp.Left() == 0 {
		l.rx.req = nil
	}
}

// TakeJobs returns the work that came up since the last call; nil: none.
func (l *Lane) TakeJobs() []Job {
	x := &l.rx
	j := x.jobs
	if len(j) == 0 {
		return nil
	}
	x.jobs = nil
	if n := len(x.spare); n > 0 {
		x.jobs, x.spare = x.spare[n-1], x.spare[:n-1]
	}
	return j
}

// MoreBodies reports whether bodies are due on the lane, as far as is known: to read on
// is worth something then.
func (l *Lane) MoreBodies() bool {
	for _, r := range l.s.calls {
		if r.lane == l && r.typ == proto.TypePull && !r.ended && (r.ask.state == askSent || r.in.left > 0) {
			return true
		}
	}
	for _, r := range l.s.served {
		if r.lane == l && r.in.left > 0 {
			return true
		}
	}
	return false
}

// find returns a request of either side by its id.
func (s *Session) find(id uint64) *request {
	if r := s.calls[id]; r != nil {
		return r
	}
	return s.served[id]
}
