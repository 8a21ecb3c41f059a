package connshare

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/internal/testbed"
)

// places lets connections in: all of them, and each source's.
type places struct {
	mu       sync.Mutex
	all, own int // limits
	in       int
	of       map[string]int
	refused  int
}

func (p *places) take(from net.Addr) (Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	source, _, _ := net.SplitHostPort(from.String())
	place := Place{Source: source}
	switch {
	case p.own > 0 && p.of[source] >= p.own:
		p.refused++
		place.Own = true
		return place, fmt.Errorf("source %s may have %d", source, p.own)
	case p.in >= p.all:
		p.refused++
		return place, fmt.Errorf("all may have %d", p.all)
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.of[source]++
	p.in++
	place.Give = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.of[source]--
		p.in--
	}
	return place, nil
}

func (p *places) used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in
}

// site is a server with shares. A request for /work runs until release is closed.
type site struct {
	addr    string
	l       *Listener
	running chan struct{} // one for each /work that has begun
	release chan struct{}
}

func serve(t *testing.T, p *places) *site {
	t.Helper()
	l := listen(t, p)
	s := &site{addr: l.Addr().String(), l: l, running: make(chan struct{}, 64), release: make(chan struct{})}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/work" {
			s.running <- struct{}{}
			<-s.release
		}
		_, _ = io.WriteString(w, "hello")
	})}
	Attach(srv)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

func listen(t *testing.T, p *places) *Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return Listen(ln, p.take)
}

const (
	ask  = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	work = "GET /work HTTP/1.1\r\nHost: a\r\n\r\n"
)

// working is a connection of which the handler runs.
func (s *site) working(t *testing.T, from string) guest {
	t.Helper()
	g := dial(t, s.addr, from)
	g.say(work)
	<-s.running
	return g
}

// guest is a client's connection.
type guest struct {
	*testing.T
	net.Conn
}

func dial(t *testing.T, addr, from string) guest {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return guest{t, c}
}

func (g guest) say(text string) {
	g.Helper()
	if _, err := io.WriteString(g.Conn, text); err != nil {
		g.Fatal(err)
	}
}

