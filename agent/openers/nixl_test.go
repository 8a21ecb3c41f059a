package openers

import (
	"fmt"
	"strings"
	"testing"
)

func TestWhatANIXLTableMayNotSay(t *testing.T) {
	for want, change := range map[string]func(s *nixlSettings){
		"":                                                      func(*nixlSettings) {},
		`peers: "a" must be NAME=HOST:PORT`:                     func(s *nixlSettings) { s.peers = []string{"a"} },
		`peers: "A=127.0.0.1:1" must be NAME`:                   func(s *nixlSettings) { s.peers = []string{"A=127.0.0.1:1"} },
		`must have a port from 1 to 65535`:                      func(s *nixlSettings) { s.peers = []string{"a=127.0.0.1:0"} },
		`is an IPv6 address`:                                    func(s *nixlSettings) { s.peers = []string{"a=[::1]:1"} },
		`peers: "a" is there twice`:                             func(s *nixlSettings) { s.peers = []string{"a=127.0.0.1:1", "a=127.0.0.1:2"} },
		`peers: "a=10.0.0.1:1" is beyond loopback`:              func(s *nixlSettings) { s.peers = []string{"a=10.0.0.1:1"} },
		`devices: "all" is beyond loopback`:                     func(s *nixlSettings) { s.devices = "all" },
		`params: "x" must be NAME=VALUE`:                        func(s *nixlSettings) { s.params = []string{"x"} },
		`environment: "=x" must be NAME=VALUE`:                  func(s *nixlSettings) { s.environment = []string{"=x"} },
		`environment: "UCX_NET_DEVICES=all": set`:               func(s *nixlSettings) { s.environment = []string{"UCX_NET_DEVICES=all"} },
		`"UCX_PROTO_EMULATION_ENABLE=n": set emulation instead`: func(s *nixlSettings) { s.environment = []string{"UCX_PROTO_EMULATION_ENABLE=n"} },
		`backend: empty`:                                        func(s *nixlSettings) { s.backend = "" },
	} {
		s := &nixlSettings{peers: []string{"a=127.0.0.1:8888"}, devices: "lo", backend: "UCX", params: []string{"num_workers=1"}, environment: []string{"UCX_TLS=tcp"}}
		change(s)
		var said []string
		checkNIXL(s, func(key, format string, args ...any) { said = append(said, key+": "+fmt.Sprintf(format, args...)) })
		if got := strings.Join(said, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
