// Package pipenet is a listener whose connections are pipes in memory, so that a test
// can have a server and its peers under a fake clock. It is for test binaries only.
package pipenet

import (
	"context"
	"net"
	"sync"
)

// Listener hands Dial's pipes to Accept.
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// New is a listener nobody has dialled.
func New() *Listener { return &Listener{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return address("192.0.2.1:1") }

// From dials as somebody at an address, HOST:PORT.
func (l *Listener) From(ctx context.Context, source string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- conn{there, address(source)}:
		return here, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Dial dials from 127.0.0.1; which address is asked for is no matter.
func (l *Listener) Dial(ctx context.Context, _ string) (net.Conn, error) {
	return l.From(ctx, "127.0.0.1:9")
}

type conn struct {
	net.Conn
	from address
}

func (c conn) RemoteAddr() net.Addr { return c.from }

type address string

func (address) Network() string  { return "pipe" }
func (a address) String() string { return string(a) }
