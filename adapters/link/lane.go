package link

import (
	"net"
	"sync"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/wire"
	proto "meridian/wire/link"
)

// The way of the bytes of one lane. Every box is a goroutine; "lock" is the
// session's mutex, and nothing waits while it holds it.
//
//	out  1 a caller's goroutine puts a call into the core, or 5 puts an answer
//	       there (lock), and signals the writer
//	     2 writer: asks the core which bytes are next (lock): control frames,
//	       one DATA head and the pieces of bodies behind it; one writev straight
//	       from the arena, which never blocks; tells the core how many went
//	       (lock); waits for the socket, with no memory in hand, if it is full
//	in   3 reader: asks the core where the next bytes go (lock): pieces of slots,
//	       then the head of the next frame; one readv; tells the core (lock)
//	     4 the core turns what came into hash jobs, answers and finished calls;
//	       the reader hands the jobs, at most hashQueue reads of them, to 5
//	hash 5 hasher: hashes a body, or a piece of a long one, while 3 reads the
//	       next; gives the sums back (lock), which may publish a push, answer
//	       it, or finish a call
//
// Produced by 1 and 5, consumed by 2: the core's queues, bounded by the agreed
// limits. Produced by 3, consumed by 5: jobs.

// lane is a connection with its three goroutines.
type lane struct {
	ses  *session
	core *core.Lane
	conn net.Conn // as the bytes go: the TLS connection where there is one
	base net.Conn // the socket
	wake sync.Cond
	jobs chan []core.HashJob
	gone sync.WaitGroup // writer and hasher
}

// startLane begins the traffic of a lane that the core has.
func (s *session) startLane(cl *core.Lane, conn, base net.Conn) *lane {
	l := &lane{ses: s, core: cl, conn: conn, base: base}
	l.wake.L = &s.mu
	s.lanes[cl.Index()] = l
	s.node.running.Add(1)
	l.gone.Add(1)
	go l.reader()
	go l.writer()
	return l
}

// want is the core's RxWant under the lock.
func (l *lane) rxWant(iov [][]byte) [][]byte {
	l.ses.mu.Lock()
	iov = l.core.RxWant(iov)
	l.ses.mu.Unlock()
	return iov
}

func (l *lane) rxGot(n int) {
	s := l.ses
	s.mu.Lock()
	l.core.RxGot(s.now(), n)
	jobs := l.core.TakeHash()
	s.unlock()
	if len(jobs) > 0 {
		l.hash(jobs)
	}
}

// hash hands jobs to the hasher, which starts with the first.
func (l *lane) hash(jobs []core.HashJob) {
	if l.jobs == nil {
		l.jobs = make(chan []core.HashJob, hashQueue)
		l.gone.Add(1)
		go l.hasher()
	}
	l.jobs <- jobs
}

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

// reader owns the end of the lane: when it leaves, nothing of the lane runs any
// more.
func (l *lane) reader() {
	in := newStream(l.conn, true, l.rxWant, l.rxGot)
	for {
		if err := in.read(); err != nil {
			break
		}
	}
	l.close()
	if l.jobs != nil {
		close(l.jobs)
	}
	l.gone.Wait()
	l.ses.laneGone(l)
	l.ses.node.running.Done()
}

// close ends the connection. Both loops notice.
func (l *lane) close() {
	s := l.ses
	_ = l.base.Close()
	s.mu.Lock()
	s.core.LaneDown(s.now(), l.core, wire.CodeLaneLost)
	s.unlock()
}

func (l *lane) writer() {
	defer l.gone.Done()
	s := l.ses
	out := newStream(l.conn, false, l.txWant, l.txDid)
	for {
		s.mu.Lock()
		for !l.core.TxPending() && !l.core.Dead() && !l.core.Failed() {
			l.wake.Wait()
		}
		dead, flushed := l.core.Dead(), l.core.TxFlushed()
		s.mu.Unlock()
		switch {
		case dead:
			interrupt(l.base)
			return
		case flushed:
			bound(l.base, time.Now().Add(proto.DrainError))
			halfClose(l.conn)
			return
		}
		if err := out.write(); err != nil {
			interrupt(l.base)
			return
		}
	}
}

func (l *lane) hasher() {
	defer l.gone.Done()
	s := l.ses
	for jobs := range l.jobs {
		for i := range jobs {
			jobs[i].Run()
		}
		s.mu.Lock()
		s.core.Hashed(s.now(), jobs)
		s.unlock()
	}
}
