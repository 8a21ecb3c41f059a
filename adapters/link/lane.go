package link

import (
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"meridian/adapters/link/internal/core"
	"meridian/wire"
)

// The way of the bytes of one lane. "lock" is the session's mutex; nothing waits
// for a socket, hashes or copies while it holds it.
//
//	1 A caller's goroutine puts a call into the core (lock), which queues control
//	  frames and bodies.
//	2 A goroutine that leaves the core with something to send takes the right to
//	  write to the lane, if nobody has it (lock): a caller after 1, the reader after 4, the
//	  worker after 5, the ticker. It asks the core which bytes are next (lock):
//	  control frames, one DATA head and the pieces of bodies behind it. One
//	  writev, straight from the arena, that never waits; then it tells the core
//	  how many went (lock). If there is more, the reader goes on where nothing
//	  can be read meanwhile, and a caller, which would only wait, for some frames;
//	  the others pass the right to the writer, and so does everybody when the socket
//	  is full. The writer waits for the socket with no
//	  memory in hand. writing.go is this part.
//	3 The reader asks the core where the next bytes go (lock): pieces of slots,
//	  then the head of the next frame. One readv; then it tells the core (lock).
//	4 The core turns what came into answers (2), finished calls (1), and jobs:
//	  bodies to hash, or pieces of long ones, and room to make for pushes. jobs.go
//	  decides whether the reader does them itself or hands them to the worker.
//	5 The worker does jobs while 3 reads on, and gives the results back (lock),
//	  which may grant, publish and answer a push, or finish a call.
//
// What waits to be written is produced by 1, 4 and 5 and bounded by the agreed
// limits. The reader never waits for the socket to take bytes, so two sides that
// send to each other as fast as they can both go on reading. Jobs are produced
// by 4 and consumed by 5 through a channel: a worker that falls behind holds up
// its own lane only.

// lane is a connection with its reader, writer and worker.
type lane struct {
	ses     *session
	core    *core.Lane
	conn    net.Conn // as the bytes go: the TLS connection where there is one
	base    net.Conn // the socket
	in      *stream
	out     *stream        // of the goroutine that has the right to write
	writing writing        // under the lock
	wake    sync.Cond      // the writer's: it may write, or the lane has ended
	gone    sync.WaitGroup // the writer, the worker, and another goroutine that writes

	jobs chan []core.Job
	busy atomic.Int32 // runs of jobs that the worker has not finished

	// The reader's own.
	mine bool // it has the right to write
	hot  bool // it is counted in Node.hot
}

// startLane begins the traffic of a lane that the core has.
func (s *session) startLane(cl *core.Lane, conn, base net.Conn) {
	l := s.newLane(cl, conn, base)
	s.node.running.Add(1)
	l.gone.Add(1)
	go l.reader()
	go l.writer()
}

func (s *session) newLane(cl *core.Lane, conn, base net.Conn) *lane {
	l := &lane{ses: s, core: cl, conn: conn, base: base}
	l.wake.L = &s.mu
	l.in = newStream(conn, unix.SYS_READV, l.rxWant, l.rxGot)
	l.in.idle = l.idle
	l.out = newStream(conn, unix.SYS_WRITEV, l.txWant, l.txDid)
	s.lanes[cl.Index()] = l
	return l
}

// reader owns the end of the lane: when it leaves, nothing of the lane runs any
// more.
func (l *lane) reader() {
	for {
		if err := l.in.read(); err != nil {
			break
		}
	}
	l.close()
	l.cool()
	if l.jobs != nil {
		close(l.jobs)
	}
	if l.mine {
		l.gone.Done()
	}
	l.gone.Wait()
	l.ses.laneGone(l)
	l.ses.node.running.Done()
}

// close ends the connection. Its users notice.
func (l *lane) close() {
	s := l.ses
	_ = l.base.Close()
	s.mu.Lock()
	s.core.LaneDown(s.now(), l.core, wire.CodeLaneLost)
	s.unlock()
}

// rxWant is the core's RxWant, under the lock.
func (l *lane) rxWant(iov [][]byte) [][]byte {
	l.ses.mu.Lock()
	iov = l.core.RxWant(iov)
	l.ses.mu.Unlock()
	return iov
}

// rxGot tells the core what a read brought, and does what came of it.
func (l *lane) rxGot(n int) {
	s := l.ses
	if n > 0 && !l.hot {
		l.hot = true
		s.node.hot.Add(1)
	}
	var buf [4]*lane
	s.mu.Lock()
	l.core.RxGot(s.now(), n)
	jobs := l.core.TakeJobs()
	more := jobs != nil && l.core.MoreBodies()
	l.answer(n, jobs != nil, s.endVisit(buf[:0]))
	switch {
	case jobs == nil:
	case l.busy.Load() == 0 && l.here(jobs, more):
		l.work(jobs, true)
	default:
		l.hand(jobs)
	}
}

// answer writes what came of a read of n bytes. The right to write to its own
// lane the reader keeps until nothing more can be read, so that a request that is more
// urgent goes first; but only once, and not while bodies come in, which keep it
// busy with something else.
func (l *lane) answer(n int, busy bool, todo []*lane) {
	if l.mine && n > 0 {
		l.mine = false
		todo = append(todo, l)
	} else if !busy && n <= maxAsk {
		for i := range todo {
			if todo[i] == l {
				l.mine = true
				todo = append(todo[:i], todo[i+1:]...)
				break
			}
		}
	}
	l.ses.flush(todo, 1)
}

// idle is called where nothing can be read. If the reader has the right to write it writes
// a frame, and reports that reading may be tried again before the next one.
func (l *lane) idle() bool {
	if l.mine {
		var buf [4]*lane
		var todo []*lane
		l.mine, todo = l.run(true, buf[:0])
		l.ses.flush(todo, 1)
	}
	if !l.mine {
		l.cool()
	}
	return l.mine
}

// cool takes the reader out of the goroutines that have something to do.
func (l *lane) cool() {
	if l.hot {
		l.hot = false
		l.ses.node.hot.Add(-1)
	}
}
