package connshare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"meridian/internal/halfopen"
)

// Bounds of refusals.
const (
	maxRefusals = 16          // that have a place to be told; for one more, a silent one or one that was told is closed
	refusalTime = time.Second // for one, its request included; one that asks nothing is closed untold
	refusalRead = 64 << 10    // bytes of its request that are read away, so that the answer is not lost by a reset
)

// Take gives one connection from an address its place, or says why there is none.
// Source is set in both cases.
type Take func(from net.Addr) (Place, error)

// Place is that of one connection.
type Place struct {
	Source string // whose the connection is
	Own    bool   // of a refusal: the source has all that one source may have
	Give   func() // gives the place back; called once
}

// Listener accepts the connections of another one that Take lets in.
type Listener struct {
	net.Listener
	take     Take
	start    time.Time
	places   halfopen.Table // connections that were let in
	refusals halfopen.Table
	wg       sync.WaitGroup

	mu      sync.Mutex
	told    map[net.Conn]bool // refused ones that are not closed yet
	closing bool
}

// Listen is ln with shares. Close of it closes ln, and ends the refusals that are
// being told. The server that accepts must be one that Attach has seen.
func Listen(ln net.Listener, take Take) *Listener {
	return &Listener{Listener: ln, take: take, start: time.Now(), told: map[net.Conn]bool{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, err := l.enter(c.RemoteAddr())
		if err == nil {
			in := &conn{Conn: c, of: l, give: p.Give}
			in.turn = l.places.Enter(l.now(), p.Source, func(error) { _ = in.end() })
			return in, nil
		}
		l.refuse(c, p.Source, err)
	}
}

// enter takes a place for a connection, if need be that of one for which no handler runs.
// Each turn closes a connection, so it ends.
func (l *Listener) enter(from net.Addr) (Place, error) {
	for {
		p, err := l.take(from)
		if err == nil {
			return p, nil
		}
		source := ""
		if p.Own {
			source = p.Source
		}
		if !l.places.MakeRoom(l.now(), source, err) {
			return p, err
		}
	}
}

func (l *Listener) now() time.Duration { return time.Since(l.start) }

func (l *Listener) refuse(c net.Conn, source string, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		_ = c.Close()
		return
	}
	if l.refusals.Len() >= maxRefusals {
		l.refusals.MakeRoom(l.now(), "", why) // there is one: none is ever busy
	}
	place := l.refusals.Enter(l.now(), source, func(error) { _ = c.Close() })
	l.told[c] = true
	l.wg.Go(func() {
		defer l.end(c, place)
		_ = c.SetDeadline(time.Now().Add(refusalTime))
		var begun [1]byte // a client takes no answer that comes before it has asked
		if _, err := c.Read(begun[:]); err != nil {
			return
		}
		place.Rest(l.now()) // it makes room after the silent ones
		text := why.Error() + "\n"
		_, err := fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s", len(text), text)
		if half, ok := c.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, c, refusalRead)
		}
	})
}

// end closes a refused connection.
func (l *Listener) end(c net.Conn, place *halfopen.Conn) {
	_ = c.Close()
	place.Leave()
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

// Attach has a server tell its Listeners what it does with each connection. A connection
// makes room for others until its first whole head is read, while it is idle, and while
// the body that a head has announced is awaited.
func Attach(srv *http.Server) {
	srv.ConnState = state
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	handler := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok && r.Body != http.NoBody {
			c.turn.Wait(c.of.now())
			r.Body = &body{r.Body, c}
		}
		handler.ServeHTTP(w, r)
	})
}

// connKey is that of the connection in the context of its requests.
type connKey struct{}

// body is one that is still to come. What it is asked for is worked on from its end on.
type body struct {
	io.ReadCloser
	of *conn
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.of.turn.Busy()
	}
	return n, err
}

func state(nc net.Conn, s http.ConnState) {
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	switch s {
	case http.StateActive:
		c.turn.Busy()
	case http.StateIdle:
		c.turn.Rest(c.of.now())
	case http.StateNew, http.StateHijacked, http.StateClosed: // Accept and Close have seen to it
	}
}

// conn gives its place back when it is closed.
type conn struct {
	net.Conn
	of   *Listener
	give func()
	turn *halfopen.Conn
	once sync.Once
}

func (c *conn) Close() error {
	c.turn.Leave()
	return c.end()
}

func (c *conn) end() error {
	err := c.Conn.Close()
	c.once.Do(c.give)
	return err
}
