package door

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxUnsent is how many bytes the kernel holds of what a connection's peer takes no more
// (TCP_NOTSENT_LOWAT), instead of a send buffer of 4 MiB or more: with 4096 connections
// 512 MiB. What is under way to the peer does not count, so a long way is still filled;
// half of it keeps a line of 40 Gbit/s busy for 13 µs until the sender goes on.
const MaxUnsent = 128 << 10

func control(c net.Conn, f func(fd int)) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

func boundUnsent(c net.Conn) {
	control(c, func(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, MaxUnsent) })
}

// DropUnsent has the connection's end throw away what the peer has not taken: a kernel
// keeps it for minutes else, for a connection that counts nowhere any more.
func (c *Conn) DropUnsent() {
	control(c.Conn, func(fd int) {
		if n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQNSD); err == nil && n > 0 {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
	})
}
