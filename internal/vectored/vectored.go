package vectored

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Calls makes the calls of one direction of a connection, and keeps what they need.
type Calls struct{ vec []unix.Iovec }

// Writev sends from the buffers as much as the descriptor takes at once.
func (c *Calls) Writev(fd int, bufs [][]byte) (int, error) {
	sends(fd)
	return c.call(unix.SYS_WRITEV, fd, bufs)
}

func (c *Calls) call(which uintptr, fd int, bufs [][]byte) (int, error) {
	c.vec = c.vec[:0]
	for _, b := range bufs {
		if len(c.vec) == Max {
			break
		}
		if len(b) > 0 {
			v := unix.Iovec{Base: unsafe.SliceData(b)}
			v.SetLen(len(b))
			c.vec = append(c.vec, v)
		}
	}
	defer clear(c.vec) // one that rests keeps no memory of others
	for {
		n, _, e := syscall.RawSyscall(which, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(c.vec))), uintptr(len(c.vec)))
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}
