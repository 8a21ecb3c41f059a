package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// This file is all that the configuration knows of the link, which every daemon has:
// [link], [link.tls] and [[link.peer]].

// linkFabric is the fabric that each daemon has, with or without a route to it; its
// table is [link].
const linkFabric = "link"

// Link is the agent-to-agent protocol.
type Link struct {
	Listen     []string // tcp://host:port, tls://host:port, unix:///path
	Lanes      int
	Insecure   bool
	PSK        Secret
	Congestion string // TCP congestion control; empty: the kernel's default
	TLS        TLS
	Peers      []Peer
}

// TLS is the table [link.tls]; all three files or none.
type TLS struct {
	Cert, Key, CA string
}

// On says whether certificates are configured.
func (t TLS) On() bool { return t.Cert != "" }

// Peer is one entry [[link.peer]] of the allow list.
type Peer struct {
	Name    string
	Address string // as a listener's; empty: it dials us
	Tenants []string
	Agent   string // pinned id, 32 hexadecimal digits; empty: any
	PSK     Secret // instead of link.psk
}

var linkTable = table[Config]{"link", "The protocol between agents.", []field[Config]{
	key("listen", func(c *Config) *[]string { return &c.Link.Listen }, strs, nil, rule[[]string]{"tcp://host:port, tls://host:port, unix:///path", nil}, "Where peers may connect. Empty: nowhere. Beyond loopback it takes TLS, or insecure."),
	key("lanes", func(c *Config) *int { return &c.Link.Lanes }, autoCount, auto, rule[int]{`"auto", or between 1 and 16`, func(n int) bool { return n == auto || (n >= 1 && n <= 16) }}, "Data connections to a peer. \"auto\" is the number of cores, at most 4."),
	key("insecure", func(c *Config) *bool { return &c.Link.Insecure }, booleans, false, free[bool](), "Allow peers without TLS beyond loopback, and let listed peers in without proof of their name."),
	key("psk", func(c *Config) *Secret { return &c.Link.PSK }, secrets, "", pskRule, "Key shared with every peer that has none of its own. It proves identity and encrypts nothing. Who has it can claim to be any of those peers.").reloads(),
	key("congestion", func(c *Config) *string { return &c.Link.Congestion }, words, "", wordRule, "TCP congestion control of our sockets. Empty: the kernel's default.").hostDefault("the kernel's"),
}}

var tlsTable = table[Config]{"link.tls", "Certificates for tls:// addresses: all three files, or none. A peer is known by its certificate's first DNS name.", []field[Config]{
	key("cert", func(c *Config) *string { return &c.Link.TLS.Cert }, words, "", free[string](), "This agent's certificate, PEM.").reloads(),
	key("key", func(c *Config) *string { return &c.Link.TLS.Key }, words, "", free[string](), "Its private key, PEM.").reloads(),
	key("ca", func(c *Config) *string { return &c.Link.TLS.CA }, words, "", free[string](), "The authority that signed every peer's certificate, PEM.").reloads(),
}}

var peerTable = table[Peer]{"link.peer", "`[[link.peer]]`: the allow list. Nobody else may connect, whatever insecure and psk say. Without any entry, only peers on the same host may. Not settable from the environment.", []field[Peer]{
	key("name", func(p *Peer) *string { return &p.Name }, words, "", nameRule, "The peer's agent.name. Required, unique."),
	key("address", func(p *Peer) *string { return &p.Address }, words, "", free[string](), "Where it listens: tcp://, tls:// or unix://. Empty: it dials us."),
	key("tenants", func(p *Peer) *[]string { return &p.Tenants }, strs, nil, free[[]string](), "Tenants whose blocks it may see, at most those it proves. Empty: none, so that it may not connect."),
	key("agent", func(p *Peer) *string { return &p.Agent }, words, "", hexID(16), "Its id, if it must be this one. No other peer may then give that id."),
	key("psk", func(p *Peer) *Secret { return &p.PSK }, secrets, "", pskRule, "Key shared with this peer only."),
}}.reloads()

var wordRule = rule[string]{"one word of letters, digits and underscores", func(s string) bool { return s == "" || wordForm.MatchString(s) }}

var wordForm = regexp.MustCompile(`^[A-Za-z0-9_]{1,15}$`) // TCP_CA_NAME_MAX is 16 with its NUL

func (l *loader) checkTLS() {
	t := l.cfg.Link.TLS
	files := []struct{ key, path string }{{"link.tls.cert", t.Cert}, {"link.tls.key", t.Key}, {"link.tls.ca", t.CA}}
	for _, f := range files {
		if f.path == "" {
			if t.Cert != "" || t.Key != "" || t.CA != "" {
				l.fail(f.key, "missing: cert, key and ca go together")
			}
			continue
		}
		if _, err := os.Stat(f.path); err != nil {
			var pe *os.PathError
			if errors.As(err, &pe) {
				err = pe.Err
			}
			l.fail(f.key, "%q: %s", filepath.Base(f.path), err)
		}
	}
}

