package mooncake

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"meridian/fabric"
	"meridian/wire"
)

// A peer must not have blocks, or a connection at all, sent to somebody else.
func TestAPeerCannotSendBlocksToAThirdParty(t *testing.T) {
	third := newLender(t, 1<<20)
	l := newLender(t, 1<<20)
	l.mu.Lock()
	l.host, l.data = "::1", third.data // l is listed as 127.0.0.1
	l.mu.Unlock()
	h := newHouse(t, []PeerConfig{{"app", l.name}}, nil)
	it := []fabric.Item{{NS: h.ns, Key: wire.Key{1}, M: fabric.Mem{B: payloadOf(t, 1000, 1)}}}
	if h.Push(t.Context(), it); !errors.Is(it[0].Err, wire.CodeDenied) || !strings.Contains(it[0].Err.Error(), "to ::1, which is neither 127.0.0.1 nor allowed") {
		t.Error("push:", it[0].Err)
	}
	bad := ""
	for _, f := range h.Findings() {
		if f.Bad && f.ID == "unreachable.app" {
			bad = f.Reason
		}
	}
	if !strings.Contains(bad, "neither 127.0.0.1 nor allowed") {
		t.Errorf("the finding says %q", bad)
	}

	// Where the operator allows it, the data plane may be elsewhere.
	both, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here")
	}
	l.target.Open(both)
	l.mu.Lock()
	l.data = both.Addr().(*net.TCPAddr).AddrPort()
	l.mu.Unlock()
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"app", l.name}}, Allow: []netip.Prefix{netip.MustParsePrefix("::1/128")}})
	if n.Push(t.Context(), it); it[0].Err != nil {
		t.Error("to an address that is allowed:", it[0].Err)
	}
}
