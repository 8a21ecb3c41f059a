package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"meridian/blocks/quota"
	"meridian/wire"
	proto "meridian/wire/link"
)

// Where a source has all its places, its own oldest silent connection makes room and
// nobody else's; where all places are taken, one of the source that has most.
func TestWhoIsAboveAShareTakesAPlaceOfThatShare(t *testing.T) {
	book := &quota.Book{}
	book.SetLimit(quota.HalfOpen, quota.Source, 2)
	book.SetLimit(quota.HalfOpen, quota.All, 3)
	b := start(t, 2, 20, "", func(c *Config) { c.Quota = book })
	come := func(source string) *arrival {
		t.Helper()
		c, there := net.Pipe()
		t.Cleanup(func() { _, _ = c.Close(), there.Close() })
		a := &arrival{Conn: there, origin: origin{source: source}}
		if err := b.enter(a); err != nil {
			t.Fatalf("a connection of %s: %v", source, err)
		}
		return a
	}
	x, y1, y2 := come("x"), come("y"), come("y")
	y3 := come("y")
	if x.evicted.Load() != nil || y1.evicted.Load() == nil || y2.evicted.Load() != nil {
		t.Error("y has all that a source may have, and it is not its oldest that has gone")
	}
	z := come("z")
	if x.evicted.Load() != nil || y2.evicted.Load() == nil || y3.evicted.Load() != nil {
		t.Error("all places are taken, and it is not the oldest of the source with most that has gone")
	}
	for _, a := range []*arrival{x, y1, y2, y3, z} {
		a.leave()
	}
	if n := book.Used(quota.HalfOpen, quota.Total); n != 0 {
		t.Errorf("%d places are taken by nobody", n)
	}
}

// flaky fails once, as accept does without descriptors.
type flaky struct {
	net.Listener
	failed atomic.Bool
}

func (l *flaky) Accept() (net.Conn, error) {
	if l.failed.CompareAndSwap(false, true) {
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

func TestAListenerOutlivesAnErrorOfAccept(t *testing.T) {
	noLeaks(t)
	b := start(t, 2, 20, "", nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	b.addr = "tcp://" + l.Addr().String()
	b.running.Add(1)
	go b.accept(&flaky{Listener: l}, viaTCP)
	if _, err := knock(t, b, greeting("a", proto.AuthNone)); err != nil {
		t.Errorf("who comes after the error: %v", err)
	}
}

// Who is at the other end of a Unix socket is what the kernel says.
func TestAUnixConnectionIsKnownByItsProcessAndUser(t *testing.T) {
	b := start(t, 2, 20, "", nil)
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	here, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = there.Close() }()
	o, err := b.originOf(there, viaUnix)
	want := origin{addr: fmt.Sprintf("process %d of user %d", os.Getpid(), os.Getuid()), source: fmt.Sprintf("user %d", os.Getuid()), local: true}
	if err != nil || o != want {
		t.Errorf("%+v, %v; want %+v", o, err, want)
	}
	pipe, other := net.Pipe()
	defer func() { _, _ = pipe.Close(), other.Close() }()
	if _, err := b.originOf(pipe, viaUnix); !errors.Is(err, wire.CodeAuth) {
		t.Errorf("a connection without credentials: %v, want AUTH", err)
	}
}

// full is a side that has no place for anybody.
func full(t *testing.T, listen string, ca *authority) *side {
	t.Helper()
	return start(t, 2, 20, listen, func(c *Config) {
		c.TLS, c.Peers = ca.issue("b", "t"), listed("a")
		c.Quota = &quota.Book{}
		c.Quota.SetLimit(quota.HalfOpen, quota.Source, 0)
	})
}

func TestADiallerByTLSReadsThatThereIsNoPlace(t *testing.T) {
	noLeaks(t)
	ca := newAuthority(t)
	b := full(t, "tls://127.0.0.1:0", ca)
	a := start(t, 1, 10, "", func(c *Config) { c.TLS, c.Peers = ca.issue("a", "t"), []PeerConfig{{Name: "b", Addr: b.addr}} })
	refusedAs(t, a.Peer("b"), wire.CodeTooMany, "")
}

// Where as many read why as may, the next one is told by what needs no waiting: a frame
// over TCP, and nothing over TLS, whose handshake would have to come first.
func TestWhoIsNotWaitedForIsToldInPlain(t *testing.T) {
	b := full(t, "", newAuthority(t))
	for range maxTurningAway {
		b.turningAway <- struct{}{}
	}
	for via, told := range map[string]bool{viaTCP: true, viaTLS: false} {
		c, there := net.Pipe()
		go b.take(there, via)
		if said, err := io.ReadAll(c); err != nil || len(said) > 0 != told {
			t.Errorf("by %s: told %q, %v; want told: %v", via, said, err, told)
		}
		_ = c.Close()
	}
}
