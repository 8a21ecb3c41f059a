package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"meridian/adapters/link"
	"meridian/wire"
)

// authority signs certificates of agents.
type authority struct {
	dir   string
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	next  int64
	until time.Time // of what it issues; zero: in an hour
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{dir: dir, key: key, next: 1, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue makes a certificate for name and tenant and returns its [link.tls].
func (a *authority) issue(t *testing.T, name, tenant string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.next++
	until := a.until
	if until.IsZero() {
		until = time.Now().Add(time.Hour)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(a.next), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		URIs:        []*url.URL{{Scheme: "meridian", Host: "tenant", Path: "/" + tenant}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	base := name + "-" + tenant
	a.write(t, base+".pem", "CERTIFICATE", der)
	a.write(t, base+".key", "PRIVATE KEY", pk)
	return fmt.Sprintf("[link.tls]\nca = %q\ncert = %q\nkey = %q\n", filepath.Join(a.dir, "ca.pem"), filepath.Join(a.dir, base+".pem"), filepath.Join(a.dir, base+".key"))
}

func TestTLSCarriesBlocksAndRefusesAnotherTenantsCertificate(t *testing.T) {
	dir := shortDir(t)
	ca := newAuthority(t, dir)
	listen := "[link]\nlisten = [\"tls://127.0.0.1:0\"]\n[[link.peer]]\nname = \"decode\"\ntenants = [\"acme\"]\n"
	prefill := startNode(t, dir, "prefill", listen+ca.issue(t, "prefill", "acme"))
	dial := "[link]\n[[link.peer]]\nname = \"prefill\"\naddress = \"" + prefill.Ports()["link"][0] + "\"\ntenants = [\"acme\"]\n"
	decode := startNode(t, dir, "decode", dial+ca.issue(t, "decode", "acme"))
	decode.ready(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("prompt", 4)
	a.put(t, keys, 128<<10, wire.OutputCritical, 0)
	b.mustFetch(t, keys)
	if p := decode.node.Peers()[0]; p.Transport != "tls" || len(p.Tenants) != 1 || p.Tenants[0] != "acme" {
		t.Errorf("peer %+v, want tls with tenant acme", p)
	}
	if err := decode.Close(); err != nil {
		t.Fatal(err)
	}
	other := startNode(t, shortDir(t), "decode", dial+ca.issue(t, "decode", "globex"))
	until(t, "the other tenant is refused", func() bool {
		p := other.node.Peers()[0]
		return p.State == link.StateRefused && p.Code == wire.CodeAuth
	})
	if errs := other.engine(t).fetch(t, keys[:1]); errs[0] == nil {
		t.Error("a refused peer gives a block")
	}
}
