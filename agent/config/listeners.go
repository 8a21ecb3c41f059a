package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// listener is one address at which the daemon listens.
type listener struct {
	key, text   string
	path        string // of a Unix socket; "": it is of TCP
	host        string
	first, last int // ports
}

// checkListeners looks for addresses that two keys have, of whichever tables: the second
// one to listen would fail at the start.
func (l *loader) checkListeners() {
	var all []listener
	add := func(path string, keys []setting) {
		for _, s := range keys {
			if !s.listen || path == "llama" && !l.cfg.Llama.On() {
				continue
			}
			for text := range strings.Lines(s.bare()) {
				if at, ok := listenerOf(strings.TrimSpace(text)); ok {
					at.key = path + "." + s.name
					all = append(all, at)
				}
			}
		}
	}
	for _, t := range l.tables() {
		add(t.name, t.settings(l.cfg))
	}
	for _, e := range l.fabricEntries() {
		add(e.path, e.settings)
	}
	for i, b := range all {
		for _, a := range all[:i] {
			if a.key == b.key && a.text == b.text {
				continue // the key's own check says that it is there twice
			}
			if a.meets(b) {
				l.fail(b.key, "%q: %s listens there too, at %q: give each an address of its own", b.text, a.key, a.text)
				break
			}
		}
	}
}

// listenerOf reads an address as any key has it: [scheme://]host:port, host:first-last, a
// path. What it cannot read, the key's own check refuses.
func listenerOf(text string) (at listener, ok bool) {
	at.text = text
	scheme, rest, has := strings.Cut(text, "://")
	if !has {
		scheme, rest = "", text
	}
	if scheme == "unix" || strings.HasPrefix(rest, "/") {
		at.path = filepath.Clean(rest)
		return at, rest != ""
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return at, false
	}
	first, last, isRange := strings.Cut(port, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	at.host, at.first, at.last = strings.ToLower(host), int(a), int(b)
	return at, errA == nil && errB == nil && a != 0 // 0: a port that is free
}

// meets says whether only one of both can listen.
func (a listener) meets(b listener) bool {
	if a.path != "" || b.path != "" {
		return a.path == b.path
	}
	return a.first <= b.last && b.first <= a.last && sameHost(a.host, b.host)
}

// sameHost says whether two hosts have an address in common, as far as that can be told
// without resolving a name.
func sameHost(a, b string) bool {
	if a == "localhost" {
		a = "127.0.0.1"
	}
	if b == "localhost" {
		b = "127.0.0.1"
	}
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if a == "" || b == "" || errX == nil && x.IsUnspecified() || errY == nil && y.IsUnspecified() {
		// [::] has the IPv4 addresses too, 0.0.0.0 has none of IPv6.
		only4 := func(a, b netip.Addr) bool { return a == netip.IPv4Unspecified() && b.Is6() && !b.IsUnspecified() }
		return !only4(x, y) && !only4(y, x)
	}
	if errX == nil && errY == nil {
		return x.Unmap() == y.Unmap()
	}
	return a == b
}
