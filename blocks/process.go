package blocks

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

// Process watches a process by something that outlives its number.
type Process interface {
	Gone() bool // all its threads have ended, so its maps are gone
	Close() error
}

// pidfd implements Process: it is readable once the whole process has ended.
type pidfd int

// PeerProcess is the process that connected a Unix socket, whose number here is pid; 0:
// it has none. From Linux 6.5 on the kernel knows it whoever has the number by now, so
// only before is it who has the number when PeerProcess is called. An error says that
// the process has ended, or cannot be watched.
func PeerProcess(socket, pid int) (Process, error) {
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) && pid > 0 {
		return openProcess(pid)
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd of a peer: %w", err)
	}
	return ProcessOf(fd)
}

func openProcess(pid int) (Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd of process %d: %w", pid, err)
	}
	return pidfd(fd), nil
}

// ProcessOf takes a descriptor that came from elsewhere: a pidfd of a process that
// has not ended, which may be in another PID namespace. Anything else is an error
// that matches INVALID, and is closed.
func ProcessOf(fd int) (Process, error) {
	p := pidfd(fd)
	var why string
	// The kernel says EBADF to what is no pidfd, before it looks whose child it is.
	err := unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	switch {
	case err != nil && !errors.Is(err, unix.ECHILD):
		why = "the descriptor is not a pidfd"
	case p.Gone():
		why = "the process of the pidfd has ended"
	default:
		return p, nil
	}
	_ = unix.Close(fd) // nothing was done with it
	return nil, fmt.Errorf("%s: %w", why, wire.CodeInvalid)
}

// Gone polls without waiting. A failed poll says nothing, so the process counts as alive.
func (p pidfd) Gone() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

func (p pidfd) Close() error { return unix.Close(int(p)) }

// Number is one that no other process has while the machine runs: the inode, from
// Linux 6.9 on. Before, all pidfds have one inode together.
func (p pidfd) Number() (uint64, bool) { return PidfdNumber(int(p)) }

// PidfdNumber is the number of the process that a pidfd is of, and whether this kernel
// has one.
func PidfdNumber(fd int) (uint64, bool) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.PID_FS_MAGIC || unix.Fstat(fd, &st) != nil {
		return 0, false
	}
	return st.Ino, true
}
