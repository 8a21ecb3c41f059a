package link

import (
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/invariants"
	"meridian/internal/vectored"
)

// stream moves a lane's bytes between its connection and the memory that the
// core names. A connection with a descriptor of its own is read and written in
// place, without blocking: where the bytes go is asked anew for each try, so no
// memory is in use while the lane waits. Others (TLS, pipes) go through a
// bounce buffer, for the same reason, and are written by the writer alone.
type stream struct {
	conn  net.Conn
	raw   syscall.RawConn // nil: bounce
	call  uintptr         // SYS_READV or SYS_WRITEV
	where func(iov [][]byte) [][]byte
	moved func(n int)
	idle  func() bool // may be nil: called before waiting; true: try again first

	iov [][]byte
	sys vectored.Calls
	buf []byte
	n   int // of the last call, with err
	err error

	// Methods as values, made once, to save a closure a call.
	onTry func(fd uintptr) bool
	onNow func(fd uintptr)
}

// newStream makes one direction of a connection. where and moved are the core's
// Want and Got, under the session's lock.
func newStream(c net.Conn, call uintptr, where func([][]byte) [][]byte, moved func(int)) *stream {
	s := &stream{conn: c, call: call, where: where, moved: moved}
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	s.onTry, s.onNow = s.try, s.vector
	return s
}

// vector is one readv or writev of iov, which never waits: the descriptor is non-blocking.
func (s *stream) vector(fd uintptr) {
	if s.call == unix.SYS_WRITEV {
		s.n, s.err = s.sys.Writev(int(fd), s.iov)
	} else {
		s.n, s.err = s.sys.Readv(int(fd), s.iov)
	}
}

// try moves bytes once, and reports false where the descriptor is not ready.
func (s *stream) try(fd uintptr) bool {
	for {
		s.iov = s.where(s.iov[:0])
		s.vector(fd)
		s.moved(s.n)
		if s.err != unix.EAGAIN {
			return true
		}
		if s.idle == nil || !s.idle() {
			return false
		}
	}
}

// direct moves the bytes of iov as far as they go without waiting, for a caller that has
// filled it itself.
func (s *stream) direct() error {
	if err := s.raw.Control(s.onNow); err != nil {
		s.n = 0
		return err
	}
	return s.err
}

// drained reports whether the last read brought less than there was room for. Of
// what goes through the bounce buffer that says nothing.
func (s *stream) drained() bool {
	room := 0
	for _, b := range s.iov {
		room += len(b)
	}
	return s.raw != nil && s.n < room
}

// read moves bytes in once. io.EOF at the end.
func (s *stream) read() error {
	if s.raw == nil {
		return s.bounceIn()
	}
	if err := s.raw.Read(s.onTry); err != nil {
		return err
	}
	if s.err == nil && s.n == 0 {
		return io.EOF
	}
	return s.err
}

// write moves bytes out once.
func (s *stream) write() error {
	if s.raw == nil {
		return s.bounceOut()
	}
	if err := s.raw.Write(s.onTry); err != nil {
		return err
	}
	return s.err
}

func (s *stream) bounceIn() error {
	if s.buf == nil {
		s.buf = make([]byte, bounceLen)
	}
	s.idle()
	n, err := s.conn.Read(s.buf)
	for b := s.buf[:n]; len(b) > 0; {
		s.iov = s.where(s.iov[:0])
		took := 0
		for _, p := range s.iov {
			took += copy(p, b[took:])
		}
		s.moved(took)
		b = b[took:]
	}
	invariants.Overwrite(s.buf[:n])
	return err
}

func (s *stream) bounceOut() error {
	if s.buf == nil {
		s.buf = make([]byte, bounceLen)
	}
	s.iov = s.where(s.iov[:0])
	n := 0
	for _, p := range s.iov {
		n += copy(s.buf[n:], p)
	}
	s.moved(n)
	if n == 0 {
		return nil
	}
	_, err := s.conn.Write(s.buf[:n])
	invariants.Overwrite(s.buf[:n])
	return err
}

// halfClose says that nothing more comes, where the transport can.
func halfClose(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
		return
	}
	_ = c.Close()
}

// interrupt makes every read and write end at once, those under way included.
// Close would wait for them, and they may wait for a lock that the caller has.
func interrupt(c net.Conn) { _ = c.SetDeadline(time.Unix(1, 0)) }

// bound makes reads end at t at the latest.
func bound(c net.Conn, t time.Time) { _ = c.SetReadDeadline(t) }
