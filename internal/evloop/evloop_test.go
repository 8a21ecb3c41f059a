package evloop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// host has connections in one loop, so that each test is about those that share it.
type host struct {
	*Loops
	t *testing.T
	l net.Listener
}

func newHost(t *testing.T) *host {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Loops: &Loops{most: 1}, t: t, l: l}
	t.Cleanup(func() {
		_ = l.Close()
		h.Close()
	})
	return h
}

// open connects. What it returns is the peer's side, which the test ends with.
func (h *host) open() (*Conn, *net.TCPConn) {
	h.t.Helper()
	peer, err := net.Dial("tcp", h.l.Addr().String())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = peer.Close() })
	nc, err := h.l.Accept()
	if err != nil {
		h.t.Fatal(err)
	}
	c, err := h.Take(nc)
	if err != nil {
		h.t.Fatal(err)
	}
	return c, peer.(*net.TCPConn)
}

// serve has f serve a connection, which is closed then, and returns the peer's side.
func (h *host) serve(f func(c *Conn) error) (peer *net.TCPConn, ended <-chan error) {
	c, peer := h.open()
	return peer, start(c, f)
}

func start(c *Conn, f func(c *Conn) error) <-chan error {
	ended := make(chan error, 1)
	ok := c.Go(func() {
		err := f(c)
		_ = c.Close()
		ended <- err
	})
	if !ok {
		ended <- net.ErrClosed
	}
	return ended
}

func echo(c *Conn) error {
	_, err := io.Copy(struct{ io.Writer }{c}, c)
	return err
}

func say(c net.Conn, b []byte) error {
	if _, err := c.Write(b); err != nil {
		return err
	}
	got := make([]byte, len(b))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, b) {
		return fmt.Errorf("%q came back, not %q", got, b)
	}
	return nil
}

