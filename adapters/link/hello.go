package link

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// hello is a connection during its HELLOs. They go
//
//	dialler   HELLO  session (zero: a new one), lane, nonce, the method's element empty
//	acceptor  HELLO  session, nonce, the method's element empty
//	dialler   HELLO  as its first, with proof
//	acceptor  HELLO  as its first, with proof: the lane is open
//
// or end with ERROR. Both sides compute a proof over both nonces, so neither can
// be played back. The dialler proves first: who only knocks learns nothing that
// was made with a key.
type hello struct {
	conn, base net.Conn
	via        string
	origin            // of an accepted connection
	spoke      func() // told at the first valid HELLO; may be nil
	sp         proto.Splitter
	buf        [proto.HeadLen]byte

	claimed string // the name that the other side gave; unproven
	entry   string // of the allow list, once that was proved; empty: nothing was
}

// RemoteError is an ERROR that the peer sent. It matches its code.
type RemoteError struct {
	Code   wire.Code
	Offset uint64
	Text   string
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("the peer says %s: %s", e.Code, e.Text)
}

// Unwrap returns the code.
func (e *RemoteError) Unwrap() error { return e.Code }

// send writes one HELLO.
func (h *hello) send(m *proto.Hello) error {
	_, err := h.conn.Write(proto.AppendMessage(nil, proto.Frame{Type: proto.TypeHello, Flags: proto.FlagCritical}, *m))
	if err != nil {
		return fmt.Errorf("sending HELLO: %w: %w", err, wire.CodeLaneLost)
	}
	return nil
}

// receive reads one HELLO, and not a byte more.
func (h *hello) receive() (proto.Hello, error) {
	for {
		b := h.buf[:min(h.sp.Need(), len(h.buf))]
		if _, err := io.ReadFull(h.conn, b); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return proto.Hello{}, fmt.Errorf("no complete HELLO within %v: %w", proto.HelloTimeout, wire.CodeHelloTimeout)
			}
			if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
				// TLS 1.3: what the acceptor says of a certificate comes after the
				// dialler's handshake.
				return proto.Hello{}, fmt.Errorf("the peer ended the TLS connection: %w: %w", err, wire.CodeAuth)
			}
			return proto.Hello{}, fmt.Errorf("connection lost before HELLO was through: %w: %w", err, wire.CodeLaneLost)
		}
		_, ev, err := h.sp.Next(b)
		if err != nil {
			return proto.Hello{}, err
		}
		if ev.Kind != proto.EventMessage {
			if ev.Kind == proto.EventNone {
				continue
			}
			return proto.Hello{}, h.outOfPlace(ev.Frame)
		}
		switch ev.Frame.Type {
		case proto.TypeHello:
			m, err := proto.Parse[proto.Hello](ev.Payload)
			for i := range m.Auth {
				m.Auth[i].Value = append([]byte(nil), m.Auth[i].Value...)
			}
			return m, err
		case proto.TypeError:
			m, err := proto.Parse[proto.Error](ev.Payload)
			if err != nil {
				return proto.Hello{}, err
			}
			return proto.Hello{}, &RemoteError{Code: m.Code, Offset: m.Offset, Text: m.Text}
		}
		return proto.Hello{}, h.outOfPlace(ev.Frame)
	}
}

func (h *hello) outOfPlace(f proto.Frame) error {
	return &proto.FrameError{
		Code: wire.CodeState, Offset: h.sp.Offset(), Field: "type", Text: f.Type.String() + " before HELLO was through",
	}
}

// say sends ERROR, unless the peer said it itself.
func (h *hello) say(err error) bool {
	var re *RemoteError
	if errors.As(err, &re) {
		return false
	}
	m := proto.Error{Code: wire.CodeOf(err), Offset: h.sp.Offset(), Text: reasonOf(err)}
	var fe *proto.FrameError
	if errors.As(err, &fe) {
		m = fe.Message()
	}
	_ = h.base.SetDeadline(time.Now().Add(proto.DrainError))
	_, werr := h.conn.Write(proto.AppendMessage(nil, proto.Frame{Type: proto.TypeError, Flags: proto.FlagCritical}, m))
	return werr == nil
}

// refuse tells the peer why, and closes. It takes at most DrainError.
func (h *hello) refuse(err error) {
	if h.say(err) {
		h.end()
	}
	_ = h.base.Close()
}

// end closes once the peer has read what was said, or the deadline is over: bytes
// that were not read would take it away from the peer.
func (h *hello) end() {
	halfClose(h.conn)
	_, _ = io.Copy(io.Discard, io.LimitReader(h.base, proto.MaxControl))
	_ = h.base.Close()
}

