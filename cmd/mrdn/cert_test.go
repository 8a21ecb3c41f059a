package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
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
		"its own as authority":    {"good.pem", "good-key.pem", "good.pem", "link.toml:4: link.tls.ca: good.pem: only the certificate of this agent is in it"},
	} {
		write(t, "link.toml", "[link.tls]\ncert = \""+c.cert+"\"\nkey = \""+c.key+"\"\nca = \""+c.ca+"\"\n")
		t.Log(name)
		if c.want == "" {
			expect(t, s.run(t, "config", "check", "link.toml"), exitOK, "ok    link.toml", "")
			continue
		}
		got := s.run(t, "config", "check", "link.toml")
		got.out = strings.ReplaceAll(got.out, dir+"/", "")
		expect(t, got, exitFailed, c.want, "1 problem in")
	}
}

func TestConfigCheckWarnsOfACertificateThatPeersMayRefuse(t *testing.T) {
	s := newShell(t, nil)
	self(t, "other", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	for _, args := range [][]string{{"ca", "--dir", "."}, {"issue", "--name", "a", "--tenant", "acme"}, {"issue", "--name", "bare"}} {
		expect(t, s.run(t, append([]string{"cert"}, args...)...), exitOK, "", "")
	}
	for _, c := range []struct {
		cert, ca string
		want     []string
	}{
		{"a", "ca", nil},
		{"bare", "ca", []string{`"bare.pem" is the certificate of "bare", by which peers know this agent, and agent.name is "a"`, `"bare.pem" proves no tenant`}},
		{"a", "other", []string{"is not signed by the authority in link.tls.ca"}},
	} {
		write(t, "link.toml", "[agent]\nname = \"a\"\n[link.tls]\ncert = \""+c.cert+".pem\"\nkey = \""+c.cert+"-key.pem\"\nca = \""+c.ca+".pem\"\n[[link.peer]]\nname = \"b\"\ntenants = [\"acme\"]\n")
		got := s.run(t, "config", "check", "link.toml")
		expect(t, got, exitOK, "ok", "")
		if n := strings.Count(got.out, "WARN  link.toml:4: link.tls.cert: "); n != len(c.want) {
			t.Errorf("%s of %s: %d warnings, want %d:\n%s", c.cert, c.ca, n, len(c.want), got.out)
		}
		for _, want := range c.want {
			if !strings.Contains(got.out, want) {
				t.Errorf("%s of %s: no warning has %q:\n%s", c.cert, c.ca, want, got.out)
			}
		}
	}
}

func TestNoCertificateIsIssuedThatNoPeerWouldTake(t *testing.T) {
	s := newShell(t, nil)
	expect(t, s.run(t, "cert", "ca"), exitOK, "", "")
	self(t, "old", time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	for from, to := range map[string]string{"old.pem": "old/ca.pem", "old-key.pem": "old/ca-key.pem"} {
		if err := errors.Join(os.MkdirAll("old", 0o700), os.Rename(from, to)); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, s.run(t, "cert", "issue", "--name", "two words"), exitUsage, "", `--name: "two words" must be 1 to 63 letters`)
	expect(t, s.run(t, "cert", "issue", "--name", "../a"), exitUsage, "", "--name: ")
	expect(t, s.run(t, "cert", "issue", "--name", "a", "--tenant", "acme/eu"), exitUsage, "", `--tenant "acme/eu"`)
	expect(t, s.run(t, "cert", "issue", "--name", "a", "--tenant", "a\x01"), exitUsage, "", "--tenant: ")
	expect(t, s.run(t, "cert", "issue", "--name", "a", "--ca", "old"), exitFailed, "", "old/ca.pem was valid until")
	if _, err := os.Stat("a.pem"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a certificate is there: %v", err)
	}
}
