package unixrecv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrLost says that more descriptors came than there was room for, or than this
// process may have (RLIMIT_NOFILE): the kernel has closed those.
var ErrLost = errors.New("descriptors were lost: too many for one message, or this process has no room for them (RLIMIT_NOFILE)")

// ErrControl says that a control message makes no sense.
var ErrControl = errors.New("a broken control message")

// Receiver reads from one socket. It is for one goroutine at a time, and keeps the
// memory of the system call, which the library's own allocates each time.
type Receiver struct {
	msg unix.Msghdr
	iov unix.Iovec
	oob []byte
}

// New makes a receiver that takes at most fds descriptors with one read.
func New(fds int) *Receiver { return &Receiver{oob: make([]byte, unix.CmsgSpace(4*fds))} }

// Receive reads into b and appends to fds the descriptors that came with it, which
// are closed at exec and are the caller's, also where there is an error: io.EOF at
// the end, os.ErrDeadlineExceeded where nothing came in time or with MSG_DONTWAIT at
// once, ErrLost with n bytes that were read.
func (r *Receiver) Receive(fd int, b []byte, fds []int, flags int) (n int, _ []int, err error) {
	r.iov.Base = &b[0]
	r.iov.SetLen(len(b))
	r.msg.Iov = &r.iov
	r.msg.SetIovlen(1)
	for {
		r.msg.Control = &r.oob[0]
		r.msg.SetControllen(len(r.oob))
		r.msg.Flags = 0
		got, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.msg)), uintptr(flags|unix.MSG_CMSG_CLOEXEC))
		switch {
		case e == unix.EINTR:
			continue
		case e == unix.EAGAIN:
			return 0, fds, os.ErrDeadlineExceeded
		case e != 0:
			return 0, fds, os.NewSyscallError("recvmsg", e)
		}
		n = int(got)
		break
	}
	if r.msg.Controllen > 0 {
		fds, err = appendRights(fds, r.oob[:r.msg.Controllen])
	}
	switch {
	case err != nil:
	case r.msg.Flags&unix.MSG_CTRUNC != 0:
		err = ErrLost
	case n == 0:
		err = io.EOF
	}
	return n, fds, err
}

// appendRights takes the descriptors out of a control message.
func appendRights(fds []int, oob []byte) ([]int, error) {
	for len(oob) >= unix.SizeofCmsghdr {
		size := binary.NativeEndian.Uint64(oob)
		level, kind := binary.NativeEndian.Uint32(oob[8:]), binary.NativeEndian.Uint32(oob[12:])
		if size < unix.SizeofCmsghdr || size > uint64(len(oob)) {
			return fds, fmt.Errorf("%w: %d bytes in %d", ErrControl, size, len(oob))
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
