package connshare

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// places lets n connections in.
type places struct {
	mu   sync.Mutex
	left int
}

func (p *places) take(net.Addr) (func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return nil, errors.New("source 127.0.0.1 may have 1 connection")
	}
	p.left--
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.left++
	}, nil
}

func serve(t *testing.T, p *places) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "hello")
	})}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(Listen(ln, p.take)) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
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

// Who is refused reads why, although it has sent a request that nobody read; and a
// place that was given back is taken again.
func TestARefusedConnectionIsToldWhy(t *testing.T) {
	p := &places{left: 1}
	url := serve(t, p)
	silent, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	// The place is taken in the order of connections.
	status, body := post(t, url, strings.Repeat("x", 8<<10))
	if status != http.StatusServiceUnavailable || body != "source 127.0.0.1 may have 1 connection\n" {
		t.Errorf("%d %q", status, body)
	}
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	for status != http.StatusOK && t.Context().Err() == nil { // until the server has seen the end
		status, _ = post(t, url, "")
	}
}

// Those that are refused and never read nor close hold up nobody, and no more of them
// are served than there are places for refusals.
func TestRefusalsAreBoundedAndHoldUpNobody(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &places{}
	l := Listen(ln, p.take)
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	var d net.Dialer
	for range 4 * maxRefusals {
		c, err := d.DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	if n := len(l.refusals); n > maxRefusals {
		t.Errorf("%d refusals at a time", n)
	}
	if err := l.Close(); err != nil { // returns although no refused side has gone
		t.Error(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if len(l.told) != 0 {
		t.Errorf("%d connections are kept", len(l.told))
	}
}

func TestAPlaceIsGivenBackOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &places{left: 1}
	l := Listen(ln, p.take)
	defer func() { _ = l.Close() }()
	far, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Close(), c.Close()
	if p.left != 1 {
		t.Errorf("%d places after one connection", p.left)
	}
}
