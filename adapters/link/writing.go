package link

import (
	"time"

	"golang.org/x/sys/unix"

	proto "meridian/wire/link"
)

// writing says which goroutine has the right to write to a lane's socket: one at a
// time. The session's lock guards it.
//
// A goroutine that leaves the core with something to send takes the right if nobody
// has it, and writes without waiting for the socket: waking another goroutine for it
// would take longer than the write. It looks again before it gives the right back, so
// what is queued meanwhile needs no signal.
type writing uint8

const (
	writingNone   writing = iota // nobody
	writingDirect                // a goroutine that left the core, until the end of run
	writingWriter                // the lane's writer, which may wait for the socket
)

// take gives the caller the right to write if nobody has it and there is something to
// send; the caller owes run. Called with the lock.
func (l *lane) take() bool {
	switch {
	case l.writing != writingNone:
		return false
	case !l.core.TxPending():
		l.tellEnd()
		return false
	case l.out.raw == nil:
		l.passToWriter()
		return false
	}
	l.writing = writingDirect
	l.gone.Add(1)
	return true
}

// passToWriter gives the right to write to the lane's writer. Called with the lock.
func (l *lane) passToWriter() {
	l.writing = writingWriter
	l.wake.Signal()
}

// tellEnd wakes the writer where it is to end the connection. Called with the
// lock.
func (l *lane) tellEnd() {
	if l.core.Dead() || l.core.TxFlushed() {
		l.wake.Signal()
	}
}

// run writes once, as much as the socket takes without waiting. The right to
// write then goes back if that was all, and to the writer if the socket is full, or if the
// caller does not keep it. It reports whether the caller still has it, and
// appends to todo the other lanes that the caller may now write to.
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
		l.writing, keep = writingNone, false
		l.tellEnd()
	case err == nil && keep:
	case err == nil, err == unix.EAGAIN:
		keep = false
		l.passToWriter()
	default:
		keep = false // the right stays taken: nobody writes any more
		interrupt(l.base)
	}
	if !keep {
		l.gone.Done()
	}
	return keep, s.endVisit(todo)
}

// flush writes to the lanes that the caller has the right to write to: at most so many
// frames of each while the socket takes them.
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

// await gives the writer's right back if there is nothing to send, and waits until the
// writer gets it again, or for the lane's end.
func (l *lane) await() (dead, flushed bool) {
	l.ses.mu.Lock()
	defer l.ses.mu.Unlock()
	for {
		if l.writing == writingWriter && !l.core.TxPending() {
			l.writing = writingNone
		}
		dead, flushed = l.core.Dead(), l.core.TxFlushed()
		if dead || flushed || l.writing == writingWriter {
			return dead, flushed
		}
		l.wake.Wait()
	}
}
