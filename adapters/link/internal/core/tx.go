package core

import (
	"slices"
	"time"

	"meridian/internal/invariants"
	proto "meridian/wire/link"
)

// tx is the outgoing half of a lane.
//
// At a frame boundary plan moves all queued control bytes to pre, and picks
// the request whose DATA frame goes next: the most urgent class first, round
// robin inside it. pre, head, the frame's body and post then go out as one
// run; control messages that come up meanwhile wait in ctl.
type tx struct {
	ctl   []byte // queued control frames
	pre   []byte // those that go out before the DATA frame at hand
	preAt int

	queue [4][]*request
	cur   *request // whose DATA frame is at hand
	head  []byte
	headN int
	left  int    // body bytes of the frame at hand
	post  []byte // END or COMMIT, in the same run as the last DATA frame
	postN int
	io    bool // between TxWant and TxDid
	fill  bool // cur's memory must not be touched any more: send filler

	busy *request // whose memory the pieces of the last TxWant are

	// ENDs queued since ctl was last empty, which the peer has not taken yet: those
	// of HAS, STAT, PULL and PUSH, and those of anything else.
	unread, unreadOther int
}

// filler replaces the bytes of a push that was taken back in mid-frame.
var filler [64 << 10]byte

// TxPending reports whether there is something to send.
func (l *Lane) TxPending() bool {
	t := &l.tx
	if l.dead {
		return false
	}
	if t.preAt < len(t.pre) || t.cur != nil || len(t.ctl) > 0 {
		return true
	}
	for _, q := range t.queue {
		if len(q) > 0 {
			return true
		}
	}
	return false
}

// TxFlushed reports whether a failed lane has sent its ERROR: half-close now.
func (l *Lane) TxFlushed() bool { return l.failed && !l.TxPending() }

// TxWant appends the next bytes to send. TxDid must follow, with 0 where
// nothing was sent.
func (l *Lane) TxWant(iov [][]byte) [][]byte {
	t := &l.tx
	t.busy, t.io = nil, true
	if l.dead {
		return iov
	}
	if t.preAt == len(t.pre) && t.cur == nil {
		l.plan()
	}
	if t.preAt < len(t.pre) {
		iov = append(iov, t.pre[t.preAt:])
	}
	if t.cur == nil {
		return iov
	}
	if t.headN < len(t.head) {
		iov = append(iov, t.head[t.headN:])
	}
	if t.left > 0 {
		if t.fill {
			for n := t.left; n > 0; n -= len(filler) {
				iov = append(iov, filler[:min(n, len(filler))])
			}
		} else {
			t.busy = t.cur
			t.cur.refs++
			iov = t.pieces(iov)
		}
	}
	if t.postN < len(t.post) {
		if a := t.cur.ask; a == nil {
			l.s.count(t.cur, false) // once END may be there, the peer may ask for more by another lane
		} else if a.state == askGranted {
			a.state = askHanding
		}
		iov = append(iov, t.post[t.postN:])
	}
	return iov
}

// pieces appends the bodies that the rest of the frame at hand consists of.
func (t *tx) pieces(iov [][]byte) [][]byte {
	o := &t.cur.out
	rest := t.left
	for i := o.cur; rest > 0; i++ {
		it := &o.items[i]
		if it.skip || it.off == len(it.body) {
			continue
		}
		n := min(rest, len(it.body)-it.off)
		iov = append(iov, it.body[it.off:it.off+n])
		rest -= n
	}
	return iov
}

// TxDid says that n bytes of the last TxWant went out.
func (l *Lane) TxDid(now time.Duration, n int) {
	t := &l.tx
	busy := t.busy
	t.busy, t.io = nil, false
	if l.sentThen += uint64(n); l.sentThen >= minProgress {
		l.lastTx, l.sentThen = now, 0
	}
	if k := min(n, len(t.pre)-t.preAt); k > 0 {
		t.preAt += k
		n -= k
	}
	if t.cur != nil {
		if k := min(n, len(t.head)-t.headN); k > 0 {
			t.headN += k
			n -= k
		}
		if k := min(n, t.left); k > 0 {
			t.left -= k
			n -= k
			l.sent(now, k)
		}
		t.postN += n
		if a := t.cur.ask; a != nil && a.state == askHanding && t.postN == 0 {
			a.state = askGranted // no byte of COMMIT is out
		}
		if t.cur.serve != nil && t.postN < len(t.post) {
			l.s.count(t.cur, true)
		}
		l.takeBackPost()
		if t.preAt == len(t.pre) && t.headN == len(t.head) && t.left == 0 && t.postN == len(t.post) {
			l.frameSent(now)
		}
	}
	if busy != nil {
		l.s.unref(now, busy)
	}
	if l.TxPending() {
		l.s.wake |= 1 << l.idx
	} else {
		l.lastTx, l.sentThen = now, 0
	}
}

