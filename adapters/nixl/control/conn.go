package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sendTimeout bounds what a message waits for the other side to read.
const sendTimeout = 3 * time.Second

// roomBytes are received at a time.
const roomBytes = 64 << 10

// maxDescriptors are those that came and whose message has not.
const maxDescriptors = 4

// NewPair makes both ends: one to use, and one to hand to a child.
func NewPair() (ours *Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "nixl control")
	if ours, err = NewConn(os.NewFile(uintptr(fds[0]), "nixl control")); err == nil {
		if ours.ear, err = newEar(fds[0]); err != nil {
			_ = ours.Close()
		}
	}
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// Conn is one end. Messages are sent by any goroutine, and received by one at a time. Who
// receives waits in the kernel. The run-time's poller does not know the socket: it would be
// woken by each message too.
type Conn struct {
	ear  *ear // of NewPair
	file *os.File
	raw  syscall.RawConn // the file's: it stays open while it is used

	mu  sync.Mutex
	out []byte

	room, oob []byte // that is received into

	in  []byte // received and not yet a message
	fds []int
}

// NewConn makes one of a socket, which is its own from now on.
func NewConn(f *os.File) (*Conn, error) {
	fd := int(f.Fd())
	err := unix.SetNonblock(fd, false)
	if err == nil {
		timeout := unix.NsecToTimeval(sendTimeout.Nanoseconds())
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout)
	}
	if err != nil {
		_ = f.Close()
		return nil, os.NewSyscallError("setsockopt", err)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Conn{file: f, raw: raw, room: make([]byte, roomBytes), oob: make([]byte, unix.CmsgSpace(4*maxDescriptors))}, nil
}

// Close ends the connection, and what waits in it.
func (c *Conn) Close() error {
	_ = c.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }) // closed before
	if c.ear != nil {
		_ = c.ear.file.Close()
	}
	return c.file.Close()
}

// Await waits, in the run-time's poller, until there is something to receive and Hear is
// on. An error: the connection is closed.
func (c *Conn) Await() error { return c.ear.await() }

// Hear says whether Await is to be woken by what comes.
func (c *Conn) Hear(on bool) {
	_ = c.raw.Control(func(fd uintptr) { _ = c.ear.set(int(fd), unix.EPOLL_CTL_MOD, on) }) // closed: Await has ended
}

// Send sends a message, with a descriptor where fd is not -1. After an error other than
// ErrFrame the connection is of no use.
func (c *Conn) Send(m Message, fd int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := Append(c.out[:0], m)
	if err != nil {
		return err
	}
	c.out = b
	if e := c.raw.Write(func(to uintptr) bool { err = write(int(to), b, fd); return true }); e != nil {
		return e
	}
	return err
}

// write sends all of b by a socket, with a descriptor where there is one.
func write(to int, b []byte, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	for len(b) > 0 {
		n, err := unix.SendmsgN(to, b, rights, nil, unix.MSG_NOSIGNAL)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("sendmsg", err)
		}
		b, rights = b[n:], nil
	}
	return nil
}

func (c *Conn) drop() {
	for _, fd := range c.fds {
		_ = unix.Close(fd)
	}
	c.fds = nil
}

// ReceiveWithin returns the next message, and the descriptor that came with it, or -1. It
// waits for no longer than a time; a nil message: none has come. After an error, which is
// io.EOF at the end, there are no more.
func (c *Conn) ReceiveWithin(wait time.Duration) (Message, int, error) {
	m, fd, err := c.taken()
	if m == nil && err == nil {
		if err = c.more(wait); err == nil {
			m, fd, err = c.taken()
		}
	}
	if err != nil {
		c.drop()
	}
	return m, fd, err
}

// taken is the next message of what was received; nil: it is not there as a whole.
func (c *Conn) taken() (Message, int, error) {
	if len(c.in) < 4 {
		return nil, -1, nil
	}
	n := binary.LittleEndian.Uint32(c.in)
	if n > MaxFrame {
		return nil, -1, fmt.Errorf("%w: %d bytes, limit %d", ErrFrame, n, MaxFrame)
	}
	if uint32(len(c.in)-4) < n {
		return nil, -1, nil
	}
	m, err := Parse(c.in[4 : 4+n])
	c.in = append(c.in[:0], c.in[4+n:]...)
	if err != nil {
		return nil, -1, err
	}
	return c.with(m)
}

// with is a message with its descriptor.
func (c *Conn) with(m Message) (Message, int, error) {
	if _, ok := m.(*Map); !ok {
		return m, -1, nil
	}
	if len(c.fds) == 0 {
		return nil, -1, fmt.Errorf("%w: a window without a descriptor", ErrFrame)
	}
	fd := c.fds[0]
	c.fds = c.fds[1:]
	return m, fd, nil
}

// more receives what is there, or comes within a time.
func (c *Conn) more(wait time.Duration) (err error) {
	e := c.raw.Read(func(fd uintptr) bool { err = c.moreOf(int(fd), wait); return true })
	if e != nil {
		return io.EOF // it is closed
	}
	return err
}

func (c *Conn) moreOf(fd int, wait time.Duration) error {
	if wait > 0 {
		timeout := unix.NsecToTimespec(wait.Nanoseconds())
		_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil) // what it says, Recvmsg says too
	}
	n, oobn, flags, _, err := unix.Recvmsg(fd, c.room, c.oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return os.NewSyscallError("recvmsg", err)
	}
	return c.received(n, oobn, flags)
}

// received takes what came into room.
func (c *Conn) received(n, oobn, flags int) error {
	if n == 0 {
		return io.EOF
	}
	c.in = append(c.in, c.room[:n]...)
	if err := c.keep(c.oob[:oobn]); err != nil {
		return err
	}
	if flags&unix.MSG_CTRUNC != 0 || len(c.fds) > maxDescriptors {
		return fmt.Errorf("%w: too many descriptors", ErrFrame)
	}
	return nil
}

// keep takes the descriptors out of control messages.
func (c *Conn) keep(oob []byte) error {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	for i := range list {
		fds, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			return fmt.Errorf("%w: %w", ErrFrame, err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd) // recvmsg was asked for it too
		}
		c.fds = append(c.fds, fds...)
	}
	return nil
}
