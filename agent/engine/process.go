package engine

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks"
	"meridian/internal/unixrecv"
	"meridian/wire"
	"meridian/wire/link"
)

// maxPassed is how many descriptors are taken with one read: one is asked for, and a
// second shows that there are too many. The kernel closes the others.
const maxPassed = 2

// passed are the descriptors that came with the bytes of one read. A frame has them
// that begins in those bytes and ends with them or later: a message with descriptors
// ends a read, and a frame with descriptors is a message of its own.
type passed struct {
	fds      []int
	more     bool   // the kernel closed some
	from, to uint64 // where the bytes lie in the stream
}

// read reads, with descriptors where the engine may send any. Without, the kernel
// closes them.
func (s *session) read(b []byte) (int, error) {
	if !s.grouped {
		return s.c.read(b)
	}
	if s.receiver == nil {
		s.receiver = unixrecv.New(maxPassed)
	}
	n, fds, err := s.receiver.Receive(s.c.fd, b, nil, 0)
	lost := errors.Is(err, unixrecv.ErrLost)
	if lost {
		err = nil
	}
	if len(fds) > 0 || lost {
		s.passed.close()
		s.passed = passed{fds: fds, more: lost, from: s.taken, to: s.taken + uint64(n)}
	}
	return n, err
}

// close closes what nobody took.
func (p *passed) close() {
	for _, fd := range p.fds {
		_ = unix.Close(fd) // nothing was done with it
	}
	*p = passed{}
}

// frameEnded closes the descriptors that came with the frame at hand, or before, and
// that it did not take.
func (s *session) frameEnded() {
	s.begun = s.taken
	if s.passed.to <= s.taken {
		s.passed.close()
	}
}

// only takes the one descriptor that came with the frame at hand, which is the
// caller's then.
func (s *session) only() (int, error) {
	p := &s.passed
	mine := p.from <= s.begun && s.begun < p.to && p.to <= s.taken
	switch {
	case !mine || len(p.fds) == 0 && !p.more:
		return -1, fmt.Errorf("no descriptor came with the frame: %w", wire.CodeInvalid)
	case len(p.fds) > 1 || p.more:
		return -1, fmt.Errorf("more than one descriptor came with the frame: %w", wire.CodeInvalid)
	}
	fd := p.fds[0]
	p.fds = nil
	return fd, nil
}

// process answers PROCESS.
func (s *session) process(f link.Frame, p []byte) error {
	var x link.Empty
	if err := s.parse(&x, p); err != nil {
		return err
	}
	start := time.Now()
	var proc blocks.Process
	fd, err := s.only()
	if err == nil {
		proc, err = blocks.ProcessOf(fd)
	}
	if err == nil && !s.watched && !s.unknown {
		_ = proc.Close() // nothing was done with it
		err = fmt.Errorf("the process that connected has ended or cannot be watched, and no other one holds blocks for it: %w", wire.CodeInvalid)
	}
	if err == nil {
		// One that is watched already stays as it is, and this one is closed.
		s.watched = s.srv.cfg.Store.SetProcess(s.owner, proc) || s.watched
	}
	e := refusal(err)
	s.answerEnd(f.Req, e)
	s.observe(f.Type, 1, start, e.Code)
	return nil
}

// visible tells whether the daemon notices when the engine's process is gone.
func (s *session) visible() bool { return s.watched }

// watchPeer gives the store the process that connected. Before Linux 6.5 that of another
// PID namespace is not known, and the engine may name it by PROCESS.
func (s *session) watchPeer() {
	if s.peer != nil {
		s.watched = s.srv.cfg.Store.SetProcess(s.owner, s.peer)
		s.peer = nil
	}
}
