package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// handshake lets a server and a client of the two certificates prove
// themselves to each other, as two agents do.
func handshake(t *testing.T, dir, server, client string) {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("ca.pem has no certificate")
	}
	load := func(name string) tls.Certificate {
		c, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	s := tls.Server(a, &tls.Config{Certificates: []tls.Certificate{load(server)}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13})
	c := tls.Client(b, &tls.Config{Certificates: []tls.Certificate{load(client)}, RootCAs: pool, ServerName: server, MinVersion: tls.VersionTLS13})
	done := make(chan error, 1)
	go func() { done <- s.Handshake() }()
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got := c.ConnectionState().PeerCertificates[0]
	if got.DNSNames[0] != server || len(got.URIs) != 2 || got.URIs[0].String() != "meridian://tenant/acme" {
		t.Errorf("names %v, URIs %v", got.DNSNames, got.URIs)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		if err := got.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

// self writes a certificate that signs itself, NAME.pem and NAME-key.pem.
func self(t *testing.T, name string, from, to time.Time) {
	t.Helper()
	c, err := template(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	c.NotBefore, c.NotAfter = from, to
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err == nil {
		_, err = writePair(".", name+".pem", name+"-key.pem", c, c, key, key)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestConfigCheckNamesTheCertificateThatDoesNotFit(t *testing.T) {
	s := newShell(t, nil)
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	self(t, "good", now.Add(-time.Hour), now.Add(time.Hour))
	self(t, "other", now.Add(-time.Hour), now.Add(time.Hour))
	self(t, "old", now.Add(-2*time.Hour), now.Add(-time.Hour))
	self(t, "early", now.Add(time.Hour), now.Add(2*time.Hour))
	write(t, "garbled.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")})))
	write(t, "text.pem", "no PEM at all\n")
	for name, c := range map[string]struct{ cert, key, ca, want string }{
		"all is well":             {"good.pem", "good-key.pem", "other.pem", ""},
		"a key of another":        {"good.pem", "other-key.pem", "good.pem", "link.toml:3: link.tls.key: other-key.pem is not the private key of the certificate in good.pem"},
		"a key that is none":      {"good.pem", "text.pem", "good.pem", "link.toml:3: link.tls.key: text.pem is not the private key of the certificate in good.pem"},
		"a certificate of before": {"old.pem", "old-key.pem", "good.pem", "link.toml:2: link.tls.cert: old.pem: valid from"},
		"one of tomorrow":         {"early.pem", "early-key.pem", "good.pem", "link.toml:2: link.tls.cert: early.pem: valid from"},
		"a key as certificate":    {"good-key.pem", "good-key.pem", "good.pem", "link.toml:2: link.tls.cert: good-key.pem: no certificate in it"},
		"a garbled one":           {"garbled.pem", "good-key.pem", "good.pem", "link.toml:2: link.tls.cert: garbled.pem: certificate 1 in it cannot be read"},
		"no authority":            {"good.pem", "good-key.pem", "text.pem", "link.toml:4: link.tls.ca: text.pem: no certificate in it"},
		"a garbled authority":     {"good.pem", "good-key.pem", "garbled.pem", "link.toml:4: link.tls.ca: garbled.pem: certificate 1 in it cannot be read"},
		"an authority of before":  {"good.pem", "good-key.pem", "old.pem", "link.toml:4: link.tls.ca: old.pem: valid from"},
	} {
		write(t, "link.toml", "[link.tls]\ncert = \""+c.cert+"\"\nkey = \""+c.key+"\"\nca = \""+c.ca+"\"\n")
		t.Log(name)
		if c.want == "" {
			expect(t, s.run(t, "config", "check", "link.toml"), exitOK, "ok  link.toml", "")
			continue
		}
		got := s.run(t, "config", "check", "link.toml")
		got.out = strings.ReplaceAll(got.out, dir+"/", "")
		expect(t, got, exitFailed, c.want, "1 problem in")
	}
}
