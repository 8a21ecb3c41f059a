package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"meridian/internal/safefile"
)

// backdate makes a new certificate valid for a node whose clock is a little
// behind.
const backdate = 5 * time.Minute

const day = 24 * time.Hour

func newCertCmd(a *app) *cobra.Command {
	return group(a, "cert", "Make the certificates and keys by which peers prove who they are",
		"  mrdn cert ca --dir pki\n  mrdn cert issue --ca pki --name prefill-1 --tenant acme\n  mrdn cert psk", newCertCACmd(a), newCertIssueCmd(a), newCertPSKCmd(a))
}

func newCertCACmd(a *app) *cobra.Command {
	var dir, name string
	var days int
	c := &cobra.Command{
		Use:   "ca",
		Short: "Make a certificate authority",
		Long: `Makes an authority of its own in a folder: ca.pem and ca-key.pem (ECDSA P-256).
Anybody who has ca-key.pem can act as any peer: keep it off the nodes. Existing
files are never overwritten.`,
		Example:     "  mrdn cert ca --dir pki",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: writing},
	}
	c.Flags().StringVar(&dir, "dir", ".", "folder to write to; made if absent")
	c.Flags().StringVar(&name, "name", "Meridian CA", "common name")
	c.Flags().IntVar(&days, "days", 3650, "valid for so many days")
	c.RunE = a.command(func(context.Context, []string) (result, error) {
		if days < 1 {
			return nil, usage("--days %d: it must be at least 1", days)
		}
		t, err := template(name, days)
		if err != nil {
			return nil, err
		}
		t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
		t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		return writePair(dir, "ca.pem", "ca-key.pem", t, t, key, key)
	})
	return c
}

func newCertIssueCmd(a *app) *cobra.Command {
	var caDir, dir, name string
	var tenants, hosts []string
	var ips []net.IP
	var days int
	c := &cobra.Command{
		Use:   "issue",
		Short: "Issue a certificate to one agent",
		Long: `Issues a certificate for a daemon, for both sides of a connection: NAME.pem and
NAME-key.pem. Its first DNS name is the agent's name, by which peers know it;
its URIs meridian://tenant/NAME are the tenants that it proves. Loopback
addresses are included, so that two daemons on one host can try it.`,
		Example:     "  mrdn cert issue --ca pki --name prefill-1 --tenant acme --dir pki\n  mrdn cert issue --ca pki --name decode-1 --tenant acme,globex --ip 10.0.0.7",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: writing},
	}
	c.Flags().StringVar(&caDir, "ca", ".", "folder of ca.pem and ca-key.pem")
	c.Flags().StringVar(&name, "name", "", "the agent's name (agent.name), required")
	c.Flags().StringSliceVar(&tenants, "tenant", nil, "tenants it proves")
	c.Flags().StringSliceVar(&hosts, "host", nil, "further DNS names")
	c.Flags().IPSliceVar(&ips, "ip", nil, "further addresses")
	c.Flags().StringVar(&dir, "dir", ".", "folder to write to; made if absent")
	c.Flags().IntVar(&days, "days", 365, "valid for so many days, at most as long as the authority")
	c.RunE = a.command(func(context.Context, []string) (result, error) {
		switch {
		case name == "":
			return nil, usage("--name: the agent's name is needed, and it names the files")
		case days < 1:
			return nil, usage("--days %d: it must be at least 1", days)
		}
		if p, bad := problemIn(map[string]string{"agent.name": name}); bad {
			return nil, usage("--name: %s", p.Text)
		}
		t, err := template(name, days)
		if err != nil {
			return nil, err
		}
		t.KeyUsage = x509.KeyUsageDigitalSignature
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		t.DNSNames = append([]string{name}, hosts...)
		t.IPAddresses = append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ips...)
		for _, tenant := range tenants {
			if tenant == "" || strings.Contains(tenant, "/") {
				return nil, usage("--tenant %q: a tenant that a certificate proves is not empty and has no slash", tenant)
			}
			if p, bad := problemIn(map[string]string{"security.tenants": tenant}); bad {
				return nil, usage("--tenant: %s", p.Text)
			}
			t.URIs = append(t.URIs, &url.URL{Scheme: "meridian", Host: "tenant", Path: "/" + tenant})
		}
		return issue(caDir, dir, name, t)
	})
	return c
}

