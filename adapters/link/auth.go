package link

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"meridian/adapters/link/internal/core"
	"meridian/internal/stranger"
	"meridian/wire"
	proto "meridian/wire/link"
)

// The role labels keep a proof of one side from being played back as the
// other's.
const (
	roleDialler  = "meridian link v1 dialler"
	roleAcceptor = "meridian link v1 acceptor"
	// exporterLabel names the keying material of RFC 8446, section 7.5, that
	// binds a HELLO to its TLS connection.
	exporterLabel = "EXPORTER-meridian-link-v1"
	proofLen      = sha256.Size
)

// tenantURI is the form of a tenant in a certificate: meridian://tenant/NAME.
const (
	tenantScheme = "meridian"
	tenantHost   = "tenant"
)

// pskProof is HMAC-SHA256 over the role, both nonces and both agents, the
// dialler's first.
func pskProof(psk []byte, role string, dialler, acceptor *proto.Hello) []byte {
	m := hmac.New(sha256.New, psk)
	m.Write([]byte(role))
	m.Write(dialler.Nonce[:])
	m.Write(acceptor.Nonce[:])
	m.Write(dialler.Agent[:])
	m.Write(acceptor.Agent[:])
	return m.Sum(nil)
}

// certProof binds a HELLO to its TLS connection: keying material exported with
// the role and the sender's agent and nonce as context.
func certProof(c *tls.Conn, role string, h *proto.Hello) ([]byte, error) {
	st := c.ConnectionState()
	context := append([]byte(role), h.Agent[:]...)
	context = append(context, h.Nonce[:]...)
	return st.ExportKeyingMaterial(exporterLabel, context, proofLen)
}

// method chooses how the two sides of a connection prove themselves. It depends
// on the transport and this side's configuration only, so that nobody in
// between can talk a side into less.
func (n *Node) method(via string, psk []byte) (uint16, error) {
	switch {
	case via == viaTLS:
		return proto.AuthCert, nil
	case len(psk) > 0:
		return proto.AuthPSK, nil
	case via == viaUnix:
		return proto.AuthPeer, nil
	case n.cfg.Insecure:
		return proto.AuthNone, nil
	}
	return 0, fmt.Errorf("no key for this peer, and insecure is not set: %w", wire.CodeAuth)
}

// proof makes this side's element. Elements without a proof are empty.
func proof(h *hello, method uint16, psk []byte, role string, dialler, acceptor *proto.Hello) (proto.TLV, error) {
	t := proto.TLV{Type: method}
	switch method {
	case proto.AuthPSK:
		t.Value = pskProof(psk, role, dialler, acceptor)
	case proto.AuthCert:
		mine := dialler
		if role == roleAcceptor {
			mine = acceptor
		}
		v, err := certProof(h.conn.(*tls.Conn), role, mine)
		if err != nil {
			return t, fmt.Errorf("keying material: %w: %w", err, wire.CodeAuth)
		}
		t.Value = v
	}
	return t, nil
}

// check compares the other side's element with what it must be.
func check(h *hello, theirs *proto.Hello, method uint16, psk []byte, role string, dialler, acceptor *proto.Hello) error {
	got, ok := theirs.Find(method)
	if !ok {
		return fmt.Errorf("the peer offers no %s: %w", methodName(method), wire.CodeAuth)
	}
	want, err := proof(h, method, psk, role, dialler, acceptor)
	if err != nil {
		return err
	}
	if !hmac.Equal(got, want.Value) {
		return fmt.Errorf("the peer's proof by %s is wrong: %w", methodName(method), wire.CodeAuth)
	}
	return nil
}

func methodName(m uint16) string {
	switch m {
	case proto.AuthCert:
		return "certificate"
	case proto.AuthPSK:
		return "pre-shared key"
	case proto.AuthPeer:
		return "peer credentials"
	}
	return "nothing"
}

// claimedName is the name under which a HELLO's sender wants to be known: that of
// its certificate, else the one that it gives.
func claimedName(h *hello, m *proto.Hello) string {
	if h.via == viaTLS {
		return certName(leaf(h.conn.(*tls.Conn)))
	}
	name, _ := m.Find(proto.AuthName)
	return string(name)
}

// allowed finds the peer's entry in the allow list, by its name, or where it gives
// none by its pinned agent. Where there is a list, nobody else may connect; where
// there is none, peers on this host may.
func (n *Node) allowed(h *hello, m *proto.Hello) (*Peer, error) {
	r := n.roster.Load()
	name := claimedName(h, m)
	h.claimed = name[:min(len(name), maxClaimed)]
	p := r.byName[name]
	if p == nil && name == "" && h.via != viaTLS {
		p = r.pinned[m.Agent]
	}
	switch {
	case p != nil:
		if h.via == viaTLS {
			h.entry = p.cfg.Name // its certificate was verified
		}
		return p, nil
	case r.anyone == nil:
		return nil, fmt.Errorf("%q is not on the allow list (link.peer): %w", h.claimed, wire.CodeAuth)
	case !h.local:
		return nil, fmt.Errorf("%q comes from another host, and there is no allow list (link.peer): %w", h.claimed, wire.CodeAuth)
	}
	return r.anyone, nil
}

