package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/wire"
)

// moves puts blocks on one side and fetches them on the other, both ways.
func (p pair) moves(t *testing.T) {
	t.Helper()
	f, b := p.front.engine("acme"), p.back.engine("acme")
	const size = 5000
	keys := f.keysOf(0, 40)
	b.put(wire.OutputCritical, 0, size, keys[:20]...)
	f.put(wire.OutputCritical, 0, size, keys[20:]...)
	f.fetch(size, keys...)
	b.fetch(size, keys...)
	have, err := f.Has(t.Context(), f.ns, keys, false)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range have {
		if h.Err != nil || !h.Here {
			t.Errorf("block %d is not published here after the fetch: %+v", i, h)
		}
	}
	p.front.settled()
	p.back.settled()
}

func TestBlocksMoveBetweenTwoDaemons(t *testing.T) {
	for _, transport := range []string{"tcp", "unix", "tls"} {
		t.Run(transport, func(t *testing.T) {
			listen := transport + "://127.0.0.1:0"
			var change []func(*config.Config)
			switch transport {
			case "unix":
				listen = "unix://" + filepath.Join(shortDir(t), "link.sock")
			case "tls":
				ca := newAuthority(t)
				change = append(change, func(c *config.Config) { c.Link.TLS = ca.issue(t, c.Agent.Name, "acme") })
			}
			p := startPair(t, listen, nil, change...)
			p.moves(t)
			for _, row := range []*adminpb.Peer{p.front.peer("back"), p.back.peer("front")} {
				if row.State != adminpb.PeerState_PEER_STATE_READY || row.Transport != transport {
					t.Errorf("peer %s: %s over %q, want ready over %s", row.Name, row.State, row.Transport, transport)
				}
				if !slices.Equal(row.Tenants, []string{"acme"}) || row.Lanes == 0 || row.Incarnation == 0 {
					t.Errorf("peer %+v", row)
				}
			}
			if row := p.back.peer("front"); row.Incarnation != p.front.id.incarnation {
				t.Errorf("incarnation %d, want %d", row.Incarnation, p.front.id.incarnation)
			}
			for _, m := range p.front.moved.list() {
				if m.Transport != transport {
					t.Errorf("moved by %s", m.Transport)
				}
			}
		})
	}
}

// A peer whose certificate proves only a tenant that it may not have.
func TestAnotherTenantsCertificateIsRefused(t *testing.T) {
	ca := newAuthority(t)
	back := startNode(t, testConfig(t, "back", listenOn("tls://127.0.0.1:0"), withPeer("front", "", "acme"),
		func(c *config.Config) { c.Link.TLS = ca.issue(t, "back", "acme") }))
	front := startNode(t, testConfig(t, "front", withPeer("back", back.Ports()["link"][0], "acme"),
		func(c *config.Config) { c.Link.TLS = ca.issue(t, "front", "zeta") }))
	var row *adminpb.Peer
	eventually(t, "the peer is refused", func() bool {
		row = front.peer("back")
		return row.State == adminpb.PeerState_PEER_STATE_REFUSED
	})
	if wire.Code(row.ReasonCode) != wire.CodeAuth || row.Reason == "" {
		t.Errorf("refused with %s (%q), want AUTH and a reason", wire.Code(row.ReasonCode), row.Reason)
	}
	eventually(t, "the refusal is counted", func() bool {
		return back.samples()[`meridian_refusals_total{reason="AUTH"}`] > 0
	})
}

// Tenant zeta is nobody that the two have in common: its blocks are unknown at the
// peer, and its keys are not even asked for.
func TestAnotherTenantsBlocksAreUnknown(t *testing.T) {
	p := startPair(t, loopback, nil)
	mine, theirs := p.front.engine("zeta"), p.back.engine("zeta")
	keys := theirs.keysOf(0, 3)
	theirs.put(wire.OutputCritical, 0, 100, keys...)
	before := p.front.varz().Link.RequestsOut
	for _, c := range codes(mine.get(client.AcquireOptions{Fetch: true}, 100, keys...)) {
		if c != wire.CodeAbsent {
			t.Errorf("another tenant's block: %s, want ABSENT", c)
		}
	}
	for _, ns := range p.back.peer("front").Namespaces {
		if ns == mine.m.Namespace().String() {
			t.Error("the peer was told of another tenant's namespace")
		}
	}
	// The self-test may still ask; a namespace that was opened would show above.
	_ = before
	stranger := manifest("nobody")
	_, err := p.front.dial(client.Options{}).Open(t.Context(), stranger)
	want(t, err, wire.CodeNSUnknown)
}

func TestGeometryMismatchNamesFieldAndBothValues(t *testing.T) {
	p := startPair(t, loopback, nil)
	b := p.back.engine("acme")
	b.put(wire.OutputCritical, 0, 100, b.keysOf(0, 1)...)
	other := manifest("acme")
	other.BlockTokens = 32
	e := p.front.dial(client.Options{})
	ns, err := e.Open(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	f := &space{Engine: e, n: p.front, m: other, ns: ns}
	got := f.get(client.AcquireOptions{Fetch: true}, 100, f.keysOf(0, 1)...)
	if codes(got)[0] != wire.CodeGeometry {
		t.Errorf("fetch in a namespace that contradicts the peer's: %v, want GEOMETRY", got[0])
	}
	found := false
	for _, r := range p.front.node.Peers() {
		for _, n := range r.Namespaces {
			if n.NS == other.Namespace() {
				found = n.Code == wire.CodeGeometry && strings.Contains(n.Text, "block_tokens") && strings.Contains(n.Text, "16") && strings.Contains(n.Text, "32")
				if !found {
					t.Errorf("namespace of the peer: %s %q", n.Code, n.Text)
				}
			}
		}
	}
	if !found {
		t.Error("nobody was told which field differs")
	}
	// The same between two engines of one daemon.
	_, err = p.back.dial(client.Options{}).Open(t.Context(), other)
	want(t, err, wire.CodeGeometry)
	if text := err.Error(); !strings.Contains(text, "block_tokens") || !strings.Contains(text, "16") || !strings.Contains(text, "32") {
		t.Errorf("%q does not name the field and both values", text)
	}
}

// authority issues certificates of a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca := &authority{dir: t.TempDir()}
	tmpl := certTemplate("authority")
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
	der, key := ca.sign(t, tmpl, tmpl, nil)
	var err error
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.key = key
	writePEM(t, filepath.Join(ca.dir, "ca.pem"), "CERTIFICATE", der)
	return ca
}

func certTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

// sign makes a key and a certificate; by nil is a self-signed one.
func (ca *authority) sign(t *testing.T, tmpl, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

// issue writes a certificate for a daemon: its name as DNS name, its tenants as
// URIs.
func (ca *authority) issue(t *testing.T, name string, tenants ...string) config.TLS {
	t.Helper()
	tmpl := certTemplate(name)
	tmpl.DNSNames = []string{name}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, tenant := range tenants {
		tmpl.URIs = append(tmpl.URIs, &url.URL{Scheme: "meridian", Host: "tenant", Path: "/" + tenant})
	}
	der, key := ca.sign(t, tmpl, ca.cert, ca.key)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	out := config.TLS{Cert: filepath.Join(ca.dir, name+".pem"), Key: filepath.Join(ca.dir, name+"-key.pem"), CA: filepath.Join(ca.dir, "ca.pem")}
	writePEM(t, out.Cert, "CERTIFICATE", der)
	writePEM(t, out.Key, "PRIVATE KEY", raw)
	return out
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
