package control

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ear tells the run-time's poller of a socket, and not while somebody receives from it: an
// epoll of its own, which that poller knows.
type ear struct {
	file *os.File
	raw  syscall.RawConn
}

func newEar(socket int) (*ear, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else the poller would not take it
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	e := &ear{file: os.NewFile(uintptr(fd), "nixl control's ear")}
	if e.raw, err = e.file.SyscallConn(); err == nil {
		err = e.set(socket, unix.EPOLL_CTL_ADD, true)
	}
	if err != nil {
		_ = e.file.Close()
		return nil, err
	}
	return e, nil
}

func (e *ear) set(socket, op int, on bool) (err error) {
	event := unix.EpollEvent{Fd: int32(socket)}
	if on {
		event.Events = unix.EPOLLIN
	}
	if closed := e.raw.Control(func(fd uintptr) { err = unix.EpollCtl(int(fd), op, socket, &event) }); closed != nil {
		return closed
	}
	return os.NewSyscallError("epoll_ctl", err)
}

func (e *ear) await() error {
	var events [1]unix.EpollEvent
	return e.raw.Read(func(fd uintptr) bool {
		n, err := unix.EpollWait(int(fd), events[:], 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
