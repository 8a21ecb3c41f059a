package handshake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"meridian/adapters/mooncake/segment"
	"meridian/internal/door"
	"meridian/wire"
)

// What each step of a connection may take, as Mooncake's own daemon has it, and the
// default limits.
const (
	RequestTime = 5 * time.Second // from the connection to the whole request
	AnswerTime  = 5 * time.Second
	CloseTime   = 5 * time.Second // for the peer's end

	DefaultConns     = 1024
	DefaultPerSource = 512

	// DefaultHeld bounds the bytes of all requests that are under way, but for the
	// first 4 KiB of each.
	DefaultHeld = 64 << 20
)

// Config is what a Server needs.
type Config struct {
	// Descriptor is the segment's, as peer shall see it.
	Descriptor func(peer string) segment.Descriptor
	// Notified has a message of a peer; an error refuses it. nil: all are refused.
	Notified func(peer string, n Notify) error
	// Asked hears of a metadata request or a probe before it is answered. An error ends
	// the connection without an answer, as if nobody were there. nil: all are answered.
	Asked func(peer string, t Type) error
	// Admit says who a source address is, or why it is turned away.
	Admit func(source netip.Addr) (peer string, err error)
	// Refused hears of each connection that was turned away, put out, or ended by an
	// error; it must not block.
	Refused func(peer string, err error)

	Conns, PerSource int // connections at a time; 0: the defaults
	Held             int // bytes of requests under way; 0: the default
}

// Server answers handshakes.
type Server struct {
	cfg  Config
	door *door.Door
	held *door.Shares // bytes
}

// NewServer makes one without listeners.
func NewServer(cfg Config) *Server {
	s := &Server{cfg: cfg}
	if cfg.Conns == 0 {
		cfg.Conns = DefaultConns
	}
	if cfg.PerSource == 0 {
		cfg.PerSource = DefaultPerSource
	}
	if cfg.Held == 0 {
		cfg.Held = DefaultHeld
	}
	s.held = door.NewShares("bytes of requests", cfg.Held)
	s.door = door.New(door.Config{Conns: cfg.Conns, PerSource: cfg.PerSource, Admit: cfg.Admit, Refused: cfg.Refused, Serve: s.serve})
	return s
}

// Listen opens a port: HOST:PORT, an IPv6 address in brackets; [::] is both families.
func (s *Server) Listen(ctx context.Context, addr string) (netip.AddrPort, error) {
	return s.door.Listen(ctx, addr)
}

// Open serves a listener until Close.
func (s *Server) Open(l net.Listener) bool { return s.door.Open(l) }

// Recheck closes the connections that Admit would turn away now.
func (s *Server) Recheck() { s.door.Recheck() }

// Close ends listeners and connections, and returns when all are gone.
func (s *Server) Close() { s.door.Close() }

func (s *Server) serve(c *door.Conn) {
	err := s.exchange(c)
	if why := c.Why(); why != nil {
		err = why
	}
	if err != nil && !errors.Is(err, errNothing) && !errors.Is(err, net.ErrClosed) { // closed: by Close
		s.cfg.Refused(c.Peer, err)
	}
}

func (s *Server) exchange(c *door.Conn) error {
	_ = c.SetDeadline(time.Now().Add(RequestTime))
	mine := 0 // bytes that this connection holds
	defer func() { s.held.Give(c.Source(), mine) }()
	req, err := readFrame(c, func(n int) error {
		err := s.held.Take(c.Source(), n)
		if err == nil {
			mine += n
		}
		return err
	})
	if err != nil {
		return err
	}
	c.Spoke()
	answer, err := s.answer(c.Peer, req)
	if err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(AnswerTime))
	if _, err := c.Write(frame{typ: req.typ, old: req.old, text: answer}.append(nil)); err != nil {
		return &stepError{"the answer to a " + req.typ.String() + " request", err}
	}
	c.Yield()
	s.held.Give(c.Source(), mine)
	mine = 0
	// A close with the peer's bytes unread would reset the connection, and the answer
	// with it. Whatever the peer does now, it has its answer.
	_ = c.CloseWrite()
	_ = c.SetDeadline(time.Now().Add(CloseTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(c, MaxFrame))
	return nil
}

func (s *Server) answer(peer string, req frame) ([]byte, error) {
	var any struct{} // checks that it is an object, and keeps nothing of it
	switch req.typ {
	case TypeMetadata: // with the sender's own descriptor, which is of no use here
		if len(req.text) == 0 {
			return nil, fmt.Errorf("handshake: a metadata request without a text: %w", wire.CodeTruncated)
		}
		if err := s.asked(peer, req.typ); err != nil {
			return nil, err
		}
		d := s.cfg.Descriptor(peer)
		return d.Append(nil), nil
	case TypeNotify:
		return s.notify(peer, req.text)
	case TypeProbe:
		if err := object(req.text, &any); err != nil {
			return nil, err
		}
		if err := s.asked(peer, req.typ); err != nil {
			return nil, err
		}
		return text(probeAnswer{success}), nil
	}
	if err := object(req.text, &any); err != nil {
		return nil, err
	}
	return text(connectionAnswer{QPNum: []int{}}), nil
}

func (s *Server) asked(peer string, t Type) error {
	if s.cfg.Asked == nil {
		return nil
	}
	return s.cfg.Asked(peer, t)
}

// notify hands a message over. Mooncake reads an empty text in the answer as a refusal.
func (s *Server) notify(peer string, b []byte) ([]byte, error) {
	var n Notify
	if err := object(b, &n); err != nil {
		return nil, err
	}
	err := fmt.Errorf("handshake: a notify, which nobody takes here: %w", wire.CodeUnsupported)
	if s.cfg.Notified != nil {
		err = s.cfg.Notified(peer, n)
	}
	if err != nil {
		s.cfg.Refused(peer, err)
		return text(Notify{}), nil
	}
	return text(Notify{Text: success}), nil
}
