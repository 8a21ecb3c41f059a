package engine

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"meridian/internal/evloop"
	"meridian/internal/vectored"
)

// scatter reads from a connection into several buffers at once, so that a status and the
// body behind it cost one call of the system and no copy, and sends from several. One
// goroutine uses it.
type scatter struct {
	c    net.Conn
	loop *evloop.Conn    // nil: not of a loop
	raw  syscall.RawConn // nil: not a socket, and each buffer is a call
	// wait is called before read waits; nil: nothing is to be done.
	wait func() error

	// Of the call under way, which readv or writev makes.
	in, out vectored.Calls
	bufs    [][]byte
	n       int
	err     error
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
	s.bufs = bufs
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
	s.n, s.err = s.in.Readv(int(fd), s.bufs)
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

// write sends all of the buffers, whose slice it uses up, or what the connection takes
// until its deadline.
func (s *scatter) write(bufs [][]byte) error {
	switch {
	case s.loop != nil:
		_, err := s.loop.Writev(bufs)
		return err
	case s.raw == nil:
		_, err := (*net.Buffers)(&bufs).WriteTo(s.c)
		return err
	}
	s.bufs, s.err = bufs, nil
	err := s.raw.Write(s.writev)
	s.bufs = nil
	return errors.Join(err, s.err)
}

func (s *scatter) writev(fd uintptr) (done bool) {
	for len(s.bufs) > 0 {
		n, err := s.out.Writev(int(fd), s.bufs)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil:
			s.err = os.NewSyscallError("writev", err)
			return true
		}
		for len(s.bufs) > 0 && n >= len(s.bufs[0]) {
			n -= len(s.bufs[0])
			s.bufs[0] = nil // an idle lane keeps no memory of its callers
			s.bufs = s.bufs[1:]
		}
		if n > 0 {
			s.bufs[0] = s.bufs[0][n:]
		}
	}
	return true
}
