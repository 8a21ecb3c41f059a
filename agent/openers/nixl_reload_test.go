package openers

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"meridian/agent/config"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/internal/door"
)

// Who may use the listener of a NIXL fabric, and a hub, follows their tables; loopback
// always may.
func TestWhoMayUseNIXLsListenersIsReloaded(t *testing.T) {
	var book quota.Book
	site := Site{Observer: deaf{}, Quota: &book, Doors: door.NewCommon(&book), Log: slog.New(slog.DiscardHandler)}
	hub := func(allow ...string) config.Fabric {
		return config.Fabric{Name: "x", Kind: "nixl-hub", Settings: &hubSettings{listen: "127.0.0.1:0", allow: allow}}
	}
	node := func(allow ...string) config.Fabric {
		return config.Fabric{Name: "x", Kind: nixlKind, Settings: &nixlSettings{listen: "127.0.0.1:0", helper: "/nowhere", allow: allow}}
	}
	for name, table := range map[string]func(...string) config.Fabric{"hub": hub, "node": node} {
		f, err := Open(t.Context(), table("10.0.0.0/8"), site)
		if err != nil {
			t.Fatal(err)
		}
		allows := f.(interface{ Allows(netip.Addr) bool }).Allows
		here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.1.2.3")
		if !allows(here) || !allows(there) || len(f.(fabric.Server).Addresses()) != 1 {
			t.Errorf("%s: at the start: %v, %v", name, allows(here), allows(there))
		}
		for _, c := range []struct {
			list []string
			let  bool
		}{{nil, false}, {[]string{"192.0.2.0/24", "10.1.2.0/24"}, true}} {
			p, err := f.(Reloader).Prepare(&config.Config{Fabrics: []config.Fabric{table(c.list...)}})
			if err == nil {
				err = p.Apply()
			}
			if err != nil || !allows(here) || allows(there) != c.let {
				t.Errorf("%s: allow %q: %v, %v", name, c.list, allows(there), err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The peers of a table come and go with it, whether there is a helper or not.
func TestPeersOfANIXLTableAreReloaded(t *testing.T) {
	var book quota.Book
	site := Site{Observer: deaf{}, Quota: &book, Doors: door.NewCommon(&book), Log: slog.New(slog.DiscardHandler)}
	table := func(peers ...string) config.Fabric {
		return config.Fabric{Name: "x", Kind: nixlKind, Settings: &nixlSettings{helper: "/nowhere", peers: peers}}
	}
	f, err := Open(t.Context(), table("a=127.0.0.1:1", "b=127.0.0.1:2"), site)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	names := func() (out []string) {
		for _, p := range f.(fabric.Peered).Peers() {
			out = append(out, p.Name+"="+strings.TrimPrefix(p.Addr, "nixl://"))
		}
		return out
	}
	for _, list := range [][]string{{"b=127.0.0.1:2", "c=127.0.0.1:3"}, {"c=127.0.0.1:4"}, nil} {
		was := names()
		p, err := f.(Reloader).Prepare(&config.Config{Fabrics: []config.Fabric{table(list...)}})
		if err != nil || p.Peers != len(list) {
			t.Fatal(p.Peers, err)
		}
		if got := names(); !slices.Equal(got, was) {
			t.Errorf("%q before it is in force", got)
		}
		if err := p.Apply(); err != nil {
			t.Fatal(err)
		}
		if got := names(); !slices.Equal(got, list) {
			t.Errorf("%q, want %q", got, list)
		}
	}
}

// Who may connect chooses its source address, so that must not be a kind of log line.
func TestStrangersOfNIXLsListenerAreOneKindOfLogLine(t *testing.T) {
	lines := make(chan string, 64)
	var book quota.Book
	site := Site{Observer: deaf{}, Quota: &book, Doors: door.NewCommon(&book), Log: slog.New(slog.NewTextHandler(sink(lines), nil))}
	f, err := Open(t.Context(), config.Fabric{Name: "x", Kind: nixlKind, Settings: &nixlSettings{listen: "127.0.0.1:0", helper: "/nowhere"}}, site)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	c, err := net.Dial("tcp", strings.TrimPrefix(f.(fabric.Server).Addresses()[0], "nixl://"))
	if err == nil {
		_, err = c.Write(make([]byte, 8)) // a frame of no bytes
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	line := <-lines
	for !strings.Contains(line, "a request was refused") {
		line = <-lines
	}
	if !strings.Contains(line, " from=127.0.0.1 ") || !strings.Contains(line, " fabric=x ") {
		t.Errorf("%q", line)
	}
}
