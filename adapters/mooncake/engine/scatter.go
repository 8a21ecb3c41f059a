package engine

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"meridian/internal/evloop"
)

// maxVector is how many buffers one call of the system fills.
const maxVector = 32

// scatter reads from a connection into several buffers at once, so that a status and
// the body behind it cost one call of the system, and no copy. One goroutine uses it.
type scatter struct {
	c    net.Conn
	loop *evloop.Conn    // nil: not of a loop
	raw  syscall.RawConn // nil: not a socket, and each buffer is a call
	// wait is called before read waits; nil: nothing is to be done.
	wait func() error

	// Of the call under way, which readv makes.
	bufs [][]byte
	n    int
	err  error
}

func newScatter(c net.Conn) *scatter {
	s := &scatter{c: c}
	if lc, ok := c.(*evloop.Conn); ok {
		s.loop = lc
		return s
	}
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	return s
}

// read fills the buffers from the first on with what is there, and waits until there
// is something, or for the connection's deadline.
func (s *scatter) read(bufs [][]byte) (n int, err error) {
	if s.loop != nil {
		return s.loop.Readv(bufs, s.wait)
	}
	if s.raw == nil {
		if s.wait != nil {
			if err := s.wait(); err != nil {
				return 0, err
			}
		}
		return s.c.Read(bufs[0])
	}
	s.bufs = bufs[:min(len(bufs), maxVector)]
	err = s.raw.Read(s.readv)
	s.bufs = nil
	switch {
	case err != nil:
		return 0, err
	case s.err != nil:
		return 0, s.err
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

func (s *scatter) readv(fd uintptr) (done bool) {
	for s.err = unix.EINTR; errors.Is(s.err, unix.EINTR); {
		s.n, s.err = unix.Readv(int(fd), s.bufs)
	}
	switch {
	case s.err == nil:
	case errors.Is(s.err, unix.EAGAIN):
		if s.err = nil; s.wait != nil {
			s.err = s.wait()
		}
		return s.err != nil
	default:
		s.err = os.NewSyscallError("readv", s.err)
	}
	return true
}

// gatherTo sends several buffers, by one call of the system where c is a socket.
func gatherTo(c net.Conn, bufs net.Buffers) error {
	if lc, ok := c.(*evloop.Conn); ok {
		_, err := lc.Writev(bufs)
		return err
	}
	_, err := bufs.WriteTo(c)
	return err
}
