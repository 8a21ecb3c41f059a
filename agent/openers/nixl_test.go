package openers

import (
	"fmt"
	"strings"
	"testing"
)

func TestWhatANIXLTableMayNotSay(t *testing.T) {
	for want, change := range map[string]func(s *nixlSettings){
		"":                                                      func(*nixlSettings) {},
		`peers: "a" must be NAME=ADDRESS`:                       func(s *nixlSettings) { s.peers = []string{"a"} },
		`peers: "A=127.0.0.1:1" must be NAME`:                   func(s *nixlSettings) { s.peers = []string{"A=127.0.0.1:1"} },
		`must have a port from 1 to 65535`:                      func(s *nixlSettings) { s.peers = []string{"a=127.0.0.1:0"} },
		`is an IPv6 address`:                                    func(s *nixlSettings) { s.peers = []string{"a=[::1]:1"} },
		`peers: "a" is there twice`:                             func(s *nixlSettings) { s.peers = []string{"a=127.0.0.1:1", "a=127.0.0.1:2"} },
		`peers: "a=10.0.0.1:1" is beyond loopback`:              func(s *nixlSettings) { s.peers = []string{"a=10.0.0.1:1"} },
		`peers: "a=listener://x" needs listen`:                  func(s *nixlSettings) { s.peers = []string{"a=listener://x"} },
		`peers: "a=tcpstore://x" needs tcpstore`:                func(s *nixlSettings) { s.peers = []string{"a=tcpstore://x"} },
		`peers: "a=etcd://x" needs etcd`:                        func(s *nixlSettings) { s.peers = []string{"a=etcd://x"} },
		`peers: "a=etcd://x/y": the name of an`:                 func(s *nixlSettings) { s.peers, s.etcd = []string{"a=etcd://x/y"}, []string{"127.0.0.1:2379"} },
		`peers: "a=listener://": an agent's name`:               func(s *nixlSettings) { s.peers, s.listen = []string{"a=listener://"}, "127.0.0.1:1" },
		`the agent "x" is there twice`:                          func(s *nixlSettings) { s.peers, s.listen = []string{"a=listener://x", "b=listener://x"}, "127.0.0.1:1" },
		`listen: "x" must be HOST:PORT`:                         func(s *nixlSettings) { s.listen = "x" },
		`listen: "0.0.0.0:1" is beyond loopback`:                func(s *nixlSettings) { s.listen = "0.0.0.0:1" },
		`listen: "[::1]:1" is an IPv6 address`:                  func(s *nixlSettings) { s.listen = "[::1]:1" },
		`allow: empty, and listen "0.0.0.0:1"`:                  func(s *nixlSettings) { s.listen, s.insecure = "0.0.0.0:1", true },
		`allow: "10.0.0.0" must be ADDRESS/BITS`:                func(s *nixlSettings) { s.allow = []string{"10.0.0.0"} },
		`allow: "10.0.0.0/8" is beyond loopback`:                func(s *nixlSettings) { s.allow = []string{"10.0.0.0/8"} },
		`tcpstore: "x" must be HOST:PORT`:                       func(s *nixlSettings) { s.tcpstore = "x" },
		`tcpstore: "10.0.0.1:1" is beyond`:                      func(s *nixlSettings) { s.tcpstore = "10.0.0.1:1" },
		`etcd: "" must be HOST:PORT`:                            func(s *nixlSettings) { s.etcd = []string{""} },
		`etcd: "10.0.0.1:1" is beyond loopback`:                 func(s *nixlSettings) { s.etcd = []string{"10.0.0.1:1"} },
		`etcd_reap: true is of no use`:                          func(s *nixlSettings) { s.etcdReap = true },
		`etcd_namespace: empty`:                                 func(s *nixlSettings) { s.etcd, s.etcdNamespace = []string{"127.0.0.1:2379"}, "" },
		`devices: "all" is beyond loopback`:                     func(s *nixlSettings) { s.devices = "all" },
		`params: "x" must be NAME=VALUE`:                        func(s *nixlSettings) { s.params = []string{"x"} },
		`environment: "=x" must be NAME=VALUE`:                  func(s *nixlSettings) { s.environment = []string{"=x"} },
		`environment: "UCX_NET_DEVICES=all": set`:               func(s *nixlSettings) { s.environment = []string{"UCX_NET_DEVICES=all"} },
		`backend: empty`:                                        func(s *nixlSettings) { s.backend = "" },
		`"UCX_PROTO_EMULATION_ENABLE=n": set emulation instead`: func(s *nixlSettings) { s.environment = []string{"UCX_PROTO_EMULATION_ENABLE=n"} },
	} {
		s := &nixlSettings{peers: []string{"a=127.0.0.1:8888"}, devices: "lo", backend: "UCX", etcdNamespace: "/nixl/agents/", params: []string{"num_workers=1"}, environment: []string{"UCX_TLS=tcp"}}
		change(s)
		var said []string
		checkNIXL(s, func(key, format string, args ...any) { said = append(said, key+": "+fmt.Sprintf(format, args...)) })
		if got := strings.Join(said, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWhatATableOfAHubMayNotSay(t *testing.T) {
	for want, s := range map[string]hubSettings{
		"":                                       {listen: "127.0.0.1:29500"},
		`listen: "x" must be HOST:PORT`:          {listen: "x"},
		`listen: "0.0.0.0:1" is beyond loopback`: {listen: "0.0.0.0:1"},
		`allow: empty, and listen "0.0.0.0:1"`:   {listen: "0.0.0.0:1", insecure: true},
		`allow: "10.0.0.0" must be ADDRESS/BITS`: {listen: "127.0.0.1:1", allow: []string{"10.0.0.0"}},
		`allow: "10.0.0.0/8" is beyond loopback`: {listen: "127.0.0.1:1", allow: []string{"10.0.0.0/8"}},
	} {
		var said []string
		checkHub(&s, func(key, format string, args ...any) { said = append(said, key+": "+fmt.Sprintf(format, args...)) })
		if got := strings.Join(said, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
