package peers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"meridian/adapters/link"
)

// writeCertificates makes an authority and a certificate for both sides of TLS,
// good for the length of a run, in dir.
func writeCertificates(dir string) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := certificate(1, "bench")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	if err := writePEM(dir, "ca", ca, ca, caKey, caKey); err != nil {
		return err
	}
	for i, name := range []string{targetName, "tls"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		c := certificate(int64(i)+2, name)
		c.KeyUsage, c.DNSNames, c.IPAddresses = x509.KeyUsageDigitalSignature, []string{name}, []net.IP{net.IPv4(127, 0, 0, 1)}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		c.URIs = []*url.URL{{Scheme: "meridian", Host: "tenant", Path: "/" + tenant}}
		if err := writePEM(dir, name, c, ca, key, caKey); err != nil {
			return err
		}
	}
	return nil
}

func certificate(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func writePEM(dir, name string, c, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem":     {Type: "CERTIFICATE", Bytes: der},
		name + "-key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// loadTLS reads what writeCertificates wrote for a name; the modes without TLS
// share that of the tls one.
func loadTLS(dir, name string) (*link.TLS, error) {
	if name != targetName {
		name = "tls"
	}
	return link.LoadTLS(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem"), filepath.Join(dir, "ca.pem"))
}

func plainTLS(t *link.TLS) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{t.Certificate}, RootCAs: t.CA, ClientCAs: t.CA, ServerName: targetName,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}
}
