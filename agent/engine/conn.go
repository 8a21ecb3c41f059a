package engine

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// errSendTimeout ends a session whose engine does not read.
var errSendTimeout = errors.New("engine: nothing was read by the peer within the send timeout")

// conn is a blocking descriptor, read and written by plain system calls: waking a
// goroutine through the runtime's poller costs more than a 16-block ACQUIRE.
// shutdown wakes a goroutine that is blocked in it; close comes last, when nobody is.
type conn struct {
	fd int

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

func (c *conn) write(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(c.fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return errSendTimeout
		case err != nil:
			return os.NewSyscallError("write", err)
		}
		b = b[n:]
	}
	return nil
}

// writeRights writes b with descriptors attached to its first byte.
func (c *conn) writeRights(b []byte, fds []int) error {
	oob := unix.UnixRights(fds...)
	for {
		n, err := unix.SendmsgN(c.fd, b, oob, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return errSendTimeout
		case err != nil:
			return os.NewSyscallError("sendmsg", err)
		}
		return c.write(b[n:])
	}
}

// receiveTimeout makes read give up after d; 0: never.
func (c *conn) receiveTimeout(d time.Duration) error { return c.timeout(unix.SO_RCVTIMEO, d) }

// sendTimeout makes write give up after d without progress.
func (c *conn) sendTimeout(d time.Duration) error { return c.timeout(unix.SO_SNDTIMEO, d) }

func (c *conn) timeout(opt int, d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	return os.NewSyscallError("setsockopt", unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, opt, &tv))
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
