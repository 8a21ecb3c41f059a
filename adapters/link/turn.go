package link

import (
	"time"

	"golang.org/x/sys/unix"

	proto "meridian/wire/link"
)

// turn says whose the write side of a lane is. The session's lock guards it.
//
// A goroutine that leaves the core with something to send takes a free turn and writes,
// in the same goroutine and without waiting for the socket: to wake another one
// for it would take longer than the write. The holder of the turn looks again
// before it gives it back, so what is queued meanwhile needs no signal.
type turn uint8

const (
	turnFree   turn = iota
	turnDirect      // a goroutine's that left the core, until the end of run
	turnWriter      // the lane's writer's, which may wait for the socket
)

// take makes the turn the caller's if it is free and there is something to send;
// the caller owes run. Called with the lock.
func (l *lane) take() bool {
	switch {
	case l.turn != turnFree:
		return false
	case !l.core.TxPending():
		l.tellEnd()
		return false
	case l.out.raw == nil:
		l.pass()
		return false
	}
	l.turn = turnDirect
	l.gone.Add(1)
	return true
}

// pass gives the turn to the writer. Called with the lock.
func (l *lane) pass() {
	l.turn = turnWriter
	l.wake.Signal()
}

// tellEnd wakes the writer where it is to end the connection. Called with the
// lock.
func (l *lane) tellEnd() {
	if l.core.Dead() || l.core.TxFlushed() {
		l.wake.Signal()
	}
}

// run writes once, as much as the socket takes without waiting. The turn then
// goes back if that was all; and to the writer if the socket is full, or if the
// caller does not keep it. It reports whether the caller still has it, and
// appends to todo the lanes whose turns the caller got besides.
func (l *lane) run(keep bool, todo []*lane) (bool, []*lane) {
	s := l.ses
	s.mu.Lock()
	l.out.iov = l.core.TxWant(l.out.iov[:0])
	s.mu.Unlock()
	err := l.out.direct()
	s.mu.Lock()
	l.core.TxDid(s.now(), l.out.n)
	switch {
	case !l.core.TxPending():
		l.turn, keep = turnFree, false
		l.tellEnd()
	case err == nil && keep:
	case err == nil, err == unix.EAGAIN:
		keep = false
		l.pass()
	default:
		keep = false // the turn stays taken: nobody writes any more
		interrupt(l.base)
	}
	if !keep {
		l.gone.Done()
	}
	return keep, s.leave(todo)
}

// flush writes what lanes have whose turns the caller got: at most so many frames of
// each while the socket takes them.
func (s *session) flush(todo []*lane, frames int) {
	for len(todo) > 0 {
		l := todo[0]
		todo = todo[1:]
		for n, keep := 1, true; keep; n++ {
			keep, todo = l.run(n < frames, todo)
		}
	}
}

// txWant and txDid are the core's, under the lock, for the writer.
func (l *lane) txWant(iov [][]byte) [][]byte {
	l.ses.mu.Lock()
	iov = l.core.TxWant(iov)
	l.ses.mu.Unlock()
	return iov
}

func (l *lane) txDid(n int) {
	s := l.ses
	s.mu.Lock()
	l.core.TxDid(s.now(), n)
	s.unlock()
}

// writer writes where the others would have to wait.
func (l *lane) writer() {
	defer l.gone.Done()
	for {
		dead, flushed := l.await()
		switch {
		case dead:
			interrupt(l.base)
			return
		case flushed:
			bound(l.base, time.Now().Add(proto.DrainError))
			halfClose(l.conn)
			return
		}
		if err := l.out.write(); err != nil {
			interrupt(l.base)
			return
		}
	}
}

// await gives the writer's turn back if there is nothing to send, and waits for
// the next one, or for the lane's end.
func (l *lane) await() (dead, flushed bool) {
	l.ses.mu.Lock()
	defer l.ses.mu.Unlock()
	for {
		if l.turn == turnWriter && !l.core.TxPending() {
			l.turn = turnFree
		}
		dead, flushed = l.core.Dead(), l.core.TxFlushed()
		if dead || flushed || l.turn == turnWriter {
			return dead, flushed
		}
		l.wake.Wait()
	}
}
