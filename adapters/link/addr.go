package link

import (
	"fmt"
	"net"
	"strings"

	"meridian/wire"
)

// The transports. They are also what Via says.
const (
	viaTCP  = "tcp"
	viaTLS  = "tls"
	viaUnix = "unix"
)

// addr is where an agent can be reached.
type addr struct {
	network string // viaTCP, viaTLS, viaUnix
	target  string // host:port, or a path
}

// parseAddr takes tcp://host:port, tls://host:port and unix:///path apart. An
// IPv6 host stands in brackets.
func parseAddr(s string) (addr, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	bad := func(why string) (addr, error) {
		return addr{}, fmt.Errorf("link address %q: %s: %w", s, why, wire.CodeConfig)
	}
	switch {
	case !ok:
		return bad("want tcp://, tls:// or unix://")
	case scheme == viaUnix:
		if !strings.HasPrefix(rest, "/") {
			return bad("want an absolute path")
		}
	case scheme == viaTCP || scheme == viaTLS:
		if _, _, err := net.SplitHostPort(rest); err != nil {
			return bad(err.Error())
		}
	default:
		return bad("want tcp://, tls:// or unix://")
	}
	return addr{network: scheme, target: rest}, nil
}

// loopback reports whether only this host can reach a listener at a.
func (a addr) loopback() bool {
	if a.network == viaUnix {
		return true
	}
	host, _, err := net.SplitHostPort(a.target)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
