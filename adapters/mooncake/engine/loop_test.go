package engine

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"meridian/blocks/quota"
	"meridian/internal/evloop"
	"meridian/wire"
)

// sockets is a target behind a port, whose connections are served by loops.
func sockets(t *testing.T, cfg TargetConfig) (f *far, dial func() net.Conn) {
	t.Helper()
	f = newFar(cfg, 8<<20)
	t.Cleanup(func() {
		f.target.Close()
		if f.in != 0 {
			t.Errorf("%d accesses were never left", f.in)
		}
	})
	at, err := f.target.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return f, func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// Connections that read nothing of a body of several MiB, and as many that wait for a
// place, hold up nobody who writes; what waits comes in as places come free.
func TestALoopServesOthersWhileReadsWaitForTheirPlaces(t *testing.T) {
	const many, size = 8, 8 << 20
	f, dial := sockets(t, TargetConfig{Doors: limited(quota.DataReads, 2, 2)})
	var conns []net.Conn
	for range many {
		c := dial()
		send(t, c, head(0x80, base, size))
		conns = append(conns, c)
	}
	writer := dial()
	for range 50 {
		send(t, writer, head(0x81, base, 4), []byte("four"))
		receive(t, writer, statusLen)
	}
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(func() {
			if n, err := io.CopyN(io.Discard, c, statusLen+size); err != nil {
				t.Errorf("%d bytes: %v", n, err)
			}
		})
	}
	all.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.refused) != 0 {
		t.Error(f.refused)
	}
}

// A target that closes waits for nobody: not for who reads nothing, sends half a body, is
// idle, or waits for a place.
func TestATargetClosesWhateverItsConnectionsWaitFor(t *testing.T) {
	f, dial := sockets(t, TargetConfig{Doors: limited(quota.DataReads, 2, 2)})
	for range 6 {
		send(t, dial(), head(0x80, base, 8<<20))
	}
	for i := range uint64(3) { // each to bytes of its own
		send(t, dial(), head(0x81, base+i<<12, 4096), make([]byte, 100))
		send(t, dial(), head(0x81, base, 4096)[:10])
		dial()
	}
	settled(t, func() bool { return f.target.Conns() == 15 && f.target.Active() == 9 })
	f.target.Close()
	if n := f.target.sends.Used(); n != 0 || f.target.Conns() != 0 {
		t.Errorf("%d places, %d connections are left", n, f.target.Conns())
	}
}

// A refusal reaches a peer that still sends, by a socket too.
func TestARefusalReachesAPeerOfALoopThatStillSends(t *testing.T) {
	_, dial := sockets(t, TargetConfig{})
	c := dial()
	go func() { // far more than buffers hold
		_, _ = c.Write(head(0x81, base-1, 64<<20))
		_, _ = c.Write(make([]byte, 64<<20))
	}()
	if got := receive(t, c, statusLen); got[0] != byte(statusRejected) {
		t.Errorf("% x", got)
	}
}

// Where no descriptor is left for a loop, or a connection is no socket, a goroutine serves
// it.
func TestAConnectionThatNoLoopTakesIsServed(t *testing.T) {
	f, dial := sockets(t, TargetConfig{})
	f.target.loops.Close() // takes nothing any more
	c := dial()
	send(t, c, head(0x80, base+7, 1))
	if got := receive(t, c, statusLen+1); got[statusLen] != 7 {
		t.Errorf("% x", got)
	}
	if _, ok := f.target.wrap(c).(*evloop.Conn); ok {
		t.Error("closed loops took a connection")
	}
}

// A body that stops is let go at its deadline, and the error says how much came.
func TestABodyOfALoopHasItsDeadline(t *testing.T) {
	var loops evloop.Loops
	defer loops.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, err := loops.Take(nc)
	if err != nil {
		t.Fatal(err)
	}
	send(t, peer, make([]byte, 100))
	ended := make(chan error)
	c.Go(func() {
		b := make([]byte, 100+1)
		done, _, err := readBody(newScatter(c), b, 0, nil, 10*time.Millisecond)
		for done < 100 && errors.Is(err, wire.CodeNoProgress) { // the host was slower than that
			var more uint64
			more, _, err = readBody(newScatter(c), b, done, nil, 10*time.Millisecond)
			done = more
		}
		if done != 100 {
			err = errors.Join(err, io.ErrUnexpectedEOF)
		}
		_ = c.Close()
		ended <- err
	})
	if err := <-ended; !errors.Is(err, wire.CodeNoProgress) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
