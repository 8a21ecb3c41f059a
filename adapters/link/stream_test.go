package link

import (
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
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