// mine is this side's HELLO.
func (n *Node) mine(session [16]byte, lane uint8, method uint16) *proto.Hello {
	h := &proto.Hello{
		Min: proto.Version, Max: proto.Version, Agent: n.cfg.Agent, Inc: n.cfg.Incarnation,
		Session: session, Lane: lane, Limits: n.cfg.Limits, Features: proto.FeatureStanding, Auth: []proto.TLV{{Type: method}},
	}
	_, _ = rand.Read(h.Nonce[:])
	if n.cfg.Name != "" {
		h.Auth = append(h.Auth, proto.TLV{Type: proto.AuthName, Value: []byte(n.cfg.Name)})
	}
	return h
}

// dialHello is the dialler's part, up to the acceptor's proof.
func (n *Node) dialHello(h *hello, p *Peer, session [16]byte, lane uint8) (identity, *proto.Hello, error) {
	_ = h.base.SetDeadline(time.Now().Add(proto.HelloTimeout))
	psk := p.cfg.PSK
	method, err := n.method(h.via, psk)
	if err != nil {
		return identity{}, nil, err
	}
	if h.via == viaTLS {
		if name := certName(leaf(h.conn.(*tls.Conn))); name != p.cfg.Name {
			return identity{}, nil, fmt.Errorf("the certificate is of %q, not of %q: %w", name, p.cfg.Name, wire.CodeAuth)
		}
	}
	mine := n.mine(session, lane, method)
	if err := h.send(mine); err != nil {
		return identity{}, nil, err
	}
	first, err := h.receive()
	if err != nil {
		return identity{}, nil, err
	}
	if _, err := mine.Agree(first); err != nil {
		return identity{}, nil, err
	}
	if _, ok := first.Find(method); !ok {
		return identity{}, nil, fmt.Errorf("this agent wants %s, and the peer offers none: %w", methodName(method), wire.CodeAuth)
	}
	if mine.Auth[0], err = proof(h, method, psk, roleDialler, mine, &first); err != nil {
		return identity{}, nil, err
	}
	if err := h.send(mine); err != nil {
		return identity{}, nil, err
	}
	theirs, err := h.receive()
	if err != nil {
		return identity{}, nil, err
	}
	if !sameHello(&first, &theirs, method) {
		return identity{}, nil, errHelloChanged
	}
	if err := check(h, &theirs, method, psk, roleAcceptor, mine, &first); err != nil {
		return identity{}, nil, err
	}
	id, err := n.identify(h, &theirs, p, method)
	if err != nil {
		return identity{}, nil, err
	}
	return id, &theirs, nil
}

// errHelloChanged: what was agreed by the first HELLO must be what was proved.
var errHelloChanged = fmt.Errorf("the second HELLO differs from the first in more than its proof: %w", wire.CodeState)

// acceptHello is the acceptor's part, up to a session that has the lane. A new
// session's id is minted here, and means nothing until the dialler's proof was
// taken.
func (n *Node) acceptHello(h *hello) error {
	first, err := h.receive()
	if err != nil {
		return err
	}
	h.spoke()
	p, err := n.allowed(h, &first)
	if err != nil {
		return err
	}
	psk := p.cfg.PSK
	method, err := n.method(h.via, psk)
	if err != nil {
		return err
	}
	session := first.Session
	if session == ([16]byte{}) || first.Lane == 0 && !n.knows(session) {
		_, _ = rand.Read(session[:])
	}
	mine := n.mine(session, first.Lane, method)
	if _, err := mine.Agree(first); err != nil {
		return err
	}
	if _, ok := first.Find(method); !ok {
		return fmt.Errorf("this agent wants %s, and the peer offers none: %w", methodName(method), wire.CodeAuth)
	}
	if err := h.send(mine); err != nil {
		return err
	}
	again, err := h.receive()
	if err != nil {
		return err
	}
	if !sameHello(&first, &again, method) {
		return errHelloChanged
	}
	if err := check(h, &again, method, psk, roleDialler, &first, mine); err != nil {
		return err
	}
	h.entry = p.cfg.Name
	id, err := n.identify(h, &again, p, method)
	if err != nil {
		return err
	}
	if mine.Auth[0], err = proof(h, method, psk, roleAcceptor, &first, mine); err != nil {
		return err
	}
	again.Session = session
	s, err := n.admit(h, p, id, &again)
	if err != nil {
		return err
	}
	if err = h.send(mine); err == nil {
		err = s.addLane(first.Lane, h)
	}
	if err != nil {
		s.dropIfUnused()
		return err
	}
	n.state(s.peer.name)
	return nil
}

// sameHello reports whether two HELLOs of one side say the same but for the proof
// by method.
func sameHello(a, b *proto.Hello, method uint16) bool {
	bare := func(h *proto.Hello) []byte {
		c := *h
		c.Auth = slices.Clone(h.Auth)
		for i := range c.Auth {
			if c.Auth[i].Type == method {
				c.Auth[i].Value = nil
			}
		}
		return c.Append(nil)
	}
	return bytes.Equal(bare(a), bare(b))
}
