package engine

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"meridian/internal/socketfile"
	"meridian/wire"
)

// backlog is how many engines may wait to be accepted.
const backlog = 64

// InUseError says that another daemon serves the socket, or that something else
// than a socket has its name. It matches wire.CodeConfig.
type InUseError struct{ Path, Text string }

// Error names path and reason.
func (e *InUseError) Error() string { return fmt.Sprintf("engine: %s: %s", e.Path, e.Text) }

// Unwrap makes the error match wire.CodeConfig.
func (e *InUseError) Unwrap() error { return wire.CodeConfig }

// listener is a listening socket and its file.
type listener struct {
	conn
	file *socketfile.File
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
	f, err := socketfile.Listen(path, mode, backlog)
	var inUse *socketfile.InUseError
	if errors.As(err, &inUse) {
		return nil, &InUseError{inUse.Path, inUse.Text}
	}
	if err != nil {
		return nil, err
	}
	return &listener{conn: conn{fd: f.FD}, file: f}, nil
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