// Far more than buffers hold goes through in both directions, to several at once, and
// nothing of it is lost or out of its place.
func TestConnectionsOfALoopCarryTheirBytes(t *testing.T) {
	h := newHost(t)
	want := make([]byte, 24<<20)
	for i := range want {
		want[i] = byte(i ^ i>>8 ^ i>>16)
	}
	var all sync.WaitGroup
	for range 4 {
		peer, ended := h.serve(echo)
		all.Go(func() {
			go func() {
				_, err := peer.Write(want)
				if err = errors.Join(err, peer.CloseWrite()); err != nil {
					t.Error(err)
				}
			}()
			if got, err := io.ReadAll(peer); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d, or others: %v", len(got), len(want), err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Several buffers are filled and sent by one call, in their order.
func TestBuffersAreFilledAndSentInTheirOrder(t *testing.T) {
	h := newHost(t)
	peer, ended := h.serve(func(c *Conn) error {
		a, b := make([]byte, 3), make([]byte, 8)
		n := 0
		for n < 5 {
			bufs := [][]byte{a[min(n, 3):], b[max(n-3, 0):]}
			m, err := c.Readv(bufs, nil)
			if err != nil {
				return err
			}
			n += m
		}
		_, err := c.Writev([][]byte{b[:n-3], nil, a})
		return err
	})
	if _, err := peer.Write([]byte("abcde")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(peer); err != nil || string(got) != "deabc" {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The end of a peer that has sent something before is seen, whether it is told with that
// or after it.
func TestAPeersEndIsSeenBehindItsLastBytes(t *testing.T) {
	h := newHost(t)
	for i := range 200 {
		c, peer := h.open()
		if i%2 == 0 { // it is all there before the loop looks
			if _, err := peer.Write([]byte("last")); err != nil {
				t.Fatal(err)
			}
			_ = peer.CloseWrite()
		}
		ended := start(c, func(c *Conn) error {
			got, err := io.ReadAll(c)
			if string(got) != "last" {
				err = errors.Join(err, fmt.Errorf("%q", got))
			}
			return err
		})
		if i%2 == 1 {
			if _, err := peer.Write([]byte("last")); err != nil {
				t.Fatal(err)
			}
			_ = peer.CloseWrite()
		}
		if err := <-ended; err != nil {
			t.Fatal(i, err)
		}
	}
}

func TestAPeerThatIsSilentOrTakesNothingMeetsTheDeadline(t *testing.T) {
	h := newHost(t)
	for name, f := range map[string]func(c *Conn) error{
		"silent": func(c *Conn) error {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			return err
		},
		"takes nothing": func(c *Conn) error {
			_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Write(make([]byte, 64<<20))
			return err
		},
		"both, and the time is over already": func(c *Conn) error {
			_ = c.SetDeadline(time.Now())
			_, err := c.Read(make([]byte, 1))
			return err
		},
	} {
		_, ended := h.serve(f)
		var late net.Error
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &late) || !late.Timeout() {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A deadline that was taken away is none.
	peer, ended := h.serve(func(c *Conn) error {
		_ = c.SetDeadline(time.Now())
		_ = c.SetDeadline(time.Time{})
		return echo(c)
	})
	if err := say(peer, []byte("still here")); err != nil {
		t.Error(err)
	}
	_ = peer.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Close reaches a connection wherever its function waits, and before it has begun.
func TestCloseEndsAConnectionThatWaits(t *testing.T) {
	h := newHost(t)
	for name, f := range map[string]func(c *Conn) error{
		"reads":  func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"writes": func(c *Conn) error { _, err := c.Write(make([]byte, 64<<20)); return err },
		"is outside": func(c *Conn) error {
			c.Outside(func() { <-outside })
			_, err := c.Read(make([]byte, 1))
			return err
		},
	} {
		c, _ := h.open()
		began := make(chan struct{})
		ended := start(c, func(c *Conn) error { close(began); return f(c) })
		<-began
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "is outside" {
			outside <- struct{}{}
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: closed twice: %v", name, err)
		}
	}
	c, _ := h.open()
	_ = c.Close()
	ran := false
	if c.Go(func() { t.Error("a closed connection was served") }) {
		t.Error("a closed connection was taken")
	}
	c.Outside(func() { ran = true })
	_, err := c.Read(make([]byte, 1))
	_, werr := c.Write(make([]byte, 1))
	if !ran || !errors.Is(err, net.ErrClosed) || !errors.Is(werr, net.ErrClosed) {
		t.Errorf("closed before: outside %v, read %v, write %v", ran, err, werr)
	}
	if raw, err := c.SyscallConn(); err != nil || raw.Control(func(uintptr) { t.Error("a closed descriptor was lent") }) == nil {
		t.Error("a closed connection has a descriptor")
	}
}

var outside = make(chan struct{})

// One that floods and one that waits for something else hold up nobody in their loop.
func TestGreedyConnectionsLeaveTheirLoopToOthers(t *testing.T) {
	h := newHost(t)
	flood, flooded := h.serve(func(c *Conn) error {
		b := make([]byte, 16)
		for {
			if _, err := c.Read(b); err != nil {
				return err
			}
		}
	})
	go func() {
		for b := make([]byte, 1<<20); ; {
			if _, err := flood.Write(b); err != nil {
				return
			}
		}
	}()
	held := make(chan struct{})
	_, away := h.serve(func(c *Conn) error {
		c.Outside(func() { <-held })
		return nil
	})
	peer, ended := h.serve(echo)
	for range 100 {
		if err := say(peer, []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	_ = peer.Close()
	close(held)
	_ = flood.Close()
	for _, c := range []<-chan error{ended, away} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	<-flooded // however it ended
}

// idle is called before a read waits, and what arrives while idle itself waits is seen.
func TestWhatArrivesWhileIdleWorksIsSeen(t *testing.T) {
	h := newHost(t)
	const big = 16 << 20
	peer, ended := h.serve(func(c *Conn) error {
		b, sent := make([]byte, 8), false
		bufs := [][]byte{b}
		for n := 0; n < 2; {
			m, err := c.Readv(bufs, func() error {
				if sent {
					return nil
				}
				sent = true
				_, err := c.Write(make([]byte, big)) // it waits until the peer takes some
				return err
			})
			if n += m; err != nil {
				return err
			}
		}
		return nil
	})
	if _, err := peer.Write([]byte("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(peer, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Write([]byte("2")); err != nil { // while the rest is written
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, peer); err != nil || n != big-1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAnErrorOfIdleEndsTheRead(t *testing.T) {
	h := newHost(t)
	_, ended := h.serve(func(c *Conn) error {
		_, err := c.Readv([][]byte{make([]byte, 1)}, func() error { return io.ErrClosedPipe })
		return err
	})
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestOnlySocketsAreTaken(t *testing.T) {
	h := newHost(t)
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	if _, err := h.Take(a); !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	go func() { _, _ = b.Write([]byte{1}) }()
	if _, err := a.Read(make([]byte, 1)); err != nil { // it is as it was
		t.Error(err)
	}
	h.Close()
	peer, err := net.Dial("tcp", h.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	if _, err := h.Take(peer); !errors.Is(err, net.ErrClosed) {
		t.Error("closed loops took a connection:", err)
	}
}

// A burst of connections, of which some are closed here and some by their peers, leaves
// no descriptor, and the loops count none.
func TestABurstLeavesNothingBehind(t *testing.T) {
	h := newHost(t)
	first, ended := h.serve(echo) // the loop's own descriptors are there
	before := openFiles(t)
	for range 3 {
		var peers []net.Conn
		var ends []<-chan error
		for i := range 300 {
			c, peer := h.open()
			ends, peers = append(ends, start(c, echo)), append(peers, peer)
			if i%3 == 0 {
				_ = c.Close()
			}
		}
		for i, p := range peers {
			if i%3 != 0 {
				if err := say(p, []byte{byte(i)}); err != nil {
					t.Fatal(i, err)
				}
			}
			_ = p.Close()
		}
		for _, e := range ends {
			<-e
		}
	}
	if err := say(first, []byte("last")); err != nil { // the loop has ended the others by then
		t.Error(err)
	}
	if n := h.loops[0].conns.Load(); n != 1 {
		t.Errorf("the loop counts %d connections, has 1", n)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	_ = first.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Connections are spread over the loops that there are.
func TestConnectionsAreSpread(t *testing.T) {
	h := newHost(t)
	h.most = 3
	for range 9 {
		c, _ := h.open()
		defer func() { _ = c.Close() }()
	}
	for i, l := range h.loops {
		if n := l.conns.Load(); n != 3 {
			t.Errorf("loop %d has %d connections", i, n)
		}
	}
}
