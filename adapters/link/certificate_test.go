package link

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meridian/blocks/quota"
	"meridian/wire"
	proto "meridian/wire/link"
)

// tlsAcceptor lists a and x, which have a tenant each.
func tlsAcceptor(t *testing.T, ca *authority) *side {
	t.Helper()
	return start(t, 2, 20, "tls://127.0.0.1:0", func(c *Config) {
		c.Insecure, c.Name, c.TLS = false, "b", ca.issue("b", "t", "u")
		c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}, {Name: "x", Tenants: []string{"u"}}}
	})
}

// A listed peer that calls itself by another one's name, with that one's agent id,
// is by TLS who its certificate says, and has the tenants of that entry.
func TestACertificateIsOfOneNameOnly(t *testing.T) {
	noLeaks(t)
	ca := newAuthority(t)
	b := tlsAcceptor(t, ca)
	for name, dns := range map[string][]string{"one name": {"x"}, "two names": {"x", "a"}} {
		x := start(t, 1, 10, "", func(c *Config) {
			c.Insecure, c.Name, c.TLS = false, "a", ca.certify(func(cert *x509.Certificate) { cert.DNSNames = dns })
			c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t", "u"}}}
		})
		ready(t, x.Peer("b"))
		ready(t, b.Peer("x"))
		if i := b.Peer("a").info(); i.State != StateConnecting || i.Addr != "" {
			t.Errorf("%s: b says of the other: %+v", name, i)
		}
		if i := b.Peer("x").info(); len(i.Tenants) != 1 || i.Tenants[0] != "u" {
			t.Errorf("%s: its tenants are %v", name, i.Tenants)
		}
		x.stop(t)
		until(t, func() bool { return b.Stats().Lanes == 0 })
	}
}

// certify makes a certificate of x with tenants t and u, but for what bend changes.
func (a *authority) certify(bend func(*x509.Certificate)) *TLS {
	return a.issueAs("x", bend, "t", "u")
}

// Certificates that prove too little, in either direction. Nobody has a session,
// and the acceptor's peer is as before unless the certificate was valid.
func TestACertificateThatProvesTooLittleIsRefused(t *testing.T) {
	ca := newAuthority(t)
	uri := func(scheme, host, path string) *url.URL { return &url.URL{Scheme: scheme, Host: host, Path: path} }
	for name, c := range map[string]struct {
		bend   func(*x509.Certificate)
		text   string // at the dialler that shows it
		proven bool
		serves bool // an acceptor may show it: tenants are the dialler's to prove
	}{
		"no tenant": {func(c *x509.Certificate) { c.URIs = nil }, "no tenant", true, false},
		"tenants of other forms": {func(c *x509.Certificate) {
			c.URIs = []*url.URL{uri("http", "tenant", "/u"), uri("meridian", "tenants", "/u"), uri("meridian", "tenant", "/u/u"), uri("meridian", "tenant", "/")}
		}, "no tenant", true, false},
		"expired":         {func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "expired", false, false},
		"not yet valid":   {func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, "expired", false, false},
		"no name":         {func(c *x509.Certificate) { c.DNSNames = nil }, "allow list", false, false},
		"a server's only": {func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, "tls", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			b := tlsAcceptor(t, ca)
			shown := ca.certify(c.bend)
			x := start(t, 1, 10, "tls://127.0.0.1:0", func(cfg *Config) {
				cfg.Insecure, cfg.Name, cfg.TLS = false, "x", shown
				cfg.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"u"}}}
			})
			refusedAs(t, x.Peer("b"), wire.CodeAuth, "")
			if c.proven {
				until(t, func() bool { return b.Peer("x").info().State == StateRefused })
				if i := b.Peer("x").info(); !strings.Contains(i.Text, c.text) {
					t.Errorf("b says: %s", i.Text)
				}
			} else {
				until(t, func() bool { return len(b.Refusals()) == 1 })
				if r := b.Refusals()[0]; !strings.Contains(r.Text, c.text) {
					t.Errorf("b says: %+v", r)
				}
				if i := b.Peer("x").info(); i.State != StateConnecting {
					t.Errorf("x is %v: %s", i.State, i.Text)
				}
			}
			if !c.serves {
				d := start(t, 3, 30, "", func(cfg *Config) {
					cfg.Insecure, cfg.Name, cfg.TLS = false, "b", ca.issue("b", "u")
					cfg.Peers = []PeerConfig{{Name: "x", Addr: x.addr, Tenants: []string{"u"}}}
				})
				refusedAs(t, d.Peer("x"), wire.CodeAuth, "")
				if d.Stats().Sessions != 0 {
					t.Error("who dialled it has a session")
				}
				d.stop(t)
			}
			if b.Stats().Sessions != 0 {
				t.Error("there is a session")
			}
		})
	}
}

