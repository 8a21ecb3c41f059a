package metaserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"meridian/adapters/mooncake/metadata"
	"meridian/blocks/quota"
	"meridian/internal/testbed"
)

// patience bounds what a test waits for on a busy machine.
const patience = testbed.Patience

// silent is a listener that accepts by the kernel alone, so that nothing ever comes.
func silent(t *testing.T) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr)
}

// dial opens a connection to the server.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.Address())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func TestWhatIsNotUnderstoodIsRefusedByName(t *testing.T) {
	r := newServer(t)
	rpcKey, huge := endpointOf("n").String(), `{"name":"n","x":"`+strings.Repeat("x", metadata.MaxBytes)+`"}`
	for _, c := range []struct {
		method, key, body string
		want              int
		says              string
	}{
		{"GET", "", "", 400, "mooncake/"},
		{"GET", "other/ram/n", "", 400, "other/ram/n"},
		{"GET", "mooncake/ram/" + strings.Repeat("n", metadata.MaxName+1), "", 400, "1024"},
		{"GET", "mooncake/ram/a\x00b", "", 400, "printable"},
		{"GET", "mooncake/ram/n", "", 404, "not found"},
		{"DELETE", "mooncake/ram/n", "", 404, "no such key"},
		{"POST", "mooncake/ram/n", "{}", 405, "POST"},
		{"PUT", rpcKey, `{}`, 400, "ip_or_host_name"},
		{"PUT", rpcKey, `{"ip_or_host_name":"127.0.0.1","rpc_port":"80"}`, 400, "rpc_port"},
		{"PUT", rpcKey, `{"ip_or_host_name":"127.0.0.1","rpc_port":70000}`, 400, "rpc_port"},
		{"PUT", rpcKey, `{"ip_or_host_name":["127.0.0.1"],"rpc_port":80}`, 400, "JSON object"},
		{"PUT", rpcKey, rpc("192.0.2.1", 80), 403, "fabric.mooncake.allow"},
		{"PUT", "mooncake/ram/n", huge, 413, "1048576"},
		{"PUT", "mooncake/ram/n", `null`, 400, "JSON object"},
	} {
		if got, text := r.do(c.method, c.key, c.body); got != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%s %.40q %.60q: %d %.200s, want %d and %q", c.method, c.key, c.body, got, text, c.want, c.says)
		}
	}
	if st := r.Stats(); st.Nodes != 0 {
		t.Errorf("%d nodes of nothing that was right", st.Nodes)
	}
}

func TestAPageOfTheWebMayNotAsk(t *testing.T) {
	r := newServer(t)
	for header, value := range map[string]string{"Host": "evil.example", "Origin": "https://evil.example"} {
		c := r.dial()
		host := r.Address()
		if header == "Host" {
			host, header = value, "X"
		}
		_, _ = fmt.Fprintf(c, "GET /metadata?key=mooncake%%2Fram%%2Fn HTTP/1.1\r\nHost: %s\r\n%s: %s\r\nConnection: close\r\n\r\n", host, header, value)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", value, resp.Status)
		}
		if names := strings.Contains(string(text), ".metadata_hosts"); names != (header == "X") || strings.Contains(string(text), "origins") {
			t.Errorf("%s: %q names a key that there is not, or none", value, text)
		}
	}
}

// An owner that never answers holds up only those who want its name.
func TestAnOwnerThatNeverAnswersHoldsUpNobodyElse(t *testing.T) {
	r := newServer(t)
	deaf := silent(t)
	if got, text := r.do("PUT", endpointOf("n").String(), rpc("127.0.0.1", deaf.Port)); got != 200 {
		t.Fatal(got, text)
	}
	type answer struct {
		status int
		text   string
	}
	taker := make(chan answer, 1)
	go func() {
		s, text := r.do("PUT", endpointOf("n").String(), rpc("127.0.0.1", 1))
		taker <- answer{s, text}
	}()
	for range 20 {
		if got, text := r.do("PUT", endpointOf("m").String(), rpc("127.0.0.1", 1)); got != 200 {
			t.Fatal("another name:", got, text)
		}
	}
	if a := <-taker; a.status != http.StatusConflict || !strings.Contains(a.text, "is silent") {
		t.Errorf("the taker: %+v", a)
	}
}

