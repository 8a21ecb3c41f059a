package reach

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestAnAddressIsLookedAtBeforeItIsConnectedTo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	no := errors.New("none of its business")
	loopback := netip.MustParseAddr("127.0.0.1")
	for _, host := range []string{"127.0.0.1", "::ffff:127.0.0.1"} {
		for _, want := range []error{nil, no} {
			c, err := Dialer(func(a netip.Addr) error {
				if a != loopback {
					t.Errorf("asked for %v", a)
				}
				return want
			}).Dial("tcp", net.JoinHostPort(host, port))
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s: %v, want %v", host, err, want)
			}
			if c != nil {
				_ = c.Close()
			}
		}
	}
}
