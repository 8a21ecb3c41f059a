package socketfile

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
)

// ListenNet is Listen for a caller that accepts through package net. Closing the listener
// takes the file with it.
func ListenNet(path string, mode fs.FileMode, backlog int) (net.Listener, error) {
	f, err := Listen(path, mode, backlog)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(f.FD, true); err != nil {
		return nil, errors.Join(err, syscall.Close(f.FD), f.Remove())
	}
	fd := os.NewFile(uintptr(f.FD), path)
	ln, err := net.FileListener(fd) // of a duplicate
	if err = errors.Join(err, fd.Close()); err != nil {
		return nil, errors.Join(err, f.Remove())
	}
	return &listener{Listener: ln, file: f}, nil
}

// listener takes its file with it when it is closed.
type listener struct {
	net.Listener
	file *File
	once sync.Once
}

// Close may be called again.
func (l *listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() { err = errors.Join(l.Listener.Close(), l.file.Remove()) })
	return err
}
