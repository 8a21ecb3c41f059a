package mooncake

import (
	"errors"
	"net/netip"
	"testing"

	"meridian/wire"
)

// A list that is set later holds for who comes, and for where peers say that they are.
func TestWhoMayConnectCanBeChanged(t *testing.T) {
	h := newHouse(t, []PeerConfig{{"near", "127.0.0.1:1"}}, func(c *ServeConfig) { c.Allow = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	for i, list := range []string{"192.0.2.0/24", "198.51.100.0/24"} {
		if i > 0 {
			h.SetAllow([]netip.Prefix{netip.MustParsePrefix(list)})
			if !h.allow.Has(netip.MustParseAddr("198.51.100.1")) || h.allow.Has(netip.MustParseAddr("192.0.2.1")) {
				t.Error("where peers may be is as before")
			}
		}
		for _, from := range []string{"192.0.2.1", "198.51.100.1", "127.0.0.1"} {
			a := netip.MustParseAddr(from)
			_, err := h.server.admit(a)
			if may := a.IsLoopback() || netip.MustParsePrefix(list).Contains(a); (err == nil) != may || err != nil && !errors.Is(err, wire.CodeAuth) {
				t.Errorf("%s with %s: %v", from, list, err)
			}
		}
	}
}
