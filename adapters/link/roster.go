package link

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"meridian/wire"
)

// roster is who may connect, and by which proof. It never changes: Apply puts
// another one in its place.
type roster struct {
	peers  []*Peer // in the order of the configuration
	byName map[string]*Peer
	pinned map[[16]byte]*Peer // by the agent id that nobody else may claim
	anyone *Peer              // stands for the peers of this host where none is listed; else nil
	tls    *TLS
}

// Update is the part of a Config that Apply changes.
type Update struct {
	Peers   []PeerConfig
	Tenants []string
	PSK     []byte
	TLS     *TLS
	// Standing is as in Config, for sessions that run already too.
	Standing int64
	// Drain bounds how long calls may take to end on sessions that have to go.
	Drain time.Duration
}

// newRoster makes a roster. The entries of old that stay as they are keep their
// Peer.
func (n *Node) newRoster(u Update, old *roster) *roster {
	r := &roster{byName: map[string]*Peer{}, pinned: map[[16]byte]*Peer{}, tls: u.TLS}
	for _, c := range u.Peers {
		c.PSK = slices.Clone(keyOf(c.PSK, u.PSK))
		p := old.keep(c)
		if p == nil {
			p = newPeer(n, c)
		}
		r.peers = append(r.peers, p)
		r.byName[c.Name] = p
		if c.Agent != ([16]byte{}) {
			r.pinned[c.Agent] = p
		}
	}
	if len(r.peers) == 0 {
		c := PeerConfig{Tenants: u.Tenants, PSK: slices.Clone(u.PSK)}
		if r.anyone = old.keep(c); r.anyone == nil {
			r.anyone = newPeer(n, c)
		}
	}
	return r
}

// keyOf is the key of a peer: its own, else the one that all share.
func keyOf(own, shared []byte) []byte {
	if len(own) > 0 {
		return own
	}
	return shared
}

// keep returns the entry that says the same as c; nil where there is none. The
// order of tenants says nothing.
func (r *roster) keep(c PeerConfig) *Peer {
	p := r.entry(c.Name)
	if p == nil {
		return nil
	}
	if p.cfg.Addr != c.Addr || !p.cfg.sameProof(&c) {
		return nil
	}
	return p
}

// entry is the entry of that name; no name is that of peers on no list.
func (r *roster) entry(name string) *Peer {
	switch {
	case r == nil:
		return nil
	case name == "":
		return r.anyone
	}
	return r.byName[name]
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// admits says why what was proved under an entry counts no more; nil: it counts.
// What a certificate proved is checked by accepts.
func (r *roster) admits(p *Peer, agent [16]byte) error {
	if r.entry(p.cfg.Name) != p {
		return fmt.Errorf("the configuration of %s has changed: %w", cmp.Or(p.cfg.Name, "peers on no list"), wire.CodeAuth)
	}
	if o := r.pinned[agent]; o != nil && o != p {
		return fmt.Errorf("agent id %x belongs to %s (link.peer.agent): %w", agent, o.cfg.Name, wire.CodeAuth)
	}
	return nil
}

// accepts says why the certificate of a connection would not be accepted now; nil:
// it would, or there is none.
func (t *TLS) accepts(c *tls.Conn, now time.Time) error {
	if t == nil {
		return fmt.Errorf("this agent has no certificates any more: %w", wire.CodeAuth)
	}
	chain := c.ConnectionState().PeerCertificates
	if len(chain) == 0 {
		return fmt.Errorf("the connection has no certificate: %w", wire.CodeAuth)
	}
	between := x509.NewCertPool()
	for _, m := range chain[1:] {
		between.AddCert(m)
	}
	// The handshake has checked what the certificate may be used for.
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: t.CA, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return fmt.Errorf("its certificate: %w: %w", err, wire.CodeAuth)
	}
	return nil
}

