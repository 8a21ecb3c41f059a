package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/wire"
	proto "meridian/wire/link"
)

// keepConnected dials the peer until the node or the peer is closed: first lane
// 0, then the data lanes, and again what was lost.
func (p *Peer) keepConnected() {
	n := p.node
	defer n.running.Done()
	var tries redial
	for n.ctx.Err() == nil && !p.closed.Load() {
		s, err := p.connect()
		p.mu.Lock()
		p.refusal = err
		p.mu.Unlock()
		n.state(p.cfg.Name)
		stood := time.Duration(0)
		if err != nil {
			n.cfg.Log.Debug("link dial", "peer", p.cfg.Name, "addr", p.cfg.Addr, "code", wire.CodeOf(err).String(), "err", err)
		} else {
			up := n.cfg.Clock()
			for s.complete(n.cfg.Lanes) {
				select {
				case <-s.kick:
				case <-p.kick:
				case <-n.ctx.Done():
				}
				n.state(p.cfg.Name)
				if n.ctx.Err() != nil || p.closed.Load() {
					return
				}
			}
			stood = n.cfg.Clock() - up
		}
		p.sleep(tries.pause(stood))
	}
}

// redial says how long to wait between two tries to reach a peer.
type redial struct{ last time.Duration }

// pause is the wait after a connection that stood for a time, 0 where there was none:
// nothing after one that stood for long, else a time that doubles from one to the next
// and of which half is random.
func (r *redial) pause(stood time.Duration) time.Duration {
	if stood > steadyAfter {
		r.last = 0
		return 0
	}
	r.last = min(max(2*r.last, redialMin), redialMax)
	return r.last/2 + rand.N(r.last/2)
}

func (p *Peer) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.kick:
	case <-p.node.ctx.Done():
	}
}

// complete reports whether all lanes of a live session are up.
func (s *session) complete(lanes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, dead := s.core.Dead()
	return !dead && s.core.Up(0) && s.core.DataLanes() >= lanes
}

// connect brings up what is missing of the peer's session.
func (p *Peer) connect() (*session, error) {
	p.mu.Lock()
	s := p.dialled
	p.mu.Unlock()
	if s != nil {
		s.mu.Lock()
		_, dead := s.core.Dead()
		lane0 := s.core.Up(0)
		leaving := s.core.Leaving()
		s.mu.Unlock()
		switch {
		case dead:
			s = nil
		case leaving && lane0:
			return nil, fmt.Errorf("the peer is leaving: %w", wire.CodeDraining)
		case leaving: // it has left; what it left may be asked again
			s.drop(wire.CodeDraining)
			s = nil
		case lane0:
			return s, p.addLanes(s)
		}
	}
	s, err := p.begin(s)
	if err != nil {
		return nil, err
	}
	return s, p.addLanes(s)
}

// addLanes dials the data lanes that are missing.
func (p *Peer) addLanes(s *session) error {
	for i := uint8(1); int(i) <= p.node.cfg.Lanes; i++ {
		s.mu.Lock()
		up := s.core.Up(i)
		s.mu.Unlock()
		if up {
			continue
		}
		if err := p.addLane(s, i); err != nil {
			return err
		}
	}
	return nil
}

// begin dials lane 0: again of old, whose leases live on if the peer still
// knows it, or of a new session.
func (p *Peer) begin(old *session) (*session, error) {
	n := p.node
	var id [16]byte
	if old != nil {
		id = old.id
	}
	h, who, theirs, err := p.dialLane(id, 0)
	if err != nil {
		return nil, err
	}
	defer n.endOpening(h.base)
	if old != nil && theirs.Session == old.id && who.same(&old.peer) && who.inc == old.peer.inc {
		return old, p.attach(old, h, 0)
	}
	s, err := n.dialled(h, p, who, theirs)
	if err != nil {
		h.refuse(err)
		return nil, err
	}
	if old != nil {
		old.drop(wire.CodeLaneLost)
	}
	p.mu.Lock()
	p.dialled, p.agent = s, who.agent
	p.mu.Unlock()
	if err := p.attach(s, h, 0); err != nil {
		s.drop(wire.CodeOf(err))
		return nil, err
	}
	return s, nil
}

