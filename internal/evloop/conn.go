package evloop

import (
	"io"
	"iter"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/vectored"
)

const (
	turn     = 1 << 20 // bytes that a connection moves before others have theirs
	callCost = 4 << 10 // of them that a call counts, however little it moves
)

// want is why a connection's function yields.
type want int

const (
	toRead want = iota
	toWrite
	toYield // it has had its turn
	toLeave // what it does now is not the loop's
	toEnter // and from now on is again
)

// Conn is a connection of a loop. The function of Go uses it as a net.Conn; others may
// only close it, and ask for its addresses and SyscallConn.
type Conn struct {
	fd            int // −1: it is closed
	loop          *loop
	local, remote net.Addr

	mu      sync.Mutex
	closed  bool // by Close
	serving bool

	next  func() (want, bool)
	yield func(want) bool

	// Of the loop, and of the function while it runs.
	added           bool
	failed          error
	waits           uint32 // events that it waits for
	until           time.Time
	timed, late     bool
	drained         bool // nothing is there to be read, until epoll says so
	over            bool // the peer's end has been told, and is not told again
	left            int  // bytes of the turn
	in, out         vectored.Calls
	readBy, writeBy time.Time
}

// Go has f run in the connection's loop. It is called once. false: the connection is closed
// already, and f does not run; the connection's methods say so.
func (c *Conn) Go(f func()) bool {
	c.mu.Lock()
	c.serving = !c.closed
	serving := c.serving
	c.mu.Unlock()
	if !serving {
		return false
	}
	c.next, _ = iter.Pull(func(yield func(want) bool) {
		c.yield = yield
		f()
	})
	c.loop.enter(c)
	return true
}

// end is that of f: the descriptor is closed, if somebody asked for it meanwhile.
func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = false
	if c.closed {
		c.release()
	}
}

// release: mu is held.
func (c *Conn) release() {
	_ = unix.Close(c.fd) // epoll forgets it
	c.fd = -1
	c.loop.conns.Add(-1)
}

// Outside runs f, which may wait, while the loop serves others.
func (c *Conn) Outside(f func()) {
	if c.yield == nil { // it was closed before, and no loop has it
		f()
		return
	}
	c.yield(toLeave)
	f()
	c.yield(toEnter)
}

// outside has the function of a connection run until it comes back.
func (c *Conn) outside() {
	if _, ok := c.next(); ok {
		c.loop.enter(c)
	}
}

// Close ends the connection. Whoever waits in it finds it closed.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	if c.serving {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // the loop hears of it, and end does the rest
		return nil
	}
	c.release()
	return nil
}

// CloseWrite ends this side's half.
func (c *Conn) CloseWrite() error {
	return c.control(func() error { return os.NewSyscallError("shutdown", unix.Shutdown(c.fd, unix.SHUT_WR)) })
}

func (c *Conn) control(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return net.ErrClosed
	}
	return f()
}

// why is what becomes of a call that cannot go on; nil: it can.
func (c *Conn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	return c.failed
}

// wait yields until the connection may go on.
func (c *Conn) wait(w want, by time.Time) error {
	if err := c.why(); err != nil {
		return err
	}
	if !by.IsZero() && !time.Now().Before(by) {
		return os.ErrDeadlineExceeded
	}
	c.until, c.late = by, false
	c.yield(w)
	if c.late {
		return os.ErrDeadlineExceeded
	}
	return c.why()
}

// moved counts what a call moved. A connection whose turn is over yields.
func (c *Conn) moved(n int) {
	if c.left -= n + callCost; c.left <= 0 {
		c.yield(toYield)
	}
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	one := [1][]byte{b}
	return c.Readv(one[:], nil)
}

// Readv fills the buffers from the first on with what is there, and waits until there is
// something. idle, if any, is called before it waits.
func (c *Conn) Readv(bufs [][]byte, idle func() error) (int, error) {
	bufs = bufs[:min(len(bufs), vectored.Max)]
	all := 0
	for _, b := range bufs {
		all += len(b)
	}
	for {
		if !c.drained {
			n, err := c.in.Readv(c.fd, bufs)
			switch {
			case err == unix.EAGAIN:
				c.drained = true
			case err != nil:
				return 0, c.refused("read", err)
			case n == 0 && all > 0:
				return 0, c.refused("read", io.EOF)
			default:
				// A short read took all there was: what comes then is told. The end was
				// told before if it had come before.
				c.drained = n < all && !c.over
				c.moved(n)
				return n, nil
			}
		}
		if idle != nil {
			if err := idle(); err != nil {
				return 0, err
			}
			if !c.drained { // it yielded, and epoll tells of each arrival once
				continue
			}
		}
		if err := c.wait(toRead, c.readBy); err != nil {
			return 0, err
		}
		c.drained = false
	}
}

// refused is a call that failed, or that Close ended.
func (c *Conn) refused(call string, err error) error {
	if why := c.why(); why != nil {
		return why
	}
	if errno, ok := err.(unix.Errno); ok {
		return os.NewSyscallError(call, errno)
	}
	return err
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	one := [1][]byte{b}
	return c.Writev(one[:])
}

// Writev sends all of the buffers, whose slice it uses up.
func (c *Conn) Writev(bufs [][]byte) (done int, err error) {
	for len(bufs) > 0 {
		if len(bufs[0]) == 0 {
			bufs = bufs[1:]
			continue
		}
		n, err := c.out.Writev(c.fd, bufs)
		switch {
		case err == unix.EAGAIN:
			if err := c.wait(toWrite, c.writeBy); err != nil {
				return done, err
			}
			continue
		case err != nil:
			return done, c.refused("write", err)
		}
		done += n
		for left := n; left > 0; {
			k := min(left, len(bufs[0]))
			if bufs[0], left = bufs[0][k:], left-k; len(bufs[0]) == 0 {
				bufs[0] = nil // as an idle connection is to keep no memory of others
				bufs = bufs[1:]
			}
		}
		c.moved(n)
	}
	return done, nil
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	c.readBy, c.writeBy = t, t
	return nil
}

// SetReadDeadline implements net.Conn. Deadlines are kept to within a tick of 50 ms.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readBy = t
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeBy = t
	return nil
}

// SyscallConn implements syscall.Conn, for Control.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return rawConn{c}, nil }

type rawConn struct{ c *Conn }

func (r rawConn) Control(f func(fd uintptr)) error {
	return r.c.control(func() error { f(uintptr(r.c.fd)); return nil })
}

func (rawConn) Read(func(uintptr) bool) error  { return os.ErrInvalid }
func (rawConn) Write(func(uintptr) bool) error { return os.ErrInvalid }
