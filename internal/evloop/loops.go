package evloop

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLoops bounds the threads of one Loops: each moves some GB a second.
const maxLoops = 4

// Loops are event loops. The zero value has none; they start with the first connection.
type Loops struct {
	mu     sync.Mutex
	closed bool
	loops  []*loop
	most   int // loops; 0: half the processors, maxLoops at most
}

// Take makes a connection one of a loop, and ends nc, of which it has the socket. It is an
// error where nc is no socket, or the process has no descriptor left; nc is as it was
// then. Go, once, has the connection served.
func (s *Loops) Take(nc net.Conn) (*Conn, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("evloop: %T is no socket: %w", nc, os.ErrInvalid)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	l, err := s.least()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		err = e
	}
	if err != nil {
		l.conns.Add(-1)
		return nil, os.NewSyscallError("fcntl", err)
	}
	c := &Conn{fd: fd, loop: l, local: nc.LocalAddr(), remote: nc.RemoteAddr()}
	_ = nc.Close() // the runtime's poller knows the socket no more; it stays open by fd
	return c, nil
}

// least is the loop with the fewest connections, which counts one more.
func (s *Loops) least() (*loop, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if s.most == 0 {
		s.most = max(1, min(maxLoops, runtime.GOMAXPROCS(0)/2))
	}
	for len(s.loops) < s.most {
		l, err := newLoop()
		if err != nil {
			return nil, err
		}
		s.loops = append(s.loops, l)
	}
	best := s.loops[0]
	for _, l := range s.loops[1:] {
		if l.conns.Load() < best.conns.Load() {
			best = l
		}
	}
	best.conns.Add(1)
	return best, nil
}

// Close ends the loops. The functions of all connections must have returned, or be about to.
func (s *Loops) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, l := range s.loops {
		l.close()
	}
	s.loops = nil
}
