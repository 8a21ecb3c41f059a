package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"meridian/internal/httpguard"
)

// check tests what keys say together.
func (l *loader) check() {
	l.checkNumbers()
	l.checkNames()
	l.checkTLS()
	l.checkListeners()
	l.checkPeers()
	l.checkFabrics()
	l.checkLlama()
	l.checkGuard("admin", httpguard.Config{Hosts: l.cfg.Admin.Hosts, Origins: l.cfg.Admin.Origins})
	l.checkGuard("llama", httpguard.Config{Hosts: l.cfg.Llama.Hosts, Origins: l.cfg.Llama.Origins})
}

// checkGuard tests who may ask an HTTP listener.
func (l *loader) checkGuard(table string, c httpguard.Config) {
	var bad *httpguard.ConfigError
	if _, err := httpguard.New(c); errors.As(err, &bad) {
		l.fail(table+"."+bad.Field, "%s", bad.Text)
	}
}

func (l *loader) checkNumbers() {
	s := l.cfg.Scheduler
	if s.MinThinkTokens >= s.MaxThinkTokens {
		l.fail("scheduler.min_think_tokens", "%d must be below scheduler.max_think_tokens, which is %d", s.MinThinkTokens, s.MaxThinkTokens)
	}
	if s.ThinkBatchMultiplier > 3.5 {
		l.warn("scheduler.think_batch_multiplier", "%g is above 3.5: output tokens may miss their budget", s.ThinkBatchMultiplier)
	}
	m, a := l.cfg.KVMemory, l.cfg.Arena
	if _, given := l.from["arena.extent_bytes"]; !given {
		a.Extent = min(a.Extent, m.Capacity) // a small arena is cut finer
	}
	if m.BlockSize > a.Extent-64 { // 64: the header's room in front of a body
		l.fail("kv_memory.block_size_bytes", "%s does not fit into one extent: arena.extent_bytes is %s", FormatBytes(m.BlockSize), FormatBytes(a.Extent))
	}
	if m.Capacity < a.Extent {
		l.fail("kv_memory.capacity_bytes", "%s is less than one extent: arena.extent_bytes is %s", FormatBytes(m.Capacity), FormatBytes(a.Extent))
	}
	if u, err := url.Parse(l.cfg.Telemetry.OTLPEndpoint); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		l.fail("telemetry.otlp_endpoint", "%q must be an http or https URL", l.cfg.Telemetry.OTLPEndpoint)
	}
	if l.cfg.Telemetry.OTLPEnabled {
		l.warn("telemetry.otlp_enabled", "this build has no OTLP exporter: nothing is sent")
	}
}

// impossible is how many times the memory there is an arena may have. Up to there
// the value may be meant for another machine, or for one with swap; beyond it is a
// wrong unit.
const impossible = 8

// checkMemory compares the arena with what the machine or the cgroup has.
func (l *loader) checkMemory(m Memory) {
	const key = "kv_memory.capacity_bytes"
	capacity := l.cfg.KVMemory.Capacity
	most, of := m.Most()
	switch {
	case most == 0 || capacity <= most:
	case capacity/impossible > most:
		l.fail(key, "%s is more than %d times the %s that %s: is the unit right?", FormatBytes(capacity), impossible, FormatBytes(most), of)
	default:
		l.warn(key, "%s is more than the %s that %s: the kernel ends the daemon when the arena fills; lower it, or set it to \"auto\"", FormatBytes(capacity), FormatBytes(most), of)
	}
}

func (l *loader) checkNames() {
	if !nameForm.MatchString(l.cfg.Agent.Name) {
		l.fail("agent.name", "the host's name %q must be %s; set agent.name", l.cfg.Agent.Name, nameRule.words)
	}
	for _, m := range l.cfg.Models {
		if len(m.ThinkEnd) == 0 {
			l.warn("model."+m.Name+".think_end_token_ids", "empty: thinking of this model is never ended by force")
		}
	}
	l.checkTenants("security.tenants", l.cfg.Security.Tenants)
	for _, p := range []struct{ key, path string }{{"engine.socket", l.cfg.Engine.Socket}, {"admin.socket", l.cfg.Admin.Socket}} {
		if len(p.path) > 107 { // sun_path is 108 bytes with its NUL
			l.fail(p.key, "%q has %d bytes: the path of a Unix socket has at most 107", p.path, len(p.path))
		}
	}
	if l.cfg.Engine.Socket == l.cfg.Admin.Socket {
		l.fail("engine.socket", "%q is the admin socket too", l.cfg.Engine.Socket)
	}
}

