package agent

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whatever strangers do at whatever socket of a daemon, as often as they like: the
// log gets a few lines of each kind and says how many more there were.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	n := startNode(t, shortDir(t), "node", listener("tcp://127.0.0.1:0", "peer"))
	ports := n.Ports()
	say := func(network, address, text string, times int) func(*testing.T) {
		return func(t *testing.T) {
			for range times {
				c, err := net.Dial(network, address)
				for errors.Is(err, syscall.EAGAIN) { // as many wait to be accepted as may
					c, err = net.Dial(network, address)
				}
				if err != nil {
					t.Fatal(err)
				}
				_ = c.SetDeadline(time.Now().Add(patience))
				if text != "" {
					_, _ = c.Write([]byte(text))
					_, _ = io.Copy(io.Discard, c)
				}
				_ = c.Close()
			}
		}
	}
	link, engine, web := strings.TrimPrefix(ports["link"][0], "tcp://"), strings.TrimPrefix(ports["engine"][0], "unix://"), strings.TrimPrefix(ports["http"][0], "http://")
	for name, cause := range map[string]func(*testing.T){
		"link: probes":             say("tcp", link, "", 10_000),
		"link: another protocol":   say("tcp", link, "GET / HTTP/1.1\r\nHost: example.invalid\r\n\r\n", 500),
		"engine: connect, close":   say("unix", engine, "", 2000),
		"engine: another protocol": say("unix", engine, "GET / HTTP/1.1\r\nHost: example.invalid\r\n\r\n", 2000),
		"http: another protocol":   say("tcp", web, "\x16\x03\x01 this is no HTTP\r\n\r\n", 10_000),
		"http: unknown pages": func(t *testing.T) {
			for range 2000 {
				r, err := http.Get("http://" + web + "/nothing-here")
				if err != nil {
					t.Fatal(err)
				}
				_ = r.Body.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := strings.Count(n.log.String(), "\n")
			cause(t)
			if lines := strings.Count(n.log.String(), "\n") - before; lines > 60 {
				t.Errorf("%d log lines", lines)
			}
		})
	}
}
