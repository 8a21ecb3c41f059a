package engine

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

// maxPath is what sockaddr_un of Linux holds, without the closing zero.
const maxPath = 107

// backlog is how many engines may wait to be accepted.
const backlog = 64

// InUseError says that another daemon serves the socket, or that something else
// than a socket has its name. It matches wire.CodeConfig.
type InUseError struct{ Path, Text string }

// Error names path and reason.
func (e *InUseError) Error() string { return fmt.Sprintf("engine: %s: %s", e.Path, e.Text) }

// Unwrap makes the error match wire.CodeConfig.
func (e *InUseError) Unwrap() error { return wire.CodeConfig }

// listener owns a socket file and the lock file beside it. The lock, not the
// socket, says who the path belongs to: connect alone cannot tell a daemon that
// starts from one that died.
type listener struct {
	conn
	path     string
	dev, ino uint64 // of the socket file: another's is never removed
	lock     *os.File
}

// socketMode is that of a socket: for the daemon's own user, unless others are
// on the allow list. Then everybody may knock, and SO_PEERCRED decides.
func socketMode(uids []uint32) os.FileMode {
	for _, uid := range uids {
		if uid != uint32(os.Geteuid()) {
			return 0o666
		}
	}
	return 0o600
}

func listen(path string, mode os.FileMode) (*listener, error) {
	lock, err := lockPath(path)
	if err != nil {
		return nil, err
	}
	if err := clearStale(path); err != nil {
		_ = lock.Close() // the lock goes with it
		return nil, err
	}
	fd, err := bind(path, mode)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	l := &listener{conn: conn{fd: fd}, path: path, lock: lock}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		_ = lock.Close()
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	l.dev, l.ino = st.Dev, st.Ino
	return l, nil
}

// lockPath takes the lock beside path. A lock file that was removed between open
// and flock is not the one that others will find, so it is made again.
func lockPath(path string) (*os.File, error) {
	name := path + ".lock"
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, &InUseError{path, "another daemon that is alive serves this socket"}
			}
			return nil, &os.PathError{Op: "flock", Path: name, Err: err}
		}
		mine, err := f.Stat()
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		if now, err := os.Lstat(name); err == nil && os.SameFile(mine, now) {
			return f, nil
		}
		_ = f.Close()
	}
}

// clearStale removes the socket file of a daemon that is dead.
func clearStale(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode()&os.ModeSocket == 0:
		return &InUseError{path, fmt.Sprintf("exists and is no socket (%s)", st.Mode().Type())}
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	// EAGAIN is a full backlog: somebody listens.
	if err == nil || errors.Is(err, unix.EAGAIN) {
		return &InUseError{path, "something that is alive listens on this socket"}
	}
	if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "connect", Path: path, Err: err}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// bind makes the socket. Its mode is set before bind, so that there is no moment
// with a wider one.
func bind(path string, mode os.FileMode) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	fail := func(op string, err error) (int, error) {
		_ = unix.Close(fd)
		return -1, &os.PathError{Op: op, Path: path, Err: err}
	}
	if err := unix.Fchmod(fd, uint32(mode)); err != nil {
		return fail("fchmod", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fail("bind", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return fail("chmod", err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return fail("listen", err)
	}
	return fd, nil
}

// accept returns a connection and its peer's credentials.
func (l *listener) accept() (*conn, *unix.Ucred, error) {
	for {
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC)
		if err == unix.EINTR || err == unix.ECONNABORTED {
			continue
		}
		if err != nil {
			return nil, nil, os.NewSyscallError("accept", err)
		}
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			_ = unix.Close(fd)
			return nil, nil, os.NewSyscallError("getsockopt", err)
		}
		return &conn{fd: fd}, cred, nil
	}
}

// remove takes the socket file away, if it is still ours, and then the lock.
func (l *listener) remove() {
	var st unix.Stat_t
	if unix.Lstat(l.path, &st) == nil && st.Dev == l.dev && st.Ino == l.ino {
		_ = os.Remove(l.path)
	}
	_ = os.Remove(l.lock.Name())
	_ = l.lock.Close()
}