// checkTenants: names go into manifests, which are lines of text.
func (l *loader) checkTenants(key string, tenants []string) {
	for _, t := range tenants {
		if t == "" || strings.ContainsFunc(t, func(r rune) bool { return r < 0x20 || r == 0x7f || r == 0xfffd }) {
			l.fail(key, "%q must be a name without control characters", t)
		}
	}
}

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
	if q := l.cfg.Quota; q.SourceHalfOpen > q.HalfOpen {
		l.fail("quota.source_half_open", "%d is above quota.half_open, which is %d", q.SourceHalfOpen, q.HalfOpen)
	}
	l.checkHTTP()
}

func (l *loader) everyPeerHasPSK() bool {
	return l.cfg.Link.PSK != "" || !slices.ContainsFunc(l.cfg.Link.Peers, func(p Peer) bool { return p.PSK == "" })
}

func (l *loader) checkHTTP() {
	addr := l.cfg.Admin.HTTP
	if addr == "" {
		return
	}
	a, err := parseHostPort(addr)
	switch {
	case err != nil:
		l.fail("admin.http", "%q %s", addr, err)
	case !a.loopback && !l.cfg.Admin.Insecure:
		l.fail("admin.http", "%q is beyond loopback, and has no TLS: bind it to 127.0.0.1, or set admin.insecure = true", addr)
	}
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

func (l *loader) checkFabrics() {
	l.endFabrics()
	d := l.cfg.Disagg
	if d.Enabled && d.Fabric == "none" {
		l.fail("disagg.fabric", "none, while disagg.enabled is true: name the fabric that takes the blocks (%s), or set disagg.enabled = false", strings.Join(l.fabricNames(), ", "))
	}
	if d.Fabric != "none" {
		l.checkFabric("disagg.fabric", d.Fabric, d.Enabled)
	}
	for i, r := range l.cfg.Routes {
		key := fmt.Sprintf("route[%d]", i)
		if r.Fabric == "" {
			l.fail(key+".fabric", "missing: one of %s", strings.Join(l.fabricNames(), ", "))
		} else {
			l.checkFabric(key+".fabric", r.Fabric, true)
		}
		if r.MaxBytes != 0 && r.MaxBytes < r.MinBytes {
			l.fail(key+".max_bytes", "%d is below min_bytes, which is %d: the route matches nothing", r.MaxBytes, r.MinBytes)
		}
		l.checkRoutePeer(key+".peer", r.Peer)
	}
}

// checkFabric tests a name that a key uses; one that is not in use may lack peers.
func (l *loader) checkFabric(key, fabric string, used bool) {
	switch {
	case l.tried[fabric]: // what is wrong with its table has been said
	case !slices.Contains(l.fabricNames(), fabric):
		l.fail(key, "%q is no [fabric.NAME] of the file, and not in this build, which has %s%s", fabric, strings.Join(l.fabricNames(), ", "), didYouMean(Nearest(fabric, l.fabricNames())))
	case used && fabric == linkFabric && len(l.cfg.Link.Peers) == 0:
		l.fail(key, "\"link\" needs a peer: add [[link.peer]]")
	}
}

func (l *loader) checkRoutePeer(key, peer string) {
	names := make([]string, len(l.cfg.Link.Peers))
	for i, p := range l.cfg.Link.Peers {
		names[i] = p.Name
	}
	if peer != "" && !slices.Contains(names, peer) {
		l.fail(key, "%q is no [[link.peer]]%s", peer, didYouMean(Nearest(peer, names)))
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

// parseHostPort resolves no names: only localhost is loopback by name.
func parseHostPort(s string) (address, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if strings.Count(s, ":") > 1 && !strings.HasPrefix(s, "[") {
			return address{}, errors.New("must have an IPv6 address in brackets: [::1]:7400")
		}
		return address{}, errors.New("must be host:port")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return address{}, errors.New("must have a port between 0 and 65535")
	}
	ip := net.ParseIP(host)
	return address{
		port:     int(n),
		loopback: host == "localhost" || (ip != nil && ip.IsLoopback()),
		anyHost:  host == "" || (ip != nil && ip.IsUnspecified()),
	}, nil
}
