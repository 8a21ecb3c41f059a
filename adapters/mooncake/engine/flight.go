package engine

import (
	"fmt"
	"time"

	"meridian/wire"
)

// Bounds of what is under way on a lane of version 2. A peer answers the requests of a
// connection in turn, so those behind the first cost no round trip.
const (
	maxFlight   = 32      // requests
	flightBytes = 1 << 20 // of bodies that are to come; more falls out of caches, and is slower
	laneBytes   = 4 << 20 // of a batch, for which another lane is worth its wake-ups
)

// flight is the requests that are under way on a lane, in their order.
type flight struct {
	in     *scatter
	places [maxFlight]place // a ring
	first  int              // the oldest request
	n      int              // requests
	sent   int              // of them, those that are sent: the oldest ones
	bytes  int              // of their bodies: those to come, or of writes those not acknowledged

	// What is to come: status and body of each read, or the statuses of writes.
	vec    [][]byte // of reads
	vecs   [2 * maxFlight][]byte
	isBody bool // vec[0] is a body
	left   int  // bytes until a new deadline
	due    bool // a new deadline is due
	acks   [maxFlight * statusLen]byte
	have   int // bytes of acks

	out  [][]byte // what one call of the system sends
	done int      // requests that were answered since the lane was taken
}

type place struct {
	piece
	head   [headerLen]byte
	status [statusLen]byte
}

func (f *flight) at(i int) *place { return &f.places[(f.first+i)%maxFlight] }

// take adds requests of the batch until the lane has enough.
func (f *flight) take(b *batch) {
	most, bytes := maxFlight, flightBytes
	if b.careful() {
		most = 1
	}
	if f.n > most/2 || f.bytes > bytes/2 && (!b.write || f.n >= 2) {
		return // several at a time, so that they leave by one call
	}
	for f.n < most && (f.bytes < bytes || b.write && f.n < 2) {
		p, ok := b.next()
		if !ok {
			return
		}
		pl := f.at(f.n)
		pl.piece = p
		header{addr: p.addr(), size: uint64(p.n), write: b.write, acked: true}.put(&pl.head)
		f.n++
		f.bytes += p.n
	}
}

// answered takes the oldest request away.
func (f *flight) answered() {
	f.at(0).piece = piece{}
	f.first, f.n, f.sent, f.done = (f.first+1)%maxFlight, f.n-1, f.sent-1, f.done+1
}

// give empties the flight of a lane that is of no use any more.
func (f *flight) give() (left []piece) {
	for i := range f.n {
		left = append(left, f.at(i).piece)
		f.at(i).piece = piece{}
	}
	f.n = 0
	return left
}

// run makes the requests of a batch, as long as it has any. After an error left are
// those that are not answered; the error is about the first, and the lane is of no use.
func (l *lane) run(b *batch) (left []piece, err error) {
	l.done, l.due = 0, true
	if !l.acked {
		p, ok := b.next()
		if !ok {
			return nil, nil
		}
		if err := l.unacked(header{addr: p.addr(), size: uint64(p.n), write: b.write}, p.body()); err != nil {
			return []piece{p}, err
		}
		return nil, nil
	}
	step := l.reads
	if b.write {
		step = l.writes
	}
	for {
		l.take(b)
		if l.n == 0 {
			return nil, nil
		}
		if err := step(); err != nil {
			return l.give(), err
		}
	}
}

// reads asks for what is new, and takes what has come.
func (l *lane) reads() error {
	if l.sent < l.n {
		var heads [maxFlight * headerLen]byte
		out := heads[:0]
		if len(l.vec) == 0 {
			l.vec, l.isBody, l.due = l.vecs[:0], false, true
		}
		for ; l.sent < l.n; l.sent++ {
			p := l.at(l.sent)
			out = append(out, p.head[:]...)
			l.vec = append(l.vec, p.status[:], p.body())
		}
		if err := writeBody(l.in, out, nil, ProgressTime); err != nil {
			return err
		}
	}
	if l.due {
		l.due, l.left = false, part
		wait := StatusTime
		if l.isBody {
			wait = ProgressTime
		}
		_ = l.SetReadDeadline(time.Now().Add(wait))
	}
	n, err := l.in.read(l.vec)
	if e := l.came(n); e != nil {
		return e
	}
	if err != nil && l.n > 0 {
		p := l.at(0)
		if !l.isBody {
			return &progressError{"waiting for a status", uint64(statusLen - len(l.vec[0])), statusLen, ended(err)}
		}
		return &progressError{"receiving a body", uint64(p.piece.n - len(l.vec[0])), uint64(p.piece.n), ended(err)}
	}
	return nil
}