func issue(caDir, dir, name string, t *x509.Certificate) (result, error) {
	ca, caKey, err := readAuthority(caDir)
	if err != nil {
		return nil, err
	}
	if time.Now().After(ca.NotAfter) {
		return nil, failed("mrdn cert ca makes an authority", "%s was valid until %s only: no peer takes what it signs",
			filepath.Join(caDir, "ca.pem"), ca.NotAfter.UTC().Format(time.DateOnly))
	}
	if t.NotAfter.After(ca.NotAfter) {
		t.NotAfter = ca.NotAfter
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return writePair(dir, name+".pem", name+"-key.pem", t, ca, key, caKey)
}

func template(name string, days int) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)), // RFC 5280: positive
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(time.Duration(days) * day),
	}, nil
}

func readAuthority(dir string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	const hint = "mrdn cert ca makes an authority"
	var blocks [2]*pem.Block
	for i, name := range []string{"ca.pem", "ca-key.pem"} {
		b, err := safefile.Read(filepath.Join(dir, name), 1<<20)
		if err != nil {
			return nil, nil, failed(hint, "%w", err)
		}
		if blocks[i], _ = pem.Decode(b); blocks[i] == nil {
			return nil, nil, failed(hint, "%s: no PEM block", filepath.Join(dir, name))
		}
	}
	ca, err := x509.ParseCertificate(blocks[0].Bytes)
	if err != nil {
		return nil, nil, failed(hint, "ca.pem: %w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(blocks[1].Bytes)
	if err != nil {
		return nil, nil, failed(hint, "ca-key.pem: %w", err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || !ec.PublicKey.Equal(ca.PublicKey) {
		return nil, nil, failed(hint, "ca-key.pem is not the ECDSA key of ca.pem")
	}
	return ca, ec, nil
}

// writePair signs t and writes certificate and key; the key first, so that a
// certificate never lies there without one.
func writePair(dir, certName, keyName string, t, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (result, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	pk, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	r := certResult{
		Cert: filepath.Join(dir, certName), Key: filepath.Join(dir, keyName), Name: t.Subject.CommonName,
		Tenants: []string{}, NotAfter: t.NotAfter.UTC().Truncate(time.Second),
	}
	for _, u := range t.URIs {
		r.Tenants = append(r.Tenants, u.Path[1:])
	}
	if err := writeNew(r.Key, "PRIVATE KEY", pk, 0o600); err != nil {
		return nil, err
	}
	if err := writeNew(r.Cert, "CERTIFICATE", der, 0o644); err != nil {
		return nil, errors.Join(err, os.Remove(r.Key))
	}
	return r, nil
}

func writeNew(path, kind string, der []byte, mode fs.FileMode) error {
	err := safefile.Create(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
	if errors.Is(err, fs.ErrExist) {
		return failed("move it away, or write to another --dir", "%s is there already", path)
	}
	return err
}

type certResult struct {
	Cert     string    `json:"cert"`
	Key      string    `json:"key"`
	Name     string    `json:"name"`
	Tenants  []string  `json:"tenants"`
	NotAfter time.Time `json:"not_after"`
}

func (r certResult) grid(bool) grid {
	g := grid{rows: [][]string{{"certificate", r.Cert}, {"key", r.Key}, {"name", r.Name}}}
	for _, t := range r.Tenants {
		g.rows = append(g.rows, []string{"tenant", t})
	}
	g.rows = append(g.rows, []string{"valid until", fmt.Sprintf("%s (%d days)", r.NotAfter.Format(time.DateOnly), int(time.Until(r.NotAfter)/day))})
	return g
}
