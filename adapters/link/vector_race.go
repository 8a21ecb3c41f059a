//go:build race

package link

import (
	"errors"

	"golang.org/x/sys/unix"
)

// vector is one readv or writev of iov, by the functions that tell the race
// detector which memory they touch.
func (s *stream) vector(fd uintptr) {
	move := unix.Readv
	if s.call == unix.SYS_WRITEV {
		move = unix.Writev
	}
	for {
		s.n, s.err = move(int(fd), s.iov[:min(len(s.iov), maxIov)])
		if !errors.Is(s.err, unix.EINTR) {
			s.n = max(s.n, 0)
			return
		}
	}
}
