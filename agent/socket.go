package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"meridian/internal/socketfile"
	"meridian/wire"
)

// adminBacklog is how many clients of the admin API may wait to be accepted.
const adminBacklog = 16

// listenPrivate listens on a Unix socket that only this user can open. A
// socket in use matches wire.CodeConfig.
func listenPrivate(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := socketfile.Listen(path, 0o600, adminBacklog)
	if err != nil {
		var inUse *socketfile.InUseError
		if errors.As(err, &inUse) {
			err = fmt.Errorf("%w: %w", err, wire.CodeConfig)
		}
		return nil, err
	}
	if err := unix.SetNonblock(f.FD, true); err != nil {
		return nil, errors.Join(err, unix.Close(f.FD), f.Remove())
	}
	fd := os.NewFile(uintptr(f.FD), path)
	ln, err := net.FileListener(fd) // of a duplicate
	err = errors.Join(err, fd.Close())
	if err != nil {
		return nil, errors.Join(err, f.Remove())
	}
	return &privateListener{Listener: ln, file: f}, nil
}

// privateListener takes its file with it when it is closed.
type privateListener struct {
	net.Listener
	file *socketfile.File
	once sync.Once
}

// Close may be called again.
func (l *privateListener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() { err = errors.Join(l.Listener.Close(), l.file.Remove()) })
	return err
}
