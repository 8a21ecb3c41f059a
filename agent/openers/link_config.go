package openers

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"meridian/agent/config"
)

// linkName is the registry name of all peers of the link together, and the table of
// its keys.
const linkName = "link"

// linkSettings are the tables [link], [link.tls] and [[link.peer]].
type linkSettings struct {
	listen        []string // tcp://host:port, tls://host:port, unix:///path
	lanes         int
	insecure      bool
	PSK           config.Secret // exported, as Peers is, so that printing the settings hides it
	congestion    string        // TCP congestion control; empty: the kernel's default
	cert, key, ca string        // all three, or none
	Peers         []linkPeer
}

// linkPeer is one entry [[link.peer]] of the allow list.
type linkPeer struct {
	name    string
	address string // as a listener's; empty: it dials us
	tenants []string
	agent   string        // pinned id, 32 hexadecimal digits; empty: any
	PSK     config.Secret // instead of link.psk
}

// linkOf are the settings of the link in a configuration, which are none where it was
// read without the kinds of this build.
func linkOf(c *config.Config) *linkSettings {
	if s, ok := c.Settings(linkName).(*linkSettings); ok {
		return s
	}
	return &linkSettings{}
}

// tls says whether certificates are configured.
func (s *linkSettings) tls() bool { return s.cert != "" }

var linkKind = config.NewFixedKind(linkName, checkLink,
	config.Table("link", "The protocol between agents.",
		config.Key("listen", func(s *linkSettings) *[]string { return &s.listen }, config.Lists, nil, config.NewRule[[]string]("tcp://host:port, tls://host:port, unix:///path", nil), "Where peers may connect. Empty: nowhere. Beyond loopback it takes TLS, or insecure."),
		config.Key("lanes", func(s *linkSettings) *int { return &s.lanes }, config.AutoCounts, config.Auto, config.NewRule(`"auto", or between 1 and 16`, func(n int) bool { return n == config.Auto || (n >= 1 && n <= 16) }), "Data connections to a peer. \"auto\" is the number of cores, at most 4."),
		config.Key("insecure", func(s *linkSettings) *bool { return &s.insecure }, config.Booleans, false, config.Free[bool](), "Allow peers without TLS beyond loopback, and let listed peers in without proof of their name."),
		config.Key("psk", func(s *linkSettings) *config.Secret { return &s.PSK }, config.Secrets, "", pskRule, "Key shared with every peer that has none of its own. It proves identity and encrypts nothing. Who has it can claim to be any of those peers.").Live(),
		config.Key("congestion", func(s *linkSettings) *string { return &s.congestion }, config.Words, "", wordRule, "TCP congestion control of our sockets. Empty: the kernel's default.").HostDefault("the kernel's"),
	),
	config.Table("link.tls", "Certificates for tls:// addresses: all three files, or none. A peer is known by its certificate's first DNS name.",
		config.Key("cert", func(s *linkSettings) *string { return &s.cert }, config.Paths, "", config.Free[string](), "This agent's certificate, PEM.").Live(),
		config.Key("key", func(s *linkSettings) *string { return &s.key }, config.Paths, "", config.Free[string](), "Its private key, PEM.").Live(),
		config.Key("ca", func(s *linkSettings) *string { return &s.ca }, config.Paths, "", config.Free[string](), "The authority that signed every peer's certificate, PEM.").Live(),
	),
	config.PeerTables("link.peer", "`[[link.peer]]`: the allow list. Nobody else may connect, whatever insecure and psk say. Without any entry, only peers on the same host may. Not settable from the environment.",
		func(s *linkSettings) *[]linkPeer { return &s.Peers }, func(p *linkPeer) *string { return &p.name },
		config.Key("name", func(p *linkPeer) *string { return &p.name }, config.Words, "", config.AgentNames, "The peer's agent.name. Required, unique."),
		config.Key("address", func(p *linkPeer) *string { return &p.address }, config.Words, "", config.Free[string](), "Where it listens: tcp://, tls:// or unix://. Empty: it dials us."),
		config.Key("tenants", func(p *linkPeer) *[]string { return &p.tenants }, config.Lists, nil, config.Free[[]string](), "Tenants whose blocks it may see, at most those it proves. Empty: none, so that it may not connect."),
		config.Key("agent", func(p *linkPeer) *string { return &p.agent }, config.Words, "", config.Hex(16), "Its id, if it must be this one. No other peer may then give that id."),
		config.Key("psk", func(p *linkPeer) *config.Secret { return &p.PSK }, config.Secrets, "", pskRule, "Key shared with this peer only."),
	),
)

var wordRule = config.NewRule("one word of letters, digits and underscores", func(s string) bool { return s == "" || wordForm.MatchString(s) })

var wordForm = regexp.MustCompile(`^[A-Za-z0-9_]{1,15}$`) // TCP_CA_NAME_MAX is 16 with its NUL

// laneCount is lanes, with the number that "auto" stands for.
func (s *linkSettings) laneCount() int {
	if s.lanes == config.Auto {
		return min(4, runtime.NumCPU())
	}
	return s.lanes
}

