package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
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
