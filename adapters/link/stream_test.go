package link

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/adapters/link/internal/core"
	"meridian/wire"
	proto "meridian/wire/link"
)

// streams are the reading end of a connection, with room for so many bytes, and the
// writing end of the other side.
func streams(t *testing.T, room int) (in, out *stream) {
	t.Helper()
	here, there := tcpPair(t, 0)
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	buf := make([]byte, room)
	in = newStream(here, unix.SYS_READV, func(iov [][]byte) [][]byte { return append(iov, buf[:room/2], buf[room/2:]) }, func(int) {})
	out = newStream(there, unix.SYS_WRITEV, func(iov [][]byte) [][]byte { return append(iov, []byte("ab"), []byte("cd")) }, func(int) {})
	return in, out
}

// A socket is drained where a read brought less than there was room for. Of what goes
// through a buffer nothing is known.
func TestASocketIsDrainedByAReadThatIsNotFull(t *testing.T) {
	for room, want := range map[int]bool{2: false, 4: false, 5: true, 100: true} {
		in, out := streams(t, room)
		if err := errors.Join(out.write(), in.read()); err != nil {
			t.Fatal(err)
		}
		if in.n != min(room, 4) || in.drained() != want {
			t.Errorf("with room for %d bytes it brought %d, and the socket is drained: %v", room, in.n, in.drained())
		}
	}
	pipe, other := net.Pipe()
	defer func() { _, _ = pipe.Close(), other.Close() }()
	if newStream(pipe, unix.SYS_READV, nil, nil).drained() {
		t.Error("a pipe is drained")
	}
}

// A read and a write say how a connection ended, at whichever side.
func TestAStreamSaysHowItsConnectionEnded(t *testing.T) {
	in, out := streams(t, 100)
	_ = out.conn.Close()
	if err := in.read(); err != io.EOF {
		t.Errorf("a read of what the other side closed: %v, want EOF", err)
	}
	for name, move := range map[string]func() error{"read": out.read, "write": out.write} {
		if err := move(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a %s of what this side closed: %v", name, err)
		}
	}
	in, out = streams(t, 100)
	_ = in.conn.(*net.TCPConn).SetLinger(0)
	_ = in.conn.Close() // with RST
	until(t, func() bool { err := out.write(); return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) })
}

// directWrites counts the direct writes to a lane.
type directWrites struct {
	syscall.RawConn
	n int
}

func (d *directWrites) Control(f func(fd uintptr)) error {
	d.n++
	return d.RawConn.Control(f)
}

// still adds a lane without goroutines.
func still(t *testing.T, s *session, idx uint8) (l *lane, writes *directWrites) {
	t.Helper()
	c, there := tcpPair(t, 0)
	t.Cleanup(func() { _, _ = c.Close(), there.Close() })
	s.mu.Lock()
	defer s.mu.Unlock()
	cl, err := s.core.AddLane(s.now(), idx, proto.Splitter{Begun: true})
	if err != nil {
		t.Fatal(err)
	}
	l = s.newLane(cl, c, c)
	writes = &directWrites{RawConn: l.out.raw}
	l.out.raw = writes
	return l, writes
}

// hear gives a lane what came in, without its reader.
func (l *lane) hear(b []byte) {
	s := l.ses
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 {
		n := 0
		for _, p := range l.core.RxWant(nil) {
			n += copy(p, b[n:])
		}
		l.core.RxGot(s.now(), n)
		b = b[n:]
	}
}

// Who has the right to write writes as many frames as it may, and leaves the rest to the
// writer.
func TestADirectWriterWritesAsManyFramesAsItMay(t *testing.T) {
	const frames = 5
	small := core.DefaultLimits
	small.Frame = proto.MinFrame
	body := randomBody(frames * (proto.MinFrame - proto.DataPrefixLen))
	for may, want := range map[int]struct {
		writes int
		then   writing
	}{
		1:            {1, writingWriter},
		2:            {2, writingWriter},
		frames - 1:   {frames - 1, writingWriter},
		frames:       {frames, writingNone},
		100 * frames: {frames, writingNone},
	} {
		s := limited(start(t, 1, 10, "", nil), true, small)
		l, writes := still(t, s, 1)
		c := pushCall(1, wire.Namespace{}, 0, body)
		c.Timeout, c.Done = proto.MaxDeadline, make(chan struct{})
		s.mu.Lock()
		s.core.Start(s.now(), c)
		s.unlock()
		l.hear(frame(proto.TypeGrant, 1, proto.Grant{Status: make([]wire.Code, 1)}))
		writes.n = 0
		s.mu.Lock()
		took := l.take()
		s.mu.Unlock()
		if !took {
			t.Fatal("there is nothing to write")
		}
		s.flush([]*lane{l}, may)
		if writes.n != want.writes || l.writing != want.then {
			t.Errorf("of %d frames that it may write it wrote %d, and the right is at %d; want %d and %d", may, writes.n, l.writing, want.writes, want.then)
		}
	}
}
