package agent

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// net/http reads what is left of a body before it answers.
func TestABodyThatNeverEndsHoldsNoConnectionOfTheOperatorsPages(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	n.ready(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(n.Ports()["http"][0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("the connection does not end: %v", err)
	}
}

// A name that a web page lets resolve to this machine shows in Host, a request of
// a web page in Origin.
func TestTheOperatorsPagesAreRefusedToOtherHostsAndToWebPages(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	n.ready(t)
	ask := func(path, host, origin string) (int, string, http.Header) {
		r, err := http.NewRequest(http.MethodGet, n.Ports()["http"][0]+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b), resp.Header
	}
	for _, path := range []string{"/varz", "/metrics", "/healthz", "/readyz", "/", "/nowhere"} {
		for _, bad := range []struct{ host, origin string }{
			{"evil.example", ""}, {"evil.example:80", "http://evil.example"}, {"", "http://evil.example"}, {"", "null"}, {"127.0.0.1.evil.example", ""},
		} {
			if code, body, h := ask(path, bad.host, bad.origin); code != http.StatusForbidden || h.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s for host %q, origin %q: %d %.100s", path, bad.host, bad.origin, code, body)
			}
		}
	}
	for _, path := range []string{"/varz", "/metrics", "/healthz", "/readyz"} {
		for _, host := range []string{"", "localhost", "localhost:9090", "[::1]:80"} {
			if code, body, _ := ask(path, host, ""); code != http.StatusOK {
				t.Errorf("%s for host %q: %d %.100s", path, host, code, body)
			}
		}
	}
}
