package client

import (
	"encoding/binary"
	"io"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

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

	// Of the token's holder. A recvmsg of its own, since the library's allocates.
	msg unix.Msghdr
	iov unix.Iovec
	oob [rightsSpace]byte
}

// rightsSpace holds the most descriptors that one sendmsg can carry.
const rightsSpace = 16 + link.MaxSegs*4 + 8

func dialSocket(path string) (*socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "connect", Path: path, Err: err}
	}
	return &socket{fd: fd}, nil
}

// receive reads into b and appends to fds the descriptors that came with it.
func (s *socket) receive(b []byte, fds []int, flags int) (int, []int, error) {
	s.iov.Base = &b[0]
	s.iov.SetLen(len(b))
	s.msg.Iov = &s.iov
	s.msg.SetIovlen(1)
	for {
		s.msg.Control = &s.oob[0]
		s.msg.SetControllen(len(s.oob))
		s.msg.Flags = 0
		r, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msg)), uintptr(flags|unix.MSG_CMSG_CLOEXEC))
		switch {
		case e == unix.EINTR:
			continue
		case e == unix.EAGAIN:
			return 0, fds, os.ErrDeadlineExceeded
		case e != 0:
			return 0, fds, os.NewSyscallError("recvmsg", e)
		}
		if s.msg.Controllen > 0 {
			var err error
			if fds, err = appendRights(fds, s.oob[:s.msg.Controllen]); err != nil {
				return 0, fds, err
			}
		}
		if s.msg.Flags&unix.MSG_CTRUNC != 0 {
			return 0, fds, protocolError(wire.CodeLength, "descriptors were lost: too many for one message, or this process has no room for them (RLIMIT_NOFILE)")
		}
		if r == 0 {
			return 0, fds, io.EOF
		}
		return int(r), fds, nil
	}
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

// appendRights takes the descriptors out of a control message.
func appendRights(fds []int, oob []byte) ([]int, error) {
	for len(oob) >= unix.SizeofCmsghdr {
		size := binary.NativeEndian.Uint64(oob)
		level, kind := binary.NativeEndian.Uint32(oob[8:]), binary.NativeEndian.Uint32(oob[12:])
		if size < unix.SizeofCmsghdr || size > uint64(len(oob)) {
			return fds, protocolError(wire.CodeLength, "control message of %d bytes in %d", size, len(oob))
		}
		if level == unix.SOL_SOCKET && kind == unix.SCM_RIGHTS {
			for b := oob[unix.SizeofCmsghdr:size]; len(b) >= 4; b = b[4:] {
				fds = append(fds, int(int32(binary.NativeEndian.Uint32(b))))
			}
		}
		oob = oob[min((size+7)&^7, uint64(len(oob))):]
	}
	return fds, nil
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
