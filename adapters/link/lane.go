package link

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/wire"
	proto "meridian/wire/link"
)

// The way of the bytes of one lane. "lock" is the session's mutex; nothing waits
// for a socket, hashes or copies while it holds it.
//
//	1 A caller's goroutine puts a call into the core (lock), which queues control
//	  frames and bodies, and signals the writer.
//	2 The writer asks the core which bytes are next (lock): control frames, one
//	  DATA head and the pieces of bodies behind it. One writev, straight from the
//	  arena, that never blocks; then it tells the core how many went (lock). When
//	  the socket is full it waits with no memory in hand, and asks again.
//	3 The reader asks the core where the next bytes go (lock): pieces of slots,
//	  then the head of the next frame. One readv; then it tells the core (lock).
//	4 The core turns what came into answers, finished calls, and jobs. The reader
//	  hands the jobs, those of at most jobQueue reads, to the worker.
//	5 The worker (or the reader, where it is one short body) hashes bodies, or pieces of long ones, while 3 reads the next,
//	  and makes room for pushes. It gives the results back (lock), which may
//	  grant, publish and answer a push, or finish a call: back to 2, or to 1.
//
// What waits for the writer is produced by 1, 3 and 5 and bounded by the agreed
// limits. Jobs are produced by 3 and consumed by 5 through a channel: a worker
// that falls behind holds up its own lane only.

// lane is a connection with its reader, writer and worker.
type lane struct {
	ses  *session
	core *core.Lane
	conn net.Conn // as the bytes go: the TLS connection where there is one
	base net.Conn // the socket
	wake sync.Cond
	jobs chan []core.Job
	busy atomic.Int32   // batches of jobs that the worker has not finished
	gone sync.WaitGroup // writer and worker
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

// rxWant and the three below are the core's, under the lock.
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
	jobs := l.core.TakeJobs()
	s.unlock()
	switch {
	case len(jobs) == 0:
	case len(jobs) == 1 && jobs[0].Quick(quickHash) && l.busy.Load() == 0:
		l.work(jobs)
	default:
		l.hand(jobs)
	}
}

// work does jobs, and those that come of them.
func (l *lane) work(jobs []core.Job) {
	s := l.ses
	for len(jobs) > 0 {
		for i := range jobs {
			jobs[i].Run()
		}
		s.mu.Lock()
		s.core.Finish(s.now(), jobs)
		jobs = l.core.TakeJobs()
		s.unlock()
	}
}

// hand gives jobs to the worker, which starts with the first.
func (l *lane) hand(jobs []core.Job) {
	if l.jobs == nil {
		l.jobs = make(chan []core.Job, jobQueue)
		l.gone.Add(1)
		go l.worker()
	}
	l.busy.Add(1)
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

func (l *lane) worker() {
	defer l.gone.Done()
	for jobs := range l.jobs {
		l.work(jobs)
		l.busy.Add(-1)
	}
}
