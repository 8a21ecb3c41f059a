package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sendTimeout bounds what a message waits for the other side to read.
const sendTimeout = 10 * time.Second

// maxDescriptors are those that came and whose message has not.
const maxDescriptors = 4

// NewPair makes both ends: one to use, and one to hand to a child.
func NewPair() (ours *Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "nixl control")
	if ours, err = NewConn(os.NewFile(uintptr(fds[0]), "nixl control")); err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// Conn is one end. Messages are sent by any goroutine, and received by one.
type Conn struct {
	c *net.UnixConn

	mu  sync.Mutex
	out []byte

	in  []byte // received and not yet a message
	fds []int
}

// NewConn makes one of a socket, which it closes.
func NewConn(f *os.File) (*Conn, error) {
	defer func() { _ = f.Close() }()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("the control socket is of %s", c.LocalAddr().Network())
	}
	return &Conn{c: u}, nil
}

// Close ends the connection, and what waits in it.
func (c *Conn) Close() error { return c.c.Close() }

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
	if err := c.c.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if fd >= 0 {
		n, _, err := c.c.WriteMsgUnix(b, unix.UnixRights(fd), nil)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	_, err = c.c.Write(b)
	return err
}

// Receive returns the next message, and the descriptor that came with it, or -1. After
// an error, which is io.EOF at the end, there are no more.
func (c *Conn) Receive() (Message, int, error) {
	m, fd, err := c.next()
	if err != nil {
		for _, fd := range c.fds {
			_ = unix.Close(fd)
		}
		c.fds = nil
	}
	return m, fd, err
}

func (c *Conn) next() (Message, int, error) {
	for {
		if len(c.in) >= 4 {
			n := binary.LittleEndian.Uint32(c.in)
			if n > MaxFrame {
				return nil, -1, fmt.Errorf("%w: %d bytes, limit %d", ErrFrame, n, MaxFrame)
			}
			if uint32(len(c.in)-4) >= n {
				m, err := Parse(c.in[4 : 4+n])
				c.in = append(c.in[:0], c.in[4+n:]...)
				if err != nil {
					return nil, -1, err
				}
				return c.with(m)
			}
		}
		if err := c.more(); err != nil {
			return nil, -1, err
		}
	}
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

// more receives what is there.
func (c *Conn) more() error {
	var b [64 << 10]byte
	oob := make([]byte, unix.CmsgSpace(4*maxDescriptors))
	n, oobn, flags, _, err := c.c.ReadMsgUnix(b[:], oob)
	switch {
	case errors.Is(err, io.EOF), err == nil && n == 0:
		return io.EOF
	case err != nil:
		return err
	}
	c.in = append(c.in, b[:n]...)
	if err := c.keep(oob[:oobn]); err != nil {
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
			unix.CloseOnExec(fd) // the net package asks for it too
		}
		c.fds = append(c.fds, fds...)
	}
	return nil
}
