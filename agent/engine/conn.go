package engine

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/unixsend"
)

// conn is a blocking descriptor, read and written by plain system calls: waking a
// goroutine through the runtime's poller costs more than a 16-block ACQUIRE.
// shutdown wakes a goroutine that is blocked in it; close comes last, when nobody is.
type conn struct {
	fd       int
	patience time.Duration // for the engine to take all that one write has

	mu     sync.Mutex
	closed bool
}

// read returns io.EOF at the peer's end, os.ErrDeadlineExceeded when the receive
// timeout passed.
func (c *conn) read(b []byte) (int, error) {
	for {
		n, err := unix.Read(c.fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0, os.ErrDeadlineExceeded
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// write sends b, with descriptors attached to its first byte where there are any.
func (c *conn) write(b []byte, fds ...int) error { return unixsend.Send(c.fd, b, fds, c.patience) }

// offer writes what the socket takes of b at once.
func (c *conn) offer(b []byte) (int, error) { return unixsend.Offer(c.fd, b) }

// writable waits until there may be room, and returns false when the connection is
// over.
func (c *conn) writable() bool {
	p := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
	for {
		n, err := unix.Poll(p, -1)
		if n == 1 {
			return p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) == 0
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}

// receiveTimeout makes read give up after d; 0: never.
func (c *conn) receiveTimeout(d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	return os.NewSyscallError("setsockopt", unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
}

// shutdown ends the directions of how; anybody blocked in them returns.
func (c *conn) shutdown(how int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		_ = unix.Shutdown(c.fd, how) // the peer may be gone already
	}
}

// close frees the descriptor. Nobody may be in read or write.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		_ = unix.Close(c.fd) // nothing is buffered here
	}
}
