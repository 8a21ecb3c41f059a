package peers

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"meridian/internal/realpart"
)

func TestRealRedisKeepsWhatIsSet(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		realpart.Missing(t, "no redis-server (Debian: redis-server)")
	}
	r := startRun(t, "redis")
	if v := r.pairs["redis"].version; !strings.Contains(v, ".") {
		t.Errorf("version %q", v)
	}
	for _, op := range []Op{Read, Write} {
		c, _ := cell(op, 16<<10, 4, 4, true, hotSet)
		for _, s := range r.systems(op) {
			err := r.with(s, func(p *pair) error {
				if err := p.prepare(t.Context(), s, c); err != nil {
					return err
				}
				_, err := p.measure(t.Context(), s, c, 5*time.Millisecond)
				return err
			})
			if err != nil {
				t.Errorf("%v: %s: %v", c, s.name, err)
			}
		}
	}
}

// serveOnce answers whatever comes with text, and returns what came.
func serveOnce(t *testing.T, text string) (*respClient, func() string) {
	t.Helper()
	near, far := net.Pipe()
	var got bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&got, far)
	}()
	go func() { _, _ = io.WriteString(far, text) }()
	c := newRESP(near)
	t.Cleanup(func() { _ = far.Close() })
	return c, func() string {
		_ = c.close()
		<-done
		return got.String()
	}
}

func TestGetAndSetAreRESP(t *testing.T) {
	c, sent := serveOnce(t, "$2\r\nab\r\n$3\r\ncde\r\n")
	a, b := make([]byte, 2), make([]byte, 3)
	if err := c.get([][]byte{[]byte("k"), []byte("key")}, [][]byte{a, b}); err != nil || string(a)+string(b) != "abcde" {
		t.Errorf("%q %q %v", a, b, err)
	}
	if got := sent(); got != "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n" {
		t.Errorf("sent %q", got)
	}
	c, sent = serveOnce(t, "+OK\r\n+OK\r\n")
	if err := c.set([][]byte{[]byte("k"), []byte("l")}, [][]byte{[]byte("ab"), []byte("c")}); err != nil {
		t.Error(err)
	}
	if got := sent(); got != "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nab\r\n*3\r\n$3\r\nSET\r\n$1\r\nl\r\n$1\r\nc\r\n" {
		t.Errorf("sent %q", got)
	}
}

func TestAnswersThatAreNotTheValueAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"$-1\r\n":                         "value of -1 bytes, want 2",
		"$3\r\nabc\r\n":                   "value of 3 bytes",
		"-ERR no\r\n":                     "redis: ERR no",
		"+OK\r\n":                         "out of protocol",
		"$2\r\nabXX":                      "out of protocol",
		"\n":                              "out of protocol",
		"$2\n":                            "out of protocol",
		"$two\r\n":                        "value of two bytes",
		"$" + strings.Repeat("9", 70<<10): "buffer full",
	} {
		c, sent := serveOnce(t, text)
		err := c.get([][]byte{[]byte("k")}, [][]byte{make([]byte, 2)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
		if want == "out of protocol" && !errors.Is(err, errRESP) {
			t.Errorf("%q: %v does not match", text, err)
		}
		sent()
	}
}
