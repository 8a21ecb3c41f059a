package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/fabric"
	"meridian/internal/door"
	"meridian/wire"
)

// serve has a source's connection until it ends.
func (l *life) serve(c *door.Conn) {
	count := l.r.of(c.Peer)
	count.add(func(n *fabric.Relayed) { n.Connections++ })
	defer count.add(func(n *fabric.Relayed) { n.Connections-- })
	defer c.DropUnsent()
	for proved := false; ; proved = true {
		err := l.request(c, proved)
		if err == nil {
			continue
		}
		if why := c.Why(); why != nil {
			err = why
		}
		if !errors.Is(err, engine.ErrEnded) && !errors.Is(err, net.ErrClosed) { // closed: with its life
			l.r.refused(c.Peer, err)
		}
		return
	}
}

// request is one request of a source.
func (l *life) request(c *door.Conn, proved bool) error {
	q, err := engine.ReadRequest(c)
	if err != nil && q == (engine.Request{}) {
		return err
	}
	l.r.active.Add(1)
	defer l.r.active.Add(-1)
	if err == nil {
		err = l.check(q)
	}
	if err == nil {
		if !proved {
			c.Proved()
		}
		err = l.carry(c, q)
	}
	var own *sideError
	switch {
	case err == nil:
		l.r.of(c.Peer).add(func(n *fabric.Relayed) {
			n.Requests++
			if q.Write {
				n.Written += q.Size
			} else {
				n.Read += q.Size
			}
		})
	case errors.As(err, &own) && (own.source || own.late):
		return err // it has gone, or has read a status that says otherwise
	default:
		l.r.refused(c.Peer, err)
		engine.Refuse(c, q)
		return engine.ErrEnded
	}
	return nil
}

// check compares a request with what the target has registered. The target may have
// registered more since: who is in no buffer is looked up once more.
func (l *life) check(q engine.Request) error {
	if err := q.Check(); err != nil {
		return err
	}
	switch {
	case l.r.drains.Load():
		return fmt.Errorf("mooncake relay: %v: %w", q, wire.CodeDraining)
	case q.Acked && !l.desc.Load().Acked():
		// It would take the request for a read, and the body for more requests.
		return fmt.Errorf("mooncake relay: %v in version 2, and the target speaks version 1: %w", q, wire.CodeUnsupported)
	case !l.desc.Load().Covers(q.Addr, q.Size):
		if now, err := l.r.lookLately(l.ctx); err != nil || now != l || !l.desc.Load().Covers(q.Addr, q.Size) {
			return fmt.Errorf("mooncake relay: %v is in no buffer of the target: %w", q, wire.CodeInvalid)
		}
	}
	return nil
}

// carry brings a request to the target and its answer back.
func (l *life) carry(c *door.Conn, q engine.Request) error {
	share, err := l.r.pieces.Wait(c, pieceLen, waitTime)
	switch {
	case errors.Is(err, net.ErrClosed): // with its life
		return &sideError{source: true, step: "waiting for a place", all: q.Size, cause: err}
	case err != nil:
		return fmt.Errorf("mooncake relay: %v: %w", q, err)
	}
	defer share.Give()
	l.r.carries.Add(1)
	defer l.r.carries.Add(-1)
	up, err := l.lane(l.ctx)
	if err != nil {
		return err
	}
	defer context.AfterFunc(l.ctx, func() { _ = up.Close() })()
	buf := pieceMemory.Get().(*[pieceLen]byte)
	defer pieceMemory.Put(buf)
	t := transfer{l: l, from: c, to: up, q: q, acked: l.desc.Load().Acked(), buf: buf[:]}
	if q.Write {
		err = t.write()
	} else {
		err = t.read()
	}
	if !t.freed {
		_ = up.Close()
	}
	if err != nil && !isSource(err) {
		l.r.mayBeAnother()
	}
	return err
}

// transfer is a request that is being carried.
type transfer struct {
	l     *life
	from  *door.Conn // the source
	to    net.Conn   // the target
	q     engine.Request
	acked bool // by the target
	buf   []byte
	freed bool
}

// free gives the lane to others, before the source hears that its request is done and
// sends the next one. A target of version 1 gets a connection for each request.
func (t *transfer) free() {
	if t.acked {
		t.freed = true
		t.l.lanes.keep(t.to)
	}
}

// head is the request as the target gets it.
func (t *transfer) head() []byte {
	q := t.q
	q.Acked = t.acked
	return q.Append(t.buf[:0])
}

func (t *transfer) write() error {
	in, out := newPace(t.from, false, t.q), newPace(t.to, true, t.q)
	head := len(t.head())
	var last byte
	for left := t.q.Size; left > 0; {
		n, err := in.read(t.buf[head:][:min(left, uint64(len(t.buf)-head))])
		if n > 0 {
			if _, err := out.write(t.buf[:head+n], head); err != nil {
				return t.refusal(err)
			}
			last = t.buf[head+n-1]
			head, left = 0, left-uint64(n)
		}
		switch {
		case err != nil && left > 0:
			return in.failed("sending a body", err)
		case left > 0 && t.acked && engine.Spoke(t.to):
			return t.early()
		}
	}
	if err := t.confirm(last); err != nil {
		return err
	}
	t.free()
	if !t.q.Acked {
		return nil
	}
	_, err := in.write(engine.AppendStatus(t.buf[:0]), engine.StatusLen)
	return err
}

