package client

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/unixrecv"
	"meridian/internal/unixsend"
	"meridian/wire"
	"meridian/wire/link"
)

// socket is a blocking descriptor: waking a goroutine through the runtime's
// poller costs more than a 16-block ACQUIRE. shutdown wakes a goroutine blocked in
// it; close comes last, when nobody is.
type socket struct {
	fd int

	mu     sync.Mutex
	closed bool

	// Of the background reader.
	polled [1]unix.PollFd
	limit  unix.Timespec

	in *unixrecv.Receiver // of the token's holder
}

func dialSocket(path string) (*socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "connect", Path: path, Err: err}
	}
	return &socket{fd: fd, in: unixrecv.New(link.MaxSegs)}, nil
}

// receive reads into b and appends to fds the descriptors that came with it.
func (s *socket) receive(b []byte, fds []int, flags int) (int, []int, error) {
	n, fds, err := s.in.Receive(s.fd, b, fds, flags)
	if errors.Is(err, unixrecv.ErrLost) || errors.Is(err, unixrecv.ErrControl) {
		err = protocolError(wire.CodeLength, "%v", err)
	}
	return n, fds, err
}

// poll waits for events, or for d to pass; d < 0: for ever. over says that both
// directions have ended, which it always waits for as well.
func (s *socket) poll(events int16, d time.Duration) (over bool, err error) {
	s.polled[0] = unix.PollFd{Fd: int32(s.fd), Events: events}
	var limit *unix.Timespec
	if d >= 0 {
		s.limit = unix.NsecToTimespec(int64(d))
		limit = &s.limit
	}
	_, err = unix.Ppoll(s.polled[:], limit, nil)
	if err == unix.EINTR {
		return false, nil // as if something had come: nobody minds a look too many
	}
	return s.polled[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0, os.NewSyscallError("ppoll", err)
}

func (s *socket) write(b []byte) error { return unixsend.Send(s.fd, b, nil, sendTimeout) }

// receiveTimeout makes receive give up after d.
func (s *socket) receiveTimeout(d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	return os.NewSyscallError("setsockopt", unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
}

func (s *socket) shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // the daemon may be gone already
	}
}

// shutdownWrite tells the daemon that nothing more comes.
func (s *socket) shutdownWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		_ = unix.Shutdown(s.fd, unix.SHUT_WR) // as above
	}
}

func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		_ = unix.Close(s.fd) // nothing is buffered here
	}
}