// The dialler finds another listed peer, with a valid certificate, in the place of
// the one that it wants.
func TestAnotherListedPeerInTheAcceptorsPlaceIsRefused(t *testing.T) {
	noLeaks(t)
	ca := newAuthority(t)
	x := start(t, 1, 10, "tls://127.0.0.1:0", func(c *Config) {
		c.Insecure, c.Name, c.TLS = false, "a", ca.issue("x", "t")
		c.Peers = []PeerConfig{{Name: "b", Tenants: []string{"t"}}}
	})
	b := start(t, 2, 20, "", func(c *Config) {
		c.Insecure, c.Name, c.TLS = false, "b", ca.issue("b", "t")
		c.Peers = []PeerConfig{{Name: "a", Addr: x.addr, Tenants: []string{"t"}}, {Name: "x", Tenants: []string{"t"}}}
	})
	refusedAs(t, b.Peer("a"), wire.CodeAuth, "not a")
	if b.Stats().Sessions != 0 {
		t.Error("there is a session")
	}
}

// Connections that never end their TLS handshake are silent ones: they make room
// for one that does.
func TestHandshakesThatNeverEndLockNobodyOut(t *testing.T) {
	noLeaks(t)
	ca := newAuthority(t)
	b := tlsAcceptor(t, ca)
	for range 2 * proto.HalfOpenPerSource {
		c, err := net.Dial("tcp", hostOf(b))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = c.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}) // a ClientHello begins
	}
	a := start(t, 1, 10, "", func(c *Config) {
		c.Insecure, c.Name, c.TLS = false, "a", ca.issue("a", "t")
		c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
	})
	defer hurry(a.Peer("b"))()
	ready(t, a.Peer("b"))
}

// Each stage at which a TLS client can stop: its place is free again once the time
// for HELLO is over.
func TestAHandshakeThatStopsIsEnded(t *testing.T) {
	for name, begin := range map[string]func(c net.Conn, cert *TLS) error{
		"nothing":           func(net.Conn, *TLS) error { return nil },
		"half a record":     func(c net.Conn, _ *TLS) error { _, err := c.Write([]byte{22, 3, 1, 2}); return err },
		"a handshake alone": func(c net.Conn, cert *TLS) error { return tls.Client(c, cert.client("b")).Handshake() },
		"half a HELLO": func(c net.Conn, cert *TLS) error {
			tc := tls.Client(c, cert.client("b"))
			hello := proto.AppendMessage(nil, proto.Frame{Type: proto.TypeHello, Flags: proto.FlagCritical}, greeting("a", proto.AuthCert))
			_, err := tc.Write(hello[:len(hello)/2])
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := newAuthority(t) // its certificates are of the virtual time
				b := start(t, 2, 20, "", func(c *Config) {
					c.Insecure, c.TLS = false, ca.issue("b", "t")
					c.Peers = []PeerConfig{{Name: "a"}}
				})
				here, there := net.Pipe()
				b.take(there, viaTLS)
				began := time.Now()
				if err := begin(here, ca.issue("a", "t")); err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, here) // until b closes it
				if took := time.Since(began); took > proto.HelloTimeout+proto.DrainError {
					t.Errorf("it was ended after %v", took)
				}
				_ = here.Close()
				synctest.Wait()
				if hold, err := b.Node.cfg.Quota.Take(quota.HalfOpen, proto.HalfOpen, quota.Total); err != nil {
					t.Errorf("its place is not free: %v", err)
				} else {
					hold.Give()
				}
				b.stop(t)
			})
		})
	}
}
