package metaserver

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"meridian/blocks/quota"
	"meridian/internal/halfopen"
)

// guestKey finds the connection of a request in its context.
type guestKey struct{}

// guest is a connection. It has its share for as long as it lives, and while no whole
// request of it is here it makes room for others.
type guest struct {
	net.Conn
	server *Server
	source string
	share  *quota.Hold

	mu     sync.Mutex
	place  *halfopen.Conn
	closed bool
}

// guestListener lets in who may use the server.
type guestListener struct {
	net.Listener
	server *Server
}

// Accept returns the next connection that is let in; others are closed at once.
func (l *guestListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g, why := l.server.admit(c)
		if why == nil {
			return g, nil
		}
		l.server.count("connection", why.Reason)
		l.server.cfg.Refused(why)
		l.server.cfg.Log.Warn("a connection to the metadata server is refused", "from", c.RemoteAddr().String(), "err", why)
		_ = c.Close()
	}
}

func (s *Server) notAllowed() *Refusal {
	return &Refusal{Status: http.StatusForbidden, Reason: "not_allowed", Text: "the address is not in " + s.cfg.Table + ".allow"}
}

// mayStay reports whether the guest may use the server still.
func (g *guest) mayStay() bool {
	at, err := netip.ParseAddrPort(g.RemoteAddr().String())
	return g.source == thisHost || err == nil && g.server.listed(at.Addr())
}

// admit gives a connection its share. Where its source, or all of them, has as many as
// it may, the oldest one without a request makes room.
func (s *Server) admit(c net.Conn) (*guest, *Refusal) {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	here := err == nil && s.here(at.Addr()) // asks the kernel for this host's addresses
	if err != nil || !here && !s.listed(at.Addr()) {
		return nil, s.notAllowed()
	}
	g := &guest{Conn: c, server: s, source: quota.SourceOf(at.Addr()).Name}
	if here {
		g.source = thisHost
	}
	who := []quota.Holder{{Kind: quota.Source, Name: g.source}, quota.Total}
	for {
		g.share, err = s.cfg.Quota.Take(quota.MetadataConns, 1, who...)
		if err == nil {
			g.wait()
			return g, nil
		}
		of := g.source
		if full, ok := errors.AsType[*quota.Error](err); ok && full.Holder.Kind == quota.All {
			of = ""
		}
		if !s.conns.MakeRoom(s.cfg.Clock(), of, err) {
			return nil, &Refusal{Status: http.StatusServiceUnavailable, Reason: "connections", Text: err.Error()}
		}
	}
}

// thisHost is the source that all addresses of this host are, so that an engine may come
// by any of them.
const thisHost = "loopback"

// wait says that no whole request is here.
func (g *guest) wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.place = g.server.conns.Enter(g.server.cfg.Clock(), g.source, g.evict)
}

// evict closes the connection for another one. Its server calls Close then.
func (g *guest) evict(error) {
	g.share.Give()
	_ = g.Conn.Close()
}

// served says that a whole request is here, until the function that it returns is
// called.
func (g *guest) served() func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.place.Leave()
	return g.wait
}

// Close gives the share back. It may be called again.
func (g *guest) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.place.Leave()
	g.share.Give()
	return g.Conn.Close()
}
