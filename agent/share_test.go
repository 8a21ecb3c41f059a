package agent

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"meridian/blocks/quota"
	"meridian/internal/connshare"
)

// pageConn dials addr from an address of this host.
func pageConn(t *testing.T, addr, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func askPage(t *testing.T, c net.Conn, addr string) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", addr); err != nil {
		t.Fatal(err)
	}
}

func pageAnswer(t *testing.T, c net.Conn) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// One source has its share of the connections to the pages: where handlers run for all
// of them, more are told which key says so, and another source is served all the same.
func TestTheConnectionsOfThePagesAreShared(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "[quota]\nsource_http_connections = 3\nhttp_connections = 4\n")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	running, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		running <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "ok\n")
	})}
	connshare.Attach(srv)
	go func() {
		defer close(done)
		_ = srv.Serve(n.share(ln, quota.HTTPConns))
	}()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	addr := ln.Addr().String()
	var served []net.Conn
	serve := func(from string) {
		c := pageConn(t, addr, from)
		askPage(t, c, addr)
		<-running
		served = append(served, c)
	}
	refuse := func(from string, words ...string) {
		t.Helper()
		c := pageConn(t, addr, from)
		askPage(t, c, addr)
		status, body := pageAnswer(t, c)
		for _, word := range words {
			if status != http.StatusServiceUnavailable || !strings.Contains(body, word) {
				t.Errorf("from %s: %d %q, want 503 with %q", from, status, body, word)
			}
		}
	}
	for range 3 {
		serve("127.0.0.1")
	}
	refuse("127.0.0.1", "source 127.0.0.1", "quota.source_http_connections")
	serve("127.0.0.2")
	refuse("127.0.0.3", "quota.http_connections")
	close(release)
	for _, c := range served {
		if status, body := pageAnswer(t, c); status != http.StatusOK || body != "ok\n" {
			t.Errorf("one whose handler ran: %d %q", status, body)
		}
	}
}

// Four sources that say nothing have a share of all places each: a probe is answered.
func TestSilentConnectionsLockNobodyOutOfThePages(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "[quota]\nsource_http_connections = 4\nhttp_connections = 16\n")
	addr := strings.TrimPrefix(n.Ports()["http"][0], "http://")
	for i := range 80 {
		pageConn(t, addr, fmt.Sprintf("127.0.0.%d", 2+i%4))
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		c := pageConn(t, addr, from)
		askPage(t, c, addr)
		if status, body := pageAnswer(t, c); status != http.StatusOK || body != "ok\n" {
			t.Errorf("from %s: %d %q", from, status, body)
		}
	}
}

// A page needs no body: one that is announced and never comes keeps no place.
func TestABodyThatNeverComesKeepsNoPlaceOfThePages(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "[quota]\nsource_http_connections = 1\nhttp_connections = 4\n")
	addr := n.http.ln.Addr().String()
	another := func() int {
		c := pageConn(t, addr, "127.0.0.1")
		defer func() { _ = c.Close() }()
		askPage(t, c, addr)
		status, _ := pageAnswer(t, c)
		return status
	}
	until(t, "a head was read whose body does not come", func() bool { // before, it makes room as a silent one
		slow := pageConn(t, addr, "127.0.0.1")
		if _, err := fmt.Fprintf(slow, "GET /healthz HTTP/1.1\r\nHost: %s\r\nContent-Length: 5\r\n\r\n", addr); err != nil {
			t.Fatal(err)
		}
		return another() == http.StatusServiceUnavailable
	})
	until(t, "another one is served in its place", func() bool { return another() == http.StatusOK })
}