// What one source has asked at a time is bounded, and the next one is told.
func TestOneSourceCannotTakeAllQuestions(t *testing.T) {
	r := newServer(t)
	r.mu.Lock()
	r.asking[""], r.asking["loopback"] = asksASource, asksASource
	r.mu.Unlock()
	_, _ = r.do("PUT", endpointOf("n").String(), rpc("127.0.0.1", 1))
	if got, text := r.do("PUT", endpointOf("n").String(), rpc("127.0.0.1", 2)); got != http.StatusServiceUnavailable || !strings.Contains(text, "loopback") {
		t.Error(got, text)
	}
	if is, err := r.askFor(t.Context(), "another", &Question{Addr: "127.0.0.1:1", from: thisHost}); err != nil || is != metadata.Refused {
		t.Error("another source:", is, err)
	}
}

func TestConnectionsThatSayNothingMakeRoom(t *testing.T) {
	r := newServer(t)
	r.book.SetLimit(quota.MetadataConns, quota.Source, 4)
	quiet := make([]net.Conn, 4)
	for i := range quiet {
		quiet[i] = r.dial()
		if i%2 == 1 { // half a header
			_, _ = io.WriteString(quiet[i], "PUT /metadata?key=x HTTP/1.1\r\nContent-Le")
		}
	}
	// The kernel may have accepted them before the server has.
	waitFor(t, func() bool { return r.book.Used(quota.MetadataConns, quota.Total) == 4 })
	if got, text := r.do("PUT", endpointOf("n").String(), rpc("127.0.0.1", 1)); got != 200 {
		t.Fatal("a node that has something to say:", got, text)
	}
	if n := r.book.Used(quota.MetadataConns, quota.Total); n > 4 {
		t.Errorf("%d connections, limit 4", n)
	}
	if _, err := quiet[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest silent connection was not the one to go")
	}
}

func TestNothingIsLeftOfConnectionsThatEnd(t *testing.T) {
	r := newServer(t)
	for i := range 50 {
		c := r.dial()
		if i%2 == 0 {
			_, _ = io.WriteString(c, "PUT /metadata?key=mooncake%2Fram%2Fn HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
		}
		_ = c.Close()
		r.do("GET", endpointOf("n").String(), "")
	}
	waitFor(t, func() bool { return r.book.Used(quota.MetadataConns, quota.Total) == 0 && r.conns.Len() == 0 })
}

// A name in an entry must not make the server connect to where its guests may not.
func TestTheServerAsksNobodyWhoMayNotUseIt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	nobody := metadata.DialAllowed(func(netip.Addr) bool { return false })
	if is := metadata.Ask(t.Context(), nobody, l.Addr().String()); is != metadata.Unreachable {
		t.Errorf("it %s", is)
	}
	_ = l.(*net.TCPListener).SetDeadline(time.Now())
	if c, err := l.Accept(); err == nil {
		_ = c.Close()
		t.Error("it connected")
	}
}

func TestOnlyListedSourcesAreLetIn(t *testing.T) {
	r := newServer(t)
	r.SetAllow([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")})
	asked := 0
	r.own = func(netip.Addr) bool {
		asked++
		return false
	}
	for text, want := range map[string]bool{"127.0.0.1": true, "::1": true, "10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "2001:db8::1": false} {
		server, client := net.Pipe()
		asked = 0
		g, why := r.admit(from{server, net.JoinHostPort(text, "99")})
		if (why == nil) != want || why != nil && !strings.Contains(why.Text, "fabric.mooncake.allow") {
			t.Errorf("%s: %v", text, why)
		}
		if asked > 1 {
			t.Errorf("%s: this host's addresses were asked for %d times", text, asked)
		}
		if g != nil {
			_ = g.Close()
		}
		_, _ = server.Close(), client.Close()
	}
}

// from is a connection that comes from elsewhere.
type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr)) }

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	testbed.Until(t, "what the server is about to do", done)
}
