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
	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/wire"
)

// What each step of a connection may take, as Mooncake's own daemon has it.
const (
	RequestTime = 5 * time.Second // from the connection to the whole request
	AnswerTime  = 5 * time.Second
	CloseTime   = 5 * time.Second // for the peer's end
)

// Config is what a Server needs.
type Config struct {
	// Descriptor is the segment's, as peer shall see it.
	Descriptor func(peer string) segment.Descriptor
	// Notified has a message of a peer; an error refuses it. nil: all are refused.
	Notified func(c *door.Conn, n Notify) error
	// Asked hears of a metadata request or a probe before it is answered. An error ends
	// the connection without an answer, as if nobody were there. nil: all are answered.
	Asked func(c *door.Conn, t Type) error
	// Admit says who a source address is, or why it is turned away.
	Admit func(source netip.Addr) (peer string, err error)
	// Refused hears of each connection that was turned away, put out, or ended by an
	// error; it must not block.
	Refused func(peer string, err error)
	// Doors has the shares of connections, and of the bytes of requests that have not come
	// whole, but for the first 4 KiB of each. nil: there are no limits.
	Doors *door.Common
}

// Server answers handshakes.
type Server struct {
	cfg  Config
	door *door.Door
	held *door.Shares // bytes
}

// NewServer makes one without listeners.
func NewServer(cfg Config) *Server {
	s := &Server{cfg: cfg, held: cfg.Doors.Of(quota.HandshakeBytes)}
	s.door = door.New(door.Config{Places: cfg.Doors.Of(quota.HandshakeConns), Admit: cfg.Admit, Refused: cfg.Refused, Serve: s.serve})
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

// Identify closes those too that Admit would take for somebody else now.
func (s *Server) Identify() { s.door.Identify() }

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
	var mine []door.Part // bytes that this connection holds
	give := func() {
		for _, p := range mine {
			p.Give()
		}
	}
	defer give()
	req, err := readFrame(c, func(n int) error {
		p, err := s.held.Take(c.Source(), uint64(n))
		mine = append(mine, p)
		return err
	})
	if err != nil {
		return err
	}
	c.Spoke()
	answer, err := s.answer(c, req)
	if err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(AnswerTime))
	if _, err := c.Write(frame{typ: req.typ, old: req.old, text: answer}.append(nil)); err != nil {
		return &stepError{"the answer to a " + req.typ.String() + " request", err}
	}
	c.Yield()
	give()
	// A close with the peer's bytes unread would reset the connection, and the answer
	// with it. Whatever the peer does now, it has its answer.
	_ = c.CloseWrite()
	_ = c.SetDeadline(time.Now().Add(CloseTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(c, MaxFrame))
	return nil
}

func (s *Server) answer(c *door.Conn, req frame) ([]byte, error) {
	var any struct{} // checks that it is an object, and keeps nothing of it
	switch req.typ {
	case TypeMetadata: // with the sender's own descriptor, which is of no use here
		if len(req.text) == 0 {
			return nil, fmt.Errorf("handshake: a metadata request without a text: %w", wire.CodeTruncated)
		}
		if err := s.asked(c, req.typ); err != nil {
			return nil, err
		}
		d := s.cfg.Descriptor(c.Peer)
		return d.Append(nil), nil
	case TypeNotify:
		return s.notify(c, req.text)
	case TypeProbe:
		if err := object(req.text, &any); err != nil {
			return nil, err
		}
		if err := s.asked(c, req.typ); err != nil {
			return nil, err
		}
		return text(probeAnswer{success}), nil
	}
	if err := object(req.text, &any); err != nil {
		return nil, err
	}
	return text(connectionAnswer{QPNum: []int{}}), nil
}

func (s *Server) asked(c *door.Conn, t Type) error {
	if s.cfg.Asked == nil {
		return nil
	}
	return s.cfg.Asked(c, t)
}

// notify hands a message over. Mooncake reads an empty text in the answer as a refusal.
func (s *Server) notify(c *door.Conn, b []byte) ([]byte, error) {
	var n Notify
	if err := object(b, &n); err != nil {
		return nil, err
	}
	err := fmt.Errorf("handshake: a notify, which nobody takes here: %w", wire.CodeUnsupported)
	if s.cfg.Notified != nil {
		err = s.cfg.Notified(c, n)
	}
	if err != nil {
		s.cfg.Refused(c.Peer, err)
		return text(Notify{}), nil
	}
	return text(Notify{Text: success}), nil
}
