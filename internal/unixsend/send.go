package unixsend

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrTimeout is returned where the other side did not take all bytes in time. It
// matches os.ErrDeadlineExceeded.
var ErrTimeout error = timeout{}

type timeout struct{}

func (timeout) Error() string { return "the other side did not take all bytes in time" }

func (timeout) Is(err error) bool { return err == os.ErrDeadlineExceeded }

// Send writes b, with the descriptors of fds attached to its first byte, and
// returns when all of it is in the socket, or ErrTimeout after limit. The descriptor
// may be a blocking one.
func Send(fd int, b []byte, fds []int, limit time.Duration) error {
	return all(kernel{}, fd, b, fds, limit)
}

// Offer writes what the socket takes of b at once, which may be nothing, and says how
// much that was. It never waits.
func Offer(fd int, b []byte) (int, error) { return offer(kernel{}, fd, b) }

func offer(sys system, fd int, b []byte) (int, error) {
	for at := 0; ; {
		n, err := sys.send(fd, b[at:], nil)
		switch {
		case err == nil:
			if at += n; at == len(b) {
				return at, nil
			}
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return at, nil
		default:
			return at, os.NewSyscallError("sendmsg", err)
		}
	}
}

// system is what Send needs of the kernel.
type system interface {
	now() time.Time
	// send never waits: EAGAIN where there is no room.
	send(fd int, b, oob []byte) (int, error)
	// wait returns when there may be room, or after d.
	wait(fd int, d time.Duration) error
}

func all(sys system, fd int, b []byte, fds []int, limit time.Duration) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	var until time.Time // set at the first wait: most sends need no clock
	for len(b) > 0 {
		n, err := sys.send(fd, b, oob)
		switch {
		case err == nil:
			b, oob = b[n:], nil
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EAGAIN):
			return os.NewSyscallError("sendmsg", err)
		}
		now := sys.now()
		if until.IsZero() {
			until = now.Add(limit)
		}
		left := until.Sub(now)
		if left <= 0 {
			return ErrTimeout
		}
		if err := sys.wait(fd, left); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("ppoll", err)
		}
	}
	return nil
}

type kernel struct{}

func (kernel) now() time.Time { return time.Now() }

func (kernel) send(fd int, b, oob []byte) (int, error) {
	happened()
	return unix.SendmsgN(fd, b, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

func (kernel) wait(fd int, d time.Duration) error {
	limit := unix.NsecToTimespec(int64(d))
	_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, &limit, nil)
	return err
}