// confirm waits until the target has the body. One that acknowledges nothing serves the
// requests of a connection in turn: a read of the last byte proves the write before it.
func (t *transfer) confirm(last byte) error {
	if t.acked {
		return t.status()
	}
	out := newPace(t.to, true, engine.Request{Size: 1})
	fence := engine.Request{Addr: t.q.Addr + t.q.Size - 1, Size: 1}
	if _, err := out.write(fence.Append(t.buf[:0]), engine.RequestLen); err != nil {
		return err
	}
	if _, err := out.read(t.buf[:1]); err != nil {
		return out.failed("confirming a write by a read of its last byte", err)
	}
	if t.buf[0] != last {
		return fmt.Errorf("mooncake relay: the last byte of a write is %#02x at the target, want %#02x: %w", t.buf[0], last, wire.CodeChecksum)
	}
	return nil
}

// status waits for the target's.
func (t *transfer) status() error {
	ok, err := engine.ReadStatus(t.to, engine.StatusTime)
	switch {
	case err != nil:
		return fmt.Errorf("mooncake relay: the target: %w", err)
	case !ok:
		return fmt.Errorf("mooncake relay: the target refused the %v: no such memory is registered there: %w", t.q, wire.CodeStale)
	}
	return nil
}

// early is a status before the end of a body: only a refusal can be.
func (t *transfer) early() error {
	if err := t.status(); err != nil {
		return err
	}
	return fmt.Errorf("mooncake relay: the target acknowledged the %v before it was sent: %w", t.q, wire.CodeState)
}

// refusal is a body that the target did not take; it may have said why.
func (t *transfer) refusal(err error) error {
	if t.acked && engine.Spoke(t.to) {
		return t.early()
	}
	return err
}

func (t *transfer) read() error {
	out, in := newPace(t.to, true, t.q), newPace(t.from, false, t.q)
	if _, err := out.write(t.head(), engine.RequestLen); err != nil {
		return err
	}
	if t.acked {
		if err := t.status(); err != nil {
			return err
		}
	}
	head := 0
	if t.q.Acked {
		head = len(engine.AppendStatus(t.buf[:0]))
	}
	begun := false
	for left := t.q.Size; left > 0; {
		n, err := out.read(t.buf[head:][:min(left, uint64(len(t.buf)-head))])
		if n > 0 {
			if left -= uint64(n); left == 0 {
				t.free()
			}
			if _, err := in.write(t.buf[:head+n], head); err != nil {
				return err
			}
			head, begun = 0, true
		}
		if err != nil && left > 0 {
			lost := out.failed("sending a body", err)
			lost.late = begun // a refusal would be taken for a part of the body
			return lost
		}
	}
	return nil
}

// pace moves the bytes of one side, with a time for each part of a body and one for all
// of it. Only what this side is waited for counts.
type pace struct {
	c      net.Conn
	source bool
	all    uint64
	end    time.Time
	done   uint64        // bytes of the body
	part   uint64        // of them, those of this part
	left   time.Duration // for this part
}

func newPace(c net.Conn, target bool, q engine.Request) *pace {
	return &pace{c: c, source: !target, all: q.Size, end: time.Now().Add(engine.BodyTime), left: engine.ProgressTime}
}

func (p *pace) deadline() (began, until time.Time) {
	began = time.Now()
	until = began.Add(p.left)
	if until.After(p.end) {
		until = p.end
	}
	return began, until
}

func (p *pace) moved(began time.Time, n int) {
	p.done += uint64(n)
	p.part += uint64(n)
	p.left -= time.Since(began)
	if p.part >= partLen {
		p.part, p.left = 0, engine.ProgressTime
	}
}

func (p *pace) read(b []byte) (int, error) {
	began, until := p.deadline()
	_ = p.c.SetReadDeadline(until)
	n, err := p.c.Read(b)
	p.moved(began, n)
	return n, err
}

// write sends b, of which the first bytes are of no body.
func (p *pace) write(b []byte, head int) (int, error) {
	began, until := p.deadline()
	_ = p.c.SetWriteDeadline(until)
	n, err := p.c.Write(b)
	p.moved(began, max(n-head, 0))
	if err != nil {
		return n, p.failed("taking a body", err)
	}
	return n, nil
}

func (p *pace) failed(step string, err error) *sideError {
	return &sideError{source: p.source, step: step, done: p.done, all: p.all, cause: err}
}

// sideError is a side that did not do its part of a request. It matches NO_PROGRESS for
// a deadline, else LANE_LOST.
type sideError struct {
	source    bool // else the target
	late      bool // the source has a status that accepts
	step      string
	done, all uint64
	cause     error
}

func (e *sideError) Error() string {
	who := "the target"
	if e.source {
		who = "the source"
	}
	return fmt.Sprintf("mooncake relay: %s, %s: %d of %d bytes: %v", who, e.step, e.done, e.all, e.cause)
}

func (e *sideError) Unwrap() []error {
	if ne, ok := errors.AsType[net.Error](e.cause); ok && ne.Timeout() {
		return []error{wire.CodeNoProgress, e.cause}
	}
	return []error{wire.CodeLaneLost, e.cause}
}

func isSource(err error) bool {
	e, ok := errors.AsType[*sideError](err)
	return ok && e.source
}