// hear is the next answer.
func (g guest) hear() (status int, body string) {
	g.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(g.Conn), nil)
	if err != nil {
		g.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (g guest) want(status int, body string) {
	g.Helper()
	if s, b := g.hear(); s != status || b != body {
		g.Errorf("%d %q, want %d %q", s, b, status, body)
	}
}

// cut waits until the server has closed the connection.
func (g guest) cut() {
	g.Helper()
	if n, err := g.Read(make([]byte, 1)); n > 0 || err == nil {
		g.Error("the server said something")
	}
}

// Connections are accepted in the order in which they were made: one that has come is in
// front of all that come later.

func TestSilentConnectionsLockNobodyOut(t *testing.T) {
	p := &places{all: 8, own: 4}
	s := serve(t, p)
	for i := range 80 {
		g := dial(t, s.addr, fmt.Sprintf("127.0.0.%d", 2+i%4))
		if i%2 == 0 {
			g.say("GET / HT") // no whole head either
		}
	}
	for range 3 {
		good := dial(t, s.addr, "127.0.0.1")
		good.say(ask)
		good.want(http.StatusOK, "hello")
	}
	if n := p.used(); n > 8 {
		t.Errorf("%d have a place", n)
	}
}

func TestAHandlerThatRunsIsNeverCut(t *testing.T) {
	s := serve(t, &places{all: 3, own: 2})
	working := []guest{s.working(t, "127.0.0.1"), s.working(t, "127.0.0.1"), s.working(t, "127.0.0.2")}
	for range 3 {
		for from, why := range map[string]string{"127.0.0.1": "source 127.0.0.1 may have 2\n", "127.0.0.2": "all may have 3\n", "127.0.0.3": "all may have 3\n"} {
			g := dial(t, s.addr, from)
			g.say(ask)
			g.want(http.StatusServiceUnavailable, why)
		}
	}
	close(s.release)
	for _, g := range working {
		g.want(http.StatusOK, "hello")
	}
}

func TestOneThatHasItsShareTakesThePlaceOfItsOwn(t *testing.T) {
	p := &places{all: 4, own: 2}
	s := serve(t, p)
	other, first, second := dial(t, s.addr, "127.0.0.2"), dial(t, s.addr, "127.0.0.1"), dial(t, s.addr, "127.0.0.1")
	third := dial(t, s.addr, "127.0.0.1")
	first.cut()
	for _, g := range []guest{other, second, third} {
		g.say(ask)
		g.want(http.StatusOK, "hello")
	}
}

// With all places taken, that source makes room which has most: its silent one first, and
// then one that has been answered and asks nothing.
func TestTheSourceThatHasMostMakesRoomItsSilentOneFirst(t *testing.T) {
	s := serve(t, &places{all: 3})
	other, idle, silent := dial(t, s.addr, "127.0.0.2"), dial(t, s.addr, "127.0.0.1"), dial(t, s.addr, "127.0.0.1")
	idle.say(ask)
	idle.want(http.StatusOK, "hello")
	newcomer := dial(t, s.addr, "127.0.0.3")
	silent.cut()
	for _, g := range []guest{other, idle, newcomer} {
		g.say(ask)
		g.want(http.StatusOK, "hello")
	}
}

func TestAnIdleConnectionMakesRoom(t *testing.T) {
	s := serve(t, &places{all: 1})
	idle := dial(t, s.addr, "127.0.0.1")
	idle.say(ask)
	idle.want(http.StatusOK, "hello")
	testbed.Until(t, "the server knows that it is idle", func() bool {
		g := dial(t, s.addr, "127.0.0.2")
		g.say(ask)
		status, _ := g.hear()
		return status == http.StatusOK
	})
	idle.cut()
}

// Who is refused reads why, although it has sent a request that nobody read; and a
// place that was given back is taken again.
func TestARefusedConnectionIsToldWhy(t *testing.T) {
	p := &places{all: 1}
	s := serve(t, p)
	working := s.working(t, "127.0.0.1")
	g := dial(t, s.addr, "127.0.0.1")
	g.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8192\r\n\r\n" + strings.Repeat("x", 8<<10))
	g.want(http.StatusServiceUnavailable, "all may have 1\n")
	close(s.release)
	working.want(http.StatusOK, "hello")
	_ = working.Close()
	testbed.Until(t, "the place is given back", func() bool { return p.used() == 0 })
	g = dial(t, s.addr, "127.0.0.1")
	g.say(ask)
	g.want(http.StatusOK, "hello")
}

// Neither those that are refused and say nothing keep a refusal from others, nor those
// that were told and stay.
func TestSilentRefusedConnectionsHideNoReason(t *testing.T) {
	s := serve(t, &places{all: 1})
	s.working(t, "127.0.0.1")
	defer close(s.release)
	for i := range 4 * maxRefusals {
		dial(t, s.addr, fmt.Sprintf("127.0.0.%d", 1+i%4))
	}
	for range 2 * maxRefusals {
		g := dial(t, s.addr, "127.0.0.1")
		g.say(ask)
		g.want(http.StatusServiceUnavailable, "all may have 1\n")
	}
}

// Those that are refused and never read nor close hold up nobody, and no more of them
// are served than there are places for refusals.
func TestRefusalsAreBoundedAndHoldUpNobody(t *testing.T) {
	p := &places{}
	l := listen(t, p)
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	for range 4 * maxRefusals {
		dial(t, l.Addr().String(), "127.0.0.1")
	}
	testbed.Until(t, "all are refused", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.refused == 4*maxRefusals
	})
	if n := l.refusals.Len(); n > maxRefusals {
		t.Errorf("%d refusals at a time", n)
	}
	if err := l.Close(); err != nil { // returns although no refused side has gone
		t.Error(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if len(l.told) != 0 || l.refusals.Len() != 0 {
		t.Errorf("%d connections are kept, %d have a place", len(l.told), l.refusals.Len())
	}
}

func TestAPlaceIsGivenBackOnce(t *testing.T) {
	p := &places{all: 1}
	l := listen(t, p)
	defer func() { _ = l.Close() }()
	accept := func() net.Conn {
		dial(t, l.Addr().String(), "127.0.0.1")
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := accept()
	second := accept() // in the place of the first
	_, _ = first.Close(), first.Close()
	if n := p.used(); n != 1 {
		t.Errorf("%d places are taken by one connection", n)
	}
	_, _ = second.Close(), second.Close()
	if n := p.used(); n != 0 || l.places.Len() != 0 {
		t.Errorf("%d places are taken, %d make room, after the last connection", n, l.places.Len())
	}
}

// A head that announces a body which never comes is no request that runs.
func TestABodyThatNeverComesMakesRoom(t *testing.T) {
	s := serve(t, &places{all: 1})
	slow := dial(t, s.addr, "127.0.0.1")
	slow.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345")
	testbed.Until(t, "it makes room", func() bool {
		g := dial(t, s.addr, "127.0.0.2")
		g.say(ask)
		status, _ := g.hear()
		return status == http.StatusOK
	})
	slow.cut()
}

// From the end of the body on the handler runs, and is not cut.
func TestAHandlerThatHasItsBodyIsNeverCut(t *testing.T) {
	p := &places{all: 1}
	s := serve(t, p)
	for _, body := range []string{"Content-Length: 2\r\n\r\nab", "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"} {
		g := dial(t, s.addr, "127.0.0.1")
		g.say("POST /work HTTP/1.1\r\nHost: a\r\n" + body)
		<-s.running
		if s.l.places.MakeRoom(s.l.now()+time.Hour, "", errors.New("room")) {
			t.Error("a handler that runs was cut")
		}
		s.release <- struct{}{}
		g.want(http.StatusOK, "hello")
		_ = g.Close()
		testbed.Until(t, "the place is given back", func() bool { return p.used() == 0 })
	}
}
