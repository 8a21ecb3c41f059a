//go:build !race

package link

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vector is one readv or writev of iov, which never waits: the descriptor is
// non-blocking. It goes past Go's scheduler. That takes a system call of more
// than 20 us for one that waits, and wakes one thread to look after such calls
// and another to go on with the processor; copying 256 KiB takes longer than
// that, and the wake-ups as long as the copy.
func (s *stream) vector(fd uintptr) {
	s.vec = s.vec[:0]
	for _, b := range s.iov[:min(len(s.iov), maxIov)] {
		v := unix.Iovec{Base: unsafe.SliceData(b)}
		v.SetLen(len(b))
		s.vec = append(s.vec, v)
	}
	for {
		n, _, e := syscall.RawSyscall(s.call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(s.vec))), uintptr(len(s.vec)))
		switch e {
		case 0:
			s.n, s.err = int(n), nil
			return
		case unix.EINTR:
		default:
			s.n, s.err = 0, e
			return
		}
	}
}