// sent moves the cursor of the request at hand over k bytes.
func (l *Lane) sent(now time.Duration, k int) {
	r := l.tx.cur
	o := &r.out
	o.left -= uint64(k)
	l.s.totals.BytesOut += uint64(k)
	l.moved.out += uint64(k)
	r.movedOwn(now, k, o.left)
	for k > 0 {
		it := &o.items[o.cur]
		if it.skip || it.off == len(it.body) {
			o.cur++
			continue
		}
		n := min(k, len(it.body)-it.off)
		it.off += n
		k -= n
	}
	o.settleCursor()
}

// plan picks what goes out next.
func (l *Lane) plan() {
	t := &l.tx
	invariants.Overwrite(t.pre)
	t.pre, t.ctl = t.ctl, t.pre[:0]
	t.preAt, t.unread, t.unreadOther = 0, 0, 0
	if l.failed {
		return
	}
	for c := range t.queue {
		if len(t.queue[c]) == 0 {
			continue
		}
		r := t.queue[c][0]
		t.queue[c] = slices.Delete(t.queue[c], 0, 1) // in place: it comes back at the end
		r.out.queue = false
		l.planFrame(r)
		return
	}
}

func (l *Lane) planFrame(r *request) {
	t := &l.tx
	o := &r.out
	n := int(min(o.due(), uint64(l.s.cfg.Theirs.Frame-proto.DataPrefixLen)))
	t.cur, t.left, t.headN, t.postN, t.fill = r, n, 0, 0, false
	f := proto.Frame{Class: r.class, Req: r.id, Arg: uint32(o.cur)}
	t.head = proto.AppendData(t.head[:0], f, uint32(o.items[o.cur].off), n)
	t.post = t.post[:0]
	if uint64(n) < o.left || o.grows && !o.agreed {
		return
	}
	if r.ask != nil {
		t.post = proto.AppendMessage(t.post, proto.Frame{Type: proto.TypeCommit, Req: r.id}, proto.Empty{})
	} else {
		t.post = proto.AppendMessage(t.post, proto.Frame{Type: proto.TypeEnd, Req: r.id}, l.s.endOf(r))
	}
}

// takeBackPost drops the COMMIT or END OK behind the frame at hand when the
// request ended meanwhile and no byte of it is out.
func (l *Lane) takeBackPost() {
	t := &l.tx
	if t.cur != nil && t.cur.dead && !t.io && t.postN == 0 {
		t.post = t.post[:0]
	}
}

// frameSent goes on after a whole frame is out: the request goes to the back
// of its class, or is through.
func (l *Lane) frameSent(now time.Duration) {
	t := &l.tx
	r := t.cur
	posted := len(t.post) > 0
	t.cur, t.fill = nil, false
	switch {
	case r.laneGone:
	case r.ask != nil && posted:
		if r.ask.state == askHanding {
			r.ask.state = askCommitted
		}
	case r.ask != nil && r.dead:
		l.send(proto.Frame{Type: proto.TypeAbort, Req: r.id}, proto.Empty{})
	case posted:
		r.endSent, r.dead = true, true
	case r.serve != nil && r.dead:
		l.s.sendEnd(r)
	case r.out.grows:
		if r.out.left == 0 && r.out.agreed {
			r.progress(now) // the proof came while the last frame was under way
		}
		l.sendGrown(r)
		return
	default:
		l.enqueue(r)
		return
	}
	l.s.settle(now, r)
}

// enqueue puts a request that has bytes to send into its class.
func (l *Lane) enqueue(r *request) {
	r.out.queue = true
	l.tx.queue[r.class] = append(l.tx.queue[r.class], r)
	l.s.wake |= 1 << l.idx
}

// dequeue takes a request that ended out of its class. It reports false where
// one of its frames is at hand, which must be finished first.
func (l *Lane) dequeue(r *request) bool {
	t := &l.tx
	if r.out.queue {
		q := t.queue[r.class]
		for i := range q {
			if q[i] == r {
				t.queue[r.class] = append(q[:i], q[i+1:]...)
				break
			}
		}
		r.out.queue = false
	}
	if t.cur != r {
		return true
	}
	// The holder's memory stays pinned until the frame is out; a caller's own
	// memory, or any once the lane is gone, is given back now.
	t.fill = r.ask != nil || r.laneGone
	l.takeBackPost()
	return false
}