func (l *loader) checkListeners() {
	seen := map[string]bool{}
	for i, addr := range l.cfg.Link.Listen {
		a, err := parseAddress(addr)
		switch {
		case err != nil:
			l.fail("link.listen", "%q %s", addr, err)
		case seen[addr] && a.port != 0:
			l.fail("link.listen", "%q is there twice (entry %d)", addr, i+1)
		case a.scheme == "tls" && !l.cfg.Link.TLS.On():
			l.fail("link.listen", "%q needs [link.tls] cert, key and ca", addr)
		case a.scheme == "tcp" && !a.loopback && !l.cfg.Link.Insecure:
			l.fail("link.listen", "%q is beyond loopback without TLS: use tls:// with [link.tls], or set link.insecure = true to expose blocks in clear", addr)
		case a.scheme == "tcp" && !l.cfg.Link.Insecure && !l.everyPeerHasPSK():
			l.fail("link.listen", "%q has no way to prove who connects: set link.psk, use tls://, or set link.insecure = true", addr)
		}
		switch {
		case err != nil || len(l.cfg.Link.Peers) > 0:
		case a.scheme == "tcp" && l.cfg.Link.PSK == "" && !l.cfg.Link.Insecure:
			l.warn("link.listen", "%q has no way to prove who connects, so nobody may: add [[link.peer]] and link.psk", addr)
		case !a.loopback:
			l.warn("link.listen", "%q reaches other hosts, and there is no [[link.peer]]: only peers on this host may connect", addr)
		}
		seen[addr] = true
	}
}

func (l *loader) everyPeerHasPSK() bool {
	return l.cfg.Link.PSK != "" || !slices.ContainsFunc(l.cfg.Link.Peers, func(p Peer) bool { return p.PSK == "" })
}

func (l *loader) checkPeers() {
	names := map[string]bool{}
	for i, p := range l.cfg.Link.Peers {
		key := fmt.Sprintf("link.peer[%d]", i)
		switch {
		case p.Name == "":
			l.fail(key+".name", "missing: it names the peer in the allow list")
		case names[p.Name]:
			l.fail(key+".name", "%q is there twice", p.Name)
		case p.Name == l.cfg.Agent.Name:
			l.fail(key+".name", "%q is this agent's own name", p.Name)
		}
		if j := slices.IndexFunc(l.cfg.Link.Peers[:i], func(o Peer) bool { return o.Agent != "" && strings.EqualFold(o.Agent, p.Agent) }); j >= 0 {
			l.fail(key+".agent", "%q is that of link.peer[%d] too", p.Agent, j)
		}
		names[p.Name] = true
		l.checkTenants(key+".tenants", p.Tenants)
		if len(p.Tenants) == 0 {
			l.warn(key+".tenants", "empty: peer %q may have no block, so it may not connect", p.Name)
		}
		l.checkPeerAddress(key+".address", p)
	}
}

func (l *loader) checkPeerAddress(key string, p Peer) {
	if p.Address == "" {
		return
	}
	a, err := parseAddress(p.Address)
	switch {
	case err != nil:
		l.fail(key, "%q %s", p.Address, err)
	case a.scheme != "unix" && a.port == 0:
		l.fail(key, "%q has no port", p.Address)
	case a.anyHost:
		l.fail(key, "%q is every address of a host: name one that the peer can be reached at", p.Address)
	case a.scheme == "tls" && !l.cfg.Link.TLS.On():
		l.fail(key, "%q needs [link.tls] cert, key and ca", p.Address)
	case a.scheme == "tcp" && !a.loopback && !l.cfg.Link.Insecure:
		l.fail(key, "%q is beyond loopback without TLS: use tls:// with [link.tls], or set link.insecure = true to send blocks in clear", p.Address)
	}
}

// address is a listener's or a peer's, taken apart.
type address struct {
	scheme   string // tcp, tls, unix
	port     int
	loopback bool // reaches no other host
	anyHost  bool // 0.0.0.0, [::] or no host at all
}

func parseAddress(s string) (address, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return address{}, errors.New("must be tcp://host:port, tls://host:port or unix:///path")
	}
	switch scheme {
	case "unix":
		if !strings.HasPrefix(rest, "/") || len(rest) > 107 {
			return address{}, errors.New("must be unix:// and an absolute path of at most 107 bytes")
		}
		return address{scheme: "unix", loopback: true}, nil
	case "tcp", "tls":
		a, err := parseHostPort(rest)
		a.scheme = scheme
		return a, err
	}
	return address{}, fmt.Errorf("has scheme %q: it must be tcp, tls or unix", scheme)
}