// came accounts for n bytes of what was to come.
func (l *lane) came(n int) error {
	if l.left -= n; l.left <= 0 {
		l.due = true
	}
	for n > 0 {
		k := min(n, len(l.vec[0]))
		l.vec[0], n = l.vec[0][k:], n-k
		if l.isBody {
			l.bytes -= k
		}
		if len(l.vec[0]) > 0 {
			return nil
		}
		l.vec[0] = nil // an idle lane keeps no memory of its callers
		l.vec, l.due = l.vec[1:], true
		if l.isBody {
			l.answered()
		} else if err := accepted(&l.at(0).status); err != nil {
			return err
		}
		l.isBody = !l.isBody
	}
	return nil
}

// writes sends what is new, and waits for a status.
func (l *lane) writes() error {
	out, size := l.out[:0], 0
	for i := l.sent; i < l.n; i++ {
		p := l.at(i)
		out = append(out, p.head[:])
		for b := p.body(); len(b) > 0; {
			k := min(len(b), part-size)
			out, size, b = append(out, b[:k]), size+k, b[k:]
			if size < part && i < l.n-1 {
				continue // one call of the system for many short bodies
			}
			_ = l.SetWriteDeadline(time.Now().Add(ProgressTime))
			if err := l.in.write(out); err != nil {
				return l.broken(&progressError{"sending a body", uint64(p.piece.n - len(b) - k), uint64(p.piece.n), err})
			}
			if out, size = out[:0], 0; len(b) > 0 {
				l.sent = i
			} else if l.sent = i + 1; l.sent == l.n {
				break
			}
			under := l.n
			if err := l.early(); err != nil {
				return err
			}
			i -= under - l.n
		}
	}
	l.out = out[:0]
	return l.statuses()
}

// early takes the statuses that are there, between two parts of what is sent: a peer
// that refuses may read no more.
func (l *lane) early() error {
	var b [1]byte
	if n, _ := l.peek(b[:]); n == 0 {
		return nil
	}
	l.due = true
	defer func() { l.due = true }() // the wait for a status has not begun
	return l.statuses()
}

// broken is what became of a connection that cannot be written to: what arrived before
// it broke can still be read.
func (l *lane) broken(err error) error {
	_ = l.SetReadDeadline(time.Now().Add(time.Millisecond))
	l.due = false
	for {
		switch e := l.statuses(); {
		case e == nil && l.n > 0:
			_ = l.SetReadDeadline(time.Now().Add(time.Millisecond))
			l.due = false
		case e == errRejected: //nolint:errorlint // statuses returns it bare
			return e
		default:
			return err
		}
	}
}

// statuses reads what there is of statuses, and waits until there is something.
func (l *lane) statuses() error {
	if l.due {
		_ = l.SetReadDeadline(time.Now().Add(StatusTime))
		l.due = false
	}
	n, err := l.Read(l.acks[l.have:])
	l.have += n
	at := 0
	for ; l.have-at >= statusLen; at += statusLen {
		switch err := accepted((*[statusLen]byte)(l.acks[at:])); {
		case err != nil:
			return err
		case l.sent == 0:
			return fmt.Errorf("mooncake: a write was acknowledged before it was sent: %w", wire.CodeState)
		}
		l.bytes -= l.at(0).piece.n
		l.answered()
		l.due = true
	}
	if l.have = copy(l.acks[:], l.acks[at:l.have]); l.have > 0 && l.n == 0 {
		return fmt.Errorf("mooncake: %d bytes came that nobody asked for: %w", l.have, wire.CodeState)
	}
	if err != nil && l.n > 0 {
		return &progressError{"waiting for a status", uint64(l.have), statusLen, ended(err)}
	}
	return nil
}
