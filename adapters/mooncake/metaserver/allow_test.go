package metaserver

import (
	"net"
	"net/netip"
	"testing"
)

// elsewhere is a connection from elsewhere.
type elsewhere struct {
	net.Conn
	at string
}

func (e elsewhere) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(e.at))
}

// Who is not allowed any more may not use the server by a connection that is open either;
// this host always may.
func TestWhoIsNotAllowedAnyMoreIsRefusedOnAnOpenConnection(t *testing.T) {
	r := newServer(t)
	r.SetAllow([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})
	g, why := r.admit(elsewhere{nil, "192.0.2.1:9"})
	if why != nil || !g.mayStay() {
		t.Fatal(why)
	}
	r.SetAllow([]netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")})
	if g.mayStay() {
		t.Error("a connection of before is let through")
	}
	g.place.Leave()
	g.share.Give()
	if _, why := r.admit(elsewhere{nil, "192.0.2.1:9"}); why == nil || why.Reason != "not_allowed" {
		t.Error("a new connection:", why)
	}
	if code, text := r.do("GET", "mooncake/ram/x", ""); code != 404 {
		t.Errorf("this host: %d %s", code, text)
	}
}
