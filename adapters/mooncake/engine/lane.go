package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

// lane is one connection to a peer. One worker has it at a time.
type lane struct {
	net.Conn
	addr  string
	acked bool   // version 2: several requests may be under way
	rules uint64 // of the segment when it was opened
	*flight
}

func (l *lane) close() { _ = l.Close() }

// peek looks at what has arrived, and does not wait. ended: the peer has closed.
func (l *lane) peek(b []byte) (n int, ended bool) {
	sc, ok := l.Conn.(syscall.Conn)
	if !ok {
		return 0, false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return 0, true
	}
	err = rc.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = n == 0 && err == nil || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return max(n, 0), ended || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
}

// alive says that an idle lane can have a request: the peer has not ended it, and has
// said nothing that nobody asked for.
func (l *lane) alive() bool {
	var b [1]byte
	n, ended := l.peek(b[:])
	return n == 0 && !ended
}

// RejectedError is a peer that refused a request. It matches STALE: the memory is not
// registered there, or no more.
type RejectedError struct{ Request, Segment string }

func (e *RejectedError) Error() string {
	return fmt.Sprintf("mooncake: %s refused the %s: no such memory is registered there", e.Segment, e.Request)
}

// Unwrap returns CodeStale.
func (e *RejectedError) Unwrap() error { return wire.CodeStale }

// errRejected is a status that says so.
var errRejected = errors.New("refused")

// unacked is one request of version 1. The lane is of no use afterwards.
func (l *lane) unacked(h header, b []byte) error {
	var head [headerLen]byte
	h.put(&head)
	if h.write {
		return l.writeAndReadBack(head[:], h, b)
	}
	return l.read(head[:], b)
}

func (l *lane) read(head, b []byte) error {
	if err := writeBody(newScatter(l.Conn), head, nil, ProgressTime); err != nil {
		return err
	}
	_, _, err := readBody(newScatter(l.Conn), b, 0, nil, ProgressTime)
	return err
}

// writeAndReadBack confirms a write to a peer that does not acknowledge: it serves the
// requests of a connection in turn, so the answer to a read proves that the write
// before it is done.
func (l *lane) writeAndReadBack(head []byte, h header, b []byte) error {
	if err := writeBody(newScatter(l.Conn), head, b, ProgressTime); err != nil {
		return err
	}
	fence := header{addr: h.addr + h.size - 1, size: 1}
	var last [1]byte
	var fenceHead [headerLen]byte
	fence.put(&fenceHead)
	if err := l.read(fenceHead[:], last[:]); err != nil {
		return fmt.Errorf("a write without acknowledgement was not confirmed by a read behind it (Mooncake before 0.3.10 cannot be written to): %w", err)
	}
	if last[0] != b[len(b)-1] {
		return fmt.Errorf("mooncake: the last byte of a write is %#02x, want %#02x: %w", last[0], b[len(b)-1], wire.CodeChecksum)
	}
	return nil
}

// status waits for a status frame. errRejected: the peer refuses.
func (l *lane) status(within time.Duration) error {
	var b [statusLen]byte
	_ = l.SetReadDeadline(time.Now().Add(within))
	if n, err := io.ReadFull(l.Conn, b[:]); err != nil {
		return &progressError{"waiting for a status", uint64(n), statusLen, err}
	}
	return accepted(&b)
}

// accepted reads a status. errRejected: the peer refuses.
func accepted(b *[statusLen]byte) error {
	status, err := parseStatus(b)
	switch {
	case err != nil:
		return err
	case status == statusRejected:
		return errRejected
	case status != statusOK:
		return fmt.Errorf("mooncake: status %d, known are %d and %d: %w", status, statusOK, statusRejected, wire.CodeState)
	}
	return nil
}
