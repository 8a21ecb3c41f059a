package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

// socketError says that another daemon serves a socket, or that something else
// has its name. It matches wire.CodeConfig.
type socketError struct{ path, text string }

func (e *socketError) Error() string { return e.path + ": " + e.text }

func (e *socketError) Unwrap() error { return wire.CodeConfig }

// listenPrivate listens on a Unix socket that only this user can open. The
// file of a daemon that died is replaced, that of a live one is not: the lock
// beside it says which it is, since connect alone cannot tell a daemon that
// starts from one that died.
func listenPrivate(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	lock, err := lockBeside(path)
	if err != nil {
		return nil, err
	}
	ln, st, err := bindPrivate(path)
	if err != nil {
		_ = os.Remove(lock.Name())
		_ = lock.Close()
		return nil, err
	}
	return &privateListener{Listener: ln, path: path, file: st, lock: lock}, nil
}

// lockBeside takes the lock of a socket's path. A lock file that its owner
// removed between open and flock is not the one that others find: once more.
func lockBeside(path string) (*os.File, error) {
	name := path + ".lock"
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, &socketError{path, "another daemon serves this socket"}
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

// bindPrivate makes the socket with mode 0600 from its first moment on: the
// mode of an unbound socket is that of the file which bind makes.
func bindPrivate(path string) (net.Listener, fs.FileInfo, error) {
	if err := removeDead(path); err != nil {
		return nil, nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }), err)
	}}
	ln, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, nil, err
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	st, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		_ = ln.Close()
		return nil, nil, err
	}
	return ln, st, nil
}

// removeDead removes the socket file that a dead daemon left.
func removeDead(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode()&fs.ModeSocket == 0:
		return &socketError{path, fmt.Sprintf("there is a file that is no socket (%s)", st.Mode().Type())}
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
		return &socketError{path, "another daemon serves this socket"} // EAGAIN too: its backlog is full
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// privateListener removes its own file, never another's, when it is closed.
type privateListener struct {
	net.Listener
	path string
	file fs.FileInfo
	lock *os.File
	once sync.Once
}

// Close may be called again.
func (l *privateListener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		err = l.Listener.Close()
		if st, e := os.Lstat(l.path); e == nil && os.SameFile(st, l.file) {
			err = errors.Join(err, os.Remove(l.path))
		}
		err = errors.Join(err, os.Remove(l.lock.Name()), l.lock.Close())
	})
	return err
}
