package evloop

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vector is one readv or writev that never waits, as the descriptor is non-blocking. It
// goes past Go's scheduler, which takes a call of more than 20 µs for one that waits, and
// wakes a thread to go on with the processor; copying 256 KiB takes as long.
func (c *Conn) vector(call uintptr, bufs [][]byte) (int, error) {
	c.vec = c.vec[:0]
	for _, b := range bufs {
		if len(b) > 0 {
			v := unix.Iovec{Base: unsafe.SliceData(b)}
			v.SetLen(len(b))
			c.vec = append(c.vec, v)
		}
	}
	defer clear(c.vec) // an idle connection keeps no memory of others
	for {
		n, _, e := syscall.RawSyscall(call, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(c.vec))), uintptr(len(c.vec)))
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

func (c *Conn) writev(bufs [][]byte) (int, error) {
	sends(c.fd)
	return c.vector(unix.SYS_WRITEV, bufs)
}