// Apply changes who may connect, by which proof, and whom this side dials, while
// the node runs. All is checked before anything changes: on an error nothing has.
//
// An entry that stays as it is keeps its sessions. Those of one that is gone or
// says something else are told GOAWAY, take no new calls, and end when what runs
// has ended, at u.Drain at the latest, and a second at most where the proof is what
// changed; a new one begins with a new proof. So do those whose certificate the new
// authority did not sign. New handshakes use the new certificates at once. A peer
// whose entry changed is another Peer.
func (n *Node) Apply(u Update) error {
	if err := checkPeers(u.Peers, u.TLS); err != nil {
		return err
	}
	n.mu.Lock()
	if err := n.mayApply(u); err != nil {
		n.mu.Unlock()
		return err
	}
	old := n.roster.Load()
	r := n.newRoster(u, old)
	n.roster.Store(r)
	n.standing.Store(u.Standing)
	n.recount(nil)
	for _, p := range r.peers {
		if old.entry(p.cfg.Name) != p {
			n.dial(p)
		}
	}
	for name := range n.past {
		if old.byName[name] != nil && r.byName[name] == nil {
			delete(n.past, name)
		}
	}
	sessions := make([]*session, 0, len(n.sessions))
	for _, s := range n.sessions {
		sessions = append(sessions, s)
	}
	n.mu.Unlock()
	for _, p := range old.peers {
		if r.entry(p.cfg.Name) != p {
			p.endDialling()
		}
	}
	for _, s := range sessions {
		s.mu.Lock()
		s.core.SetHomeBytes(homeBytes(u.Standing))
		s.unlock()
		if err := s.outlives(r); err != nil {
			s.retire(s.mayTake(r, u.Drain), err)
		}
	}
	return nil
}

// Check says what Apply would refuse.
func (n *Node) Check(u Update) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return errors.Join(checkPeers(u.Peers, u.TLS), n.mayApply(u))
}

// mayApply: the caller holds n.mu.
func (n *Node) mayApply(u Update) error {
	switch {
	case n.closed || n.draining:
		return fmt.Errorf("this agent is leaving: %w", wire.CodeDraining)
	case u.TLS == nil && n.listensTLS:
		return fmt.Errorf("link.tls cannot go while this agent listens at a tls:// address: %w", wire.CodeConfig)
	}
	return nil
}

// dial begins to keep a peer connected, where it has an address. The caller holds
// n.mu, or is New.
func (n *Node) dial(p *Peer) {
	if p.cfg.Addr != "" {
		n.running.Add(1)
		go p.keepConnected()
	}
}

// endDialling ends the dialling of a peer whose entry is gone. Its sessions end by
// retire.
func (p *Peer) endDialling() {
	p.closed.Store(true)
	p.poke()
}

// outlives says why a session may not go on under a roster; nil: it may.
func (s *session) outlives(r *roster) error {
	if err := r.admits(s.entry, s.peer.agent); err != nil {
		return err
	}
	s.mu.Lock()
	var certs []*tls.Conn
	for _, l := range s.lanes {
		if l == nil {
			continue
		}
		if c, ok := l.conn.(*tls.Conn); ok {
			certs = append(certs, c)
		}
	}
	s.mu.Unlock()
	for _, c := range certs {
		if err := r.tls.accepts(c, s.node.cfg.Wall()); err != nil {
			return err
		}
	}
	return nil
}

// mayTake is how long a session that has to go may take to end. What runs over one
// whose entry is gone or leads elsewhere may end well; a proof that counts no more
// is good for little longer.
func (s *session) mayTake(r *roster, drain time.Duration) time.Duration {
	now := r.entry(s.entry.cfg.Name)
	if now == nil || now != s.entry && s.entry.cfg.sameProof(&now.cfg) {
		return drain
	}
	return min(drain, drainStill)
}

// sameProof says whether two entries ask for the same and allow the same.
func (c *PeerConfig) sameProof(o *PeerConfig) bool {
	return c.Agent == o.Agent && bytes.Equal(c.PSK, o.PSK) && sameSet(c.Tenants, o.Tenants)
}

// retire ends a session that may not go on: the peer is told, new calls go
// elsewhere, and what runs may end within a time.
func (s *session) retire(within time.Duration, why error) {
	s.mu.Lock()
	first := !s.retired
	s.retired = true
	if first {
		s.core.GoAway(s.now(), uint32(within/time.Millisecond), wire.CodeOf(why), reasonOf(why))
	}
	s.unlock()
	if first {
		s.node.cfg.Log.Info("link session is to end", "peer", s.peer.name, "within", within, "why", why, "next", s.next())
		s.node.state(s.peer.name)
	}
}

// next says what comes after a session that is to end.
func (s *session) next() string {
	switch p := s.node.Peer(s.peer.name); {
	case p == nil:
		return "none: the peer is on no list"
	case p.cfg.Addr == "":
		return "the peer connects anew, with the proof that its entry asks for now"
	}
	return "this agent connects anew, with the proof that the entry says now"
}

// endsBy bounds the session's life by the certificates that a connection was
// proved by. The caller holds s.mu.
func (s *session) endsBy(c net.Conn) {
	tc, ok := c.(*tls.Conn)
	if !ok {
		return
	}
	for _, m := range tc.ConnectionState().PeerCertificates {
		if s.until.IsZero() || m.NotAfter.Before(s.until) {
			s.until = m.NotAfter
		}
	}
}
