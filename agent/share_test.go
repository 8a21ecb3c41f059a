package agent

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// One source has its share of the connections to the pages: more are told which key
// says so, and another source is served all the same.
func TestTheConnectionsOfThePagesAreShared(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "[quota]\nsource_http_connections = 3\nhttp_connections = 4\n")
	addr := strings.TrimPrefix(n.Ports()["http"][0], "http://")
	dial := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn) (status int, body string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/healthz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}).RoundTrip(r)
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
	for range 3 { // that say nothing
		dial("127.0.0.1")
	}
	if status, body := ask(dial("127.0.0.1")); status != http.StatusServiceUnavailable || !strings.Contains(body, "source 127.0.0.1") || !strings.Contains(body, "quota.source_http_connections") {
		t.Errorf("a fourth of one source: %d %q", status, body)
	}
	other := dial("127.0.0.2")
	if status, body := ask(dial("127.0.0.3")); status != http.StatusServiceUnavailable || !strings.Contains(body, "quota.http_connections") {
		t.Errorf("a fifth of all: %d %q", status, body)
	}
	if status, body := ask(other); status != http.StatusOK || body != "ok\n" {
		t.Errorf("another source: %d %q", status, body)
	}
}