// checkLink tests what the keys of the link say together.
func checkLink(s *linkSettings, c *config.Config, bad, warn config.Bad) {
	s.checkTLS(bad)
	s.checkListeners(bad, warn)
	s.checkPeers(c, bad, warn)
	// A node of a split moves blocks by the link. Without it each prompt would be
	// computed twice.
	if l := c.Llama; l.On() && l.Partner != "" && l.Role != "both" && len(s.Peers) == 0 {
		how := "the partner's blocks cannot be pulled, so it is not asked and this node does all by itself"
		if len(s.listen) > 0 {
			how = "unless the partner's daemon dials this one, " + how
		}
		warn("llama.partner", "%q, and there is no [[link.peer]]: %s; add a [[link.peer]] for the partner's daemon", l.Partner, how)
	}
}

func (s *linkSettings) checkTLS(bad config.Bad) {
	for i, path := range []string{s.cert, s.key, s.ca} {
		if path == "" && s.cert+s.key+s.ca != "" {
			bad(tlsKeys[i], "missing: cert, key and ca go together")
		}
	}
}

func (s *linkSettings) checkListeners(bad, warn config.Bad) {
	seen := map[string]bool{}
	for i, addr := range s.listen {
		a, err := parseAddress(addr)
		switch {
		case err != nil:
			bad("link.listen", "%q %s", addr, err)
		case seen[addr] && a.Port != 0:
			bad("link.listen", "%q is there twice (entry %d)", addr, i+1)
		case a.scheme == "tls" && !s.tls():
			bad("link.listen", "%q needs [link.tls] cert, key and ca", addr)
		case a.scheme == "tcp" && !a.Loopback && !s.insecure:
			bad("link.listen", "%q is beyond loopback without TLS: use tls:// with [link.tls], or set link.insecure = true to expose blocks in clear", addr)
		case a.scheme == "tcp" && !s.insecure && !s.everyPeerHasPSK():
			bad("link.listen", "%q has no way to prove who connects: set link.psk, use tls://, or set link.insecure = true", addr)
		}
		switch {
		case err != nil || len(s.Peers) > 0:
		case a.scheme == "tcp" && s.PSK == "" && !s.insecure:
			warn("link.listen", "%q has no way to prove who connects, so nobody may: add [[link.peer]] and link.psk", addr)
		case !a.Loopback:
			warn("link.listen", "%q reaches other hosts, and there is no [[link.peer]]: only peers on this host may connect", addr)
		}
		seen[addr] = true
	}
}

func (s *linkSettings) everyPeerHasPSK() bool {
	return s.PSK != "" || !slices.ContainsFunc(s.Peers, func(p linkPeer) bool { return p.PSK == "" })
}

func (s *linkSettings) checkPeers(c *config.Config, bad, warn config.Bad) {
	own, names := c.Agent.Name, map[string]bool{}
	for i, p := range s.Peers {
		key := fmt.Sprintf("link.peer[%d]", i)
		switch {
		case p.name == "":
			bad(key+".name", "missing: it names the peer in the allow list")
		case names[p.name]:
			bad(key+".name", "%q is there twice", p.name)
		case p.name == own:
			bad(key+".name", "%q is this agent's own name", p.name)
		}
		if j := slices.IndexFunc(s.Peers[:i], func(o linkPeer) bool { return o.agent != "" && strings.EqualFold(o.agent, p.agent) }); j >= 0 {
			bad(key+".agent", "%q is that of link.peer[%d] too", p.agent, j)
		}
		names[p.name] = true
		config.CheckTenants(key+".tenants", p.tenants, bad)
		if len(p.tenants) == 0 {
			warn(key+".tenants", "empty: peer %q may have no block, so it may not connect", p.name)
		}
		warnMisspelt(key+".tenants", p.tenants, c.Security.Tenants, warn)
		s.checkAddress(key+".address", p, bad)
	}
}

// warnMisspelt tells of a peer that shares no tenant with the engines of this daemon, where
// one is written almost like one of theirs. Without a name that is near it may be meant:
// a node may hold a tenant's blocks and have none of its engines.
func warnMisspelt(key string, tenants, own []string, warn config.Bad) {
	if slices.ContainsFunc(tenants, func(t string) bool { return slices.Contains(own, t) }) {
		return
	}
	for _, t := range tenants {
		if meant, ok := config.Nearest(t, own); ok {
			warn(key, "%q is not in security.tenants, so no engine here shares blocks with this peer; did you mean %q?", t, meant)
		}
	}
}

func (s *linkSettings) checkAddress(key string, p linkPeer, bad config.Bad) {
	if p.address == "" {
		return
	}
	a, err := parseAddress(p.address)
	switch {
	case err != nil:
		bad(key, "%q %s", p.address, err)
	case a.scheme != "unix" && a.Port == 0:
		bad(key, "%q has no port", p.address)
	case a.AnyHost:
		bad(key, "%q is every address of a host: name one that the peer can be reached at", p.address)
	case a.scheme == "tls" && !s.tls():
		bad(key, "%q needs [link.tls] cert, key and ca", p.address)
	case a.scheme == "tcp" && !a.Loopback && !s.insecure:
		bad(key, "%q is beyond loopback without TLS: use tls:// with [link.tls], or set link.insecure = true to send blocks in clear", p.address)
	}
}

// address is a listener's or a peer's, taken apart.
type address struct {
	scheme string // tcp, tls, unix
	config.HostPort
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
		return address{scheme, config.HostPort{Loopback: true}}, nil
	case "tcp", "tls":
		at, err := config.ParseHostPort(rest)
		return address{scheme, at}, err
	}
	return address{}, fmt.Errorf("has scheme %q: it must be tcp, tls or unix", scheme)
}
