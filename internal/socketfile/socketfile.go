package socketfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// MaxPath is what sockaddr_un of Linux holds, without the closing zero.
const MaxPath = 107

// InUseError says that another daemon serves a socket, or that something else
// than a socket has its name.
type InUseError struct{ Path, Text string }

// Error names path and reason.
func (e *InUseError) Error() string { return e.Path + ": " + e.Text }

// File is a listening socket with its file and the lock beside it.
type File struct {
	FD   int // blocking; the caller closes it
	path string
	info fs.FileInfo
	lock *os.File
}

// Listen takes path and listens on it. The mode is in force from the file's
// first moment on.
func Listen(path string, mode fs.FileMode, backlog int) (*File, error) {
	lock, err := lockBeside(path)
	if err != nil {
		return nil, err
	}
	f, err := bind(path, mode, backlog)
	if err != nil {
		_ = os.Remove(lock.Name())
		_ = lock.Close()
		return nil, err
	}
	f.lock = lock
	return f, nil
}

// Remove takes the socket file away, if it is still ours, and then the lock.
func (f *File) Remove() error {
	var err error
	if now, e := os.Lstat(f.path); e == nil && os.SameFile(now, f.info) {
		err = os.Remove(f.path)
	}
	return errors.Join(err, os.Remove(f.lock.Name()), f.lock.Close())
}

// lockBeside takes the lock of path. A lock file that its owner removed between
// open and flock is not the one that others will find: once more.
func lockBeside(path string) (*os.File, error) {
	name := path + ".lock"
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
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

func bind(path string, mode fs.FileMode, backlog int) (*File, error) {
	if err := removeDead(path); err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	fail := func(op string, err error) (*File, error) {
		_ = syscall.Close(fd)
		return nil, &os.PathError{Op: op, Path: path, Err: err}
	}
	// The mode of an unbound socket is that of the file which bind makes, less
	// the umask.
	if err := syscall.Fchmod(fd, uint32(mode)); err != nil {
		return fail("fchmod", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		return fail("bind", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return fail("chmod", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fail("stat", err)
	}
	if err := syscall.Listen(fd, backlog); err != nil {
		return fail("listen", err)
	}
	return &File{FD: fd, path: path, info: info}, nil
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
		return &InUseError{path, fmt.Sprintf("exists and is no socket (%s)", st.Mode().Type())}
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = syscall.Close(fd) }()
	err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	// EAGAIN is a full backlog: somebody listens.
	if err == nil || errors.Is(err, syscall.EAGAIN) {
		return &InUseError{path, "something that is alive listens on this socket"}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
		return &os.PathError{Op: "connect", Path: path, Err: err}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
