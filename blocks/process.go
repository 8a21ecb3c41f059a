package blocks

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Process watches a process by something that outlives its number.
type Process interface {
	Gone() bool // all its threads have ended, so its maps are gone
	Close() error
}

// pidfd implements Process: it is readable once the whole process has ended.
type pidfd int

func openProcess(pid int) (Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd of process %d: %w", pid, err)
	}
	return pidfd(fd), nil
}

// Gone polls without waiting. A failed poll says nothing, so the process counts as alive.
func (p pidfd) Gone() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

func (p pidfd) Close() error { return unix.Close(int(p)) }