// dialled begins a session with a peer whose proof was taken.
func (n *Node) dialled(h *hello, p *Peer, id identity, m *proto.Hello) (*session, error) {
	n.mu.Lock()
	if n.closed || n.draining {
		n.mu.Unlock()
		return nil, fmt.Errorf("this agent is leaving: %w", wire.CodeDraining)
	}
	if n.sessions[m.Session] != nil {
		n.mu.Unlock()
		return nil, fmt.Errorf("the peer gave the id of another session: %w", wire.CodeState)
	}
	if err := n.still(h, p, &id); err != nil {
		n.mu.Unlock()
		return nil, err
	}
	older, err := n.claim(&id, p.cfg.Addr)
	if err != nil {
		n.mu.Unlock()
		return nil, err
	}
	s := n.newSession(p, m.Session, id, h.via, p.cfg.Addr, true, m)
	n.sessions[s.id] = s
	p.addSession(s)
	n.displace(&id, older)
	n.mu.Unlock()
	n.replace(&id, older)
	return s, nil
}

// addLane dials one more lane of a session.
func (p *Peer) addLane(s *session, idx uint8) error {
	h, id, theirs, err := p.dialLane(s.id, idx)
	if err != nil {
		return err
	}
	defer p.node.endOpening(h.base)
	if theirs.Session != s.id || !id.same(&s.peer) || id.inc != s.peer.inc {
		_ = h.base.Close()
		return fmt.Errorf("another agent or incarnation answers: %w", wire.CodeIncarnation)
	}
	return p.attach(s, h, idx)
}

// attach adds a lane whose proofs were taken. A first PING measures the round
// trip; nobody waits for it.
func (p *Peer) attach(s *session, h *hello, idx uint8) error {
	if err := s.addLane(idx, h); err != nil {
		_ = h.base.Close()
		return err
	}
	s.mu.Lock()
	s.core.StartOn(s.now(), idx, &core.Call{Type: proto.TypePing, Timeout: proto.HelloTimeout, Done: make(chan struct{})})
	s.unlock()
	p.node.recount(p)
	return nil
}

// dialTLS is the handshake of TLS with the peer of that name.
func (n *Node) dialTLS(ctx context.Context, h *hello, name string) error {
	certs := n.roster.Load().tls
	if certs == nil {
		return errors.New("this agent has no certificates any more")
	}
	c := tls.Client(h.base, certs.client(name))
	h.conn = c
	return c.HandshakeContext(ctx)
}

// dialLane connects and goes through the HELLOs. The caller owes endOpening.
func (p *Peer) dialLane(session [16]byte, idx uint8) (*hello, identity, *proto.Hello, error) {
	n := p.node
	a, err := parseAddr(p.cfg.Addr)
	if err != nil {
		return nil, identity{}, nil, err
	}
	network := "tcp"
	if a.network == viaUnix {
		network = "unix"
	}
	ctx, cancel := context.WithTimeout(n.ctx, dialTimeout)
	defer cancel()
	d := net.Dialer{KeepAlive: -1}
	c, err := d.DialContext(ctx, network, a.target)
	if err != nil {
		return nil, identity{}, nil, fmt.Errorf("%w: %w", wire.CodeUnreachable, err)
	}
	if !n.beginOpening(c) {
		_ = c.Close()
		return nil, identity{}, nil, fmt.Errorf("this agent is leaving: %w", wire.CodeDraining)
	}
	defer n.running.Done()
	n.tune(c)
	h := &hello{conn: c, base: c, via: a.network, origin: origin{addr: p.cfg.Addr}}
	if a.network == viaTLS {
		if err := n.dialTLS(ctx, h, p.cfg.Name); err != nil {
			n.endOpening(c)
			_ = c.Close()
			return nil, identity{}, nil, fmt.Errorf("tls: %w: %w", wire.CodeAuth, err)
		}
	}
	id, theirs, err := n.dialHello(h, p, session, idx)
	if err != nil {
		n.endOpening(c)
		h.refuse(err)
		return nil, identity{}, nil, err
	}
	return h, id, theirs, nil
}
