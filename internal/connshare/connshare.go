package connshare

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Bounds of refusals.
const (
	maxRefusals = 16          // that are being told; more connections are closed untold
	refusalTime = time.Second // for one, its request included; one that asks nothing is closed untold
	refusalRead = 64 << 10    // bytes of its request that are read away, so that the answer is not lost by a reset
)

// Take gives one connection from an address its place until give, or says why not.
type Take func(from net.Addr) (give func(), err error)

// Listener accepts the connections of another one that Take lets in.
type Listener struct {
	net.Listener
	take     Take
	refusals chan struct{}
	wg       sync.WaitGroup

	mu      sync.Mutex
	told    map[net.Conn]bool // refused ones that are being told
	closing bool
}

// Listen is ln with shares. Close of it closes ln, and ends the refusals that are
// being told.
func Listen(ln net.Listener, take Take) *Listener {
	return &Listener{Listener: ln, take: take, refusals: make(chan struct{}, maxRefusals), told: map[net.Conn]bool{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		give, err := l.take(c.RemoteAddr())
		if err == nil {
			return &conn{Conn: c, give: give}, nil
		}
		l.refuse(c, err)
	}
}

func (l *Listener) refuse(c net.Conn, why error) {
	select {
	case l.refusals <- struct{}{}:
	default:
		_ = c.Close()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		_ = c.Close()
		return
	}
	l.told[c] = true
	l.wg.Go(func() {
		defer func() { <-l.refusals }()
		defer l.end(c)
		_ = c.SetDeadline(time.Now().Add(refusalTime))
		var begun [1]byte // a client takes no answer that comes before it has asked
		if _, err := c.Read(begun[:]); err != nil {
			return
		}
		text := why.Error() + "\n"
		_, err := fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s", len(text), text)
		if half, ok := c.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, c, refusalRead)
		}
	})
}

// end closes a refused connection.
func (l *Listener) end(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.told, c)
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	l.closing = true
	for c := range l.told {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
	return err
}

// conn gives its place back when it is closed.
type conn struct {
	net.Conn
	give func()
	once sync.Once
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.give)
	return err
}
