package link

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"meridian/adapters/link/internal/core"
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

// entry finds the peer's entry in the allow list: by certificate name, by the
// name that it gave, or by its pinned agent.
func (n *Node) entry(via string, conn net.Conn, h *proto.Hello) (PeerConfig, bool) {
	if via == viaTLS {
		name := certName(conn.(*tls.Conn))
		return n.byName(name)
	}
	if v, ok := h.Find(proto.AuthName); ok {
		if p, ok := n.byName(string(v)); ok {
			return p, true
		}
	}
	for _, p := range n.cfg.Peers {
		if p.Agent != ([16]byte{}) && p.Agent == h.Agent {
			return p, true
		}
	}
	return PeerConfig{}, false
}

func (n *Node) byName(name string) (PeerConfig, bool) {
	for _, p := range n.cfg.Peers {
		if p.Name == name && name != "" {
			return p, true
		}
	}
	return PeerConfig{}, false
}

func (n *Node) pskOf(p PeerConfig) []byte {
	if len(p.PSK) > 0 {
		return p.PSK
	}
	return n.cfg.PSK
}

// identify makes an identity of a HELLO whose proof was right.
func (n *Node) identify(via string, conn net.Conn, h *proto.Hello, p PeerConfig, listed bool, method uint16) (identity, error) {
	id := identity{name: p.Name, agent: h.Agent, inc: h.Inc, method: method}
	switch {
	case h.Agent == n.cfg.Agent:
		return id, fmt.Errorf("the peer is this agent itself: %w", wire.CodeAuth)
	case h.Agent == ([16]byte{}) || h.Inc == 0:
		return id, fmt.Errorf("agent or incarnation is zero: %w", wire.CodeAuth)
	case listed && p.Agent != ([16]byte{}) && p.Agent != h.Agent:
		return id, fmt.Errorf("%s is agent %x, not %x: %w", p.Name, h.Agent, p.Agent, wire.CodeAuth)
	case !listed && (method == proto.AuthCert || method == proto.AuthPSK && len(n.cfg.Peers) > 0):
		return id, fmt.Errorf("the peer is not on the allow list: %w", wire.CodeAuth)
	}
	if !listed {
		id.name = fmt.Sprintf("%x", h.Agent[:4])
	}
	id.tenants = n.tenantsOf(p, listed, method)
	if method == proto.AuthCert {
		id.tenants = core.Tenants{Names: intersect(certTenants(conn.(*tls.Conn)), p.Tenants)}
	}
	if !id.tenants.All && len(id.tenants.Names) == 0 {
		return id, fmt.Errorf("%s proved no tenant that it may have: %w", id.name, wire.CodeAuth)
	}
	return id, nil
}

// tenantsOf is what the configuration gives a peer. Without proof, and on a Unix
// socket of the daemon's own user, an empty list means all.
func (n *Node) tenantsOf(p PeerConfig, listed bool, method uint16) core.Tenants {
	names := n.cfg.Tenants
	if listed && len(p.Tenants) > 0 {
		names = p.Tenants
	}
	trusted := method == proto.AuthNone || method == proto.AuthPeer
	return core.Tenants{All: trusted && len(names) == 0, Names: names}
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

// certName is the peer's name: the first DNS name of its certificate.
func certName(c *tls.Conn) string {
	if names := leaf(c).DNSNames; len(names) > 0 {
		return names[0]
	}
	return ""
}

// certTenants are the tenants that the authority vouched for.
func certTenants(c *tls.Conn) []string {
	var t []string
	for _, u := range leaf(c).URIs {
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

// checkUID reads who is at the other end of a Unix socket.
func (n *Node) checkUID(c net.Conn) error {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("no credentials on this connection: %w", wire.CodeAuth)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return fmt.Errorf("peer credentials: %w: %w", err, wire.CodeAuth)
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); errors.Join(err, cerr) != nil {
		return fmt.Errorf("peer credentials: %w: %w", errors.Join(err, cerr), wire.CodeAuth)
	}
	if cred.Uid == uint32(os.Getuid()) || slices.Contains(n.cfg.UIDs, cred.Uid) {
		return nil
	}
	return fmt.Errorf("user %d may not connect: %w", cred.Uid, wire.CodeAuth)
}
