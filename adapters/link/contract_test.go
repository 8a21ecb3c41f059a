package link

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"testing"
	"time"

	"meridian/fabric"
	"meridian/fabric/fabrictest"
)

// authority issues certificates for a test.
type authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	next int64
}

func newAuthority(tb testing.TB) *authority {
	a := &authority{tb: tb, next: 1}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	t := a.template("authority")
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	a.key = key
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.pool = x509.NewCertPool()
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) template(name string) *x509.Certificate {
	a.next++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

// issue makes a certificate for a peer with some tenants.
func (a *authority) issue(name string, tenants ...string) *TLS {
	return a.issueAs(name, func(*x509.Certificate) {}, tenants...)
}

// issueAs makes one that bend has changed.
func (a *authority) issueAs(name string, bend func(*x509.Certificate), tenants ...string) *TLS {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	t := a.template(name)
	t.DNSNames = []string{name}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, n := range tenants {
		t.URIs = append(t.URIs, &url.URL{Scheme: tenantScheme, Host: tenantHost, Path: "/" + n})
	}
	bend(t)
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	return &TLS{Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, CA: a.pool}
}

// connected is a dialler and an acceptor over a transport, as the contract
// suite wants them.
func connected(t *testing.T, via string) (a, b *side) {
	t.Helper()
	noLeaks(t)
	listen := map[string]string{
		viaTCP: "tcp://127.0.0.1:0", viaTLS: "tls://127.0.0.1:0", viaUnix: "unix://" + t.TempDir() + "/s",
	}[via]
	var ca *authority
	if via == viaTLS {
		ca = newAuthority(t)
	}
	secure := func(c *Config, name, peer string) {
		if via == viaTLS {
			c.Insecure, c.TLS = false, ca.issue(name, "t")
			c.Peers = append(c.Peers, PeerConfig{Name: peer, Tenants: []string{"t"}})
		}
	}
	b = start(t, 2, 20, listen, func(c *Config) { secure(c, "b", "a") })
	a = start(t, 1, 10, "", func(c *Config) {
		secure(c, "a", "b")
		c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
	})
	ready(t, a.Peer("b"))
	return a, b
}

func TestFabricContract(t *testing.T) {
	for _, via := range []string{viaTCP, viaTLS, viaUnix} {
		t.Run(via, func(t *testing.T) {
			fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
				a, b := connected(t, via)
				ns, err := a.ns.Add(testManifest("t"))
				if err != nil {
					t.Fatal(err)
				}
				if got := a.Peers()[0]; got.Transport != via || got.State != StateReady {
					t.Errorf("peer says %+v, want transport %s", got, via)
				}
				return fabrictest.Harness{
					Fabric: a.Peer("b"),
					NS:     ns,
					Damage: func(it fabric.Item) error { b.store.Damage(it.NS, it.Key); return nil },
				}
			})
		})
	}
}