// still says why a proof that was taken counts no more: its entry or the
// certificates may have changed while it was made. The caller holds n.mu.
func (n *Node) still(h *hello, p *Peer, id *identity) error {
	r := n.roster.Load()
	if err := r.admits(p, id.agent); err != nil {
		return err
	}
	if c, ok := h.conn.(*tls.Conn); ok {
		return r.tls.accepts(c, n.cfg.Wall())
	}
	return nil
}

// identify makes an identity of a HELLO whose proof was right.
func (n *Node) identify(h *hello, m *proto.Hello, p *Peer, method uint16) (identity, error) {
	c := &p.cfg
	id := identity{name: c.Name, who: c.Name, listed: c.Name != "", agent: m.Agent, inc: m.Inc, method: method}
	if !id.listed {
		id.name, id.who = fmt.Sprintf("%x", m.Agent[:4]), h.source
	}
	switch {
	case m.Agent == n.cfg.Agent:
		if m.Inc != n.cfg.Incarnation {
			n.mu.Lock()
			n.duplicate(&id, h.addr, &identity{name: n.cfg.Name, agent: n.cfg.Agent}, "this daemon's own address").Seen++
			n.mu.Unlock()
		}
		return id, fmt.Errorf("the peer is this agent itself, or another daemon with its agent id %x: %w", m.Agent, wire.CodeAuth)
	case m.Agent == ([16]byte{}) || m.Inc == 0:
		return id, fmt.Errorf("agent or incarnation is zero: %w", wire.CodeAuth)
	case c.Agent != ([16]byte{}) && c.Agent != m.Agent:
		return id, fmt.Errorf("%s is agent %x, not %x: %w", c.Name, m.Agent, c.Agent, wire.CodeAuth)
	}
	if o := n.roster.Load().pinned[m.Agent]; o != nil && o.cfg.Name != c.Name {
		return id, fmt.Errorf("agent id %x belongs to %s (link.peer.agent), not to %s: %w", m.Agent, o.cfg.Name, id.name, wire.CodeAuth)
	}
	names, key := c.Tenants, "link.peer.tenants"
	if !id.listed {
		key = "security.tenants"
	}
	proved := names
	if method == proto.AuthCert {
		proved = tenantsOf(leaf(h.conn.(*tls.Conn)))
	}
	switch names = intersect(proved, names); {
	case len(proved) == 0 && method == proto.AuthCert:
		return id, fmt.Errorf("%s proved no tenant: its certificate names none as %s://%s/NAME: %w", id.name, tenantScheme, tenantHost, wire.CodeAuth)
	case len(names) == 0 && len(c.Tenants) == 0:
		return id, fmt.Errorf("%s may have no tenant: %s is empty: %w", id.name, key, wire.CodeAuth)
	case len(names) == 0:
		return id, fmt.Errorf("%s proved tenant %s, and %s has none of them: %w", id.name, someOf(proved), key, wire.CodeAuth)
	}
	id.tenants = core.Tenants{Names: names}
	return id, nil
}

// someOf lists the first of some names that a peer gave, for people.
func someOf(names []string) string {
	const most = 3
	var out []string
	for _, name := range names[:min(len(names), most)] {
		out = append(out, stranger.Quote(name))
	}
	if more := len(names) - len(out); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(out, ", "), more)
	}
	return strings.Join(out, ", ")
}

func intersect(a, b []string) []string {
	var both []string
	for _, s := range a {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}

func leaf(c *tls.Conn) *x509.Certificate { return c.ConnectionState().PeerCertificates[0] }

// certName is the name of a certificate's agent: its first DNS name.
func certName(c *x509.Certificate) string {
	if len(c.DNSNames) > 0 {
		return c.DNSNames[0]
	}
	return ""
}

// tenantsOf are the tenants that the authority of a certificate vouched for.
func tenantsOf(c *x509.Certificate) []string {
	var t []string
	for _, u := range c.URIs {
		if name, ok := tenantOfURI(u); ok {
			t = append(t, name)
		}
	}
	return t
}

func tenantOfURI(u *url.URL) (string, bool) {
	name, ok := strings.CutPrefix(u.Path, "/")
	return name, ok && u.Scheme == tenantScheme && u.Host == tenantHost && name != "" && !strings.Contains(name, "/")
}
