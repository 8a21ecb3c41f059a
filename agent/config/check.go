package config

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"meridian/internal/httpguard"
)

// check tests what keys say together.
func (l *loader) check() {
	l.checkNumbers()
	l.checkNames()
	l.checkQuota()
	l.checkNamespaces()
	l.checkHTTP()
	l.checkFixed()
	l.checkFabrics()
	l.checkLlama()
	l.checkListeners()
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
	if s.Policy == "output-first" && s.ThinkBatchMultiplier > 3.5 { // no other policy reads it
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
		l.warn(key, "%s is more than the %s that %s: the kernel slows the daemon down or ends it when the arena fills; lower it, or set it to \"auto\"", FormatBytes(capacity), FormatBytes(most), of)
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
	CheckTenants("security.tenants", l.cfg.Security.Tenants, l.fail)
	for _, p := range []struct{ key, path string }{{"engine.socket", l.cfg.Engine.Socket}, {"admin.socket", l.cfg.Admin.Socket}} {
		if len(p.path) > 107 { // sun_path is 108 bytes with its NUL
			l.fail(p.key, "%q has %d bytes: the path of a Unix socket has at most 107", p.path, len(p.path))
		}
	}
}

// CheckTenants tests a list of tenants: names go into manifests, which are lines of
// text.
func CheckTenants(key string, tenants []string, bad Bad) {
	for _, t := range tenants {
		if t == "" || strings.ContainsFunc(t, func(r rune) bool { return r < 0x20 || r == 0x7f || r == 0xfffd }) {
			bad(key, "%q must be a name without control characters", t)
		}
	}
}

func (l *loader) checkQuota() {
	q := l.cfg.Quota
	for _, s := range []struct {
		key, all  string
		part, sum int
	}{
		{"quota.source_half_open", "quota.half_open", q.SourceHalfOpen, q.HalfOpen},
		{"quota.source_http_connections", "quota.http_connections", q.SourceHTTPConns, q.HTTPConns},
		{"quota.source_front_connections", "quota.front_connections", q.SourceFrontConns, q.FrontConns},
	} {
		if s.part > s.sum {
			l.fail(s.key, "%d is above %s, which is %d", s.part, s.all, s.sum)
		}
	}
}

func (l *loader) checkHTTP() {
	addr := l.cfg.Admin.HTTP
	if addr == "" {
		return
	}
	a, err := ParseHostPort(addr)
	switch {
	case err != nil:
		l.fail("admin.http", "%q %s", addr, err)
	case !a.Loopback && !l.cfg.Admin.Insecure:
		l.fail("admin.http", "%q is beyond loopback, and has no TLS: bind it to 127.0.0.1, or set admin.insecure = true", addr)
	}
}

// HostPort is an address to listen at or to connect to, as far as it can be told
// without resolving a name.
type HostPort struct {
	Port     int
	Loopback bool // reaches no other host
	AnyHost  bool // 0.0.0.0, [::] or no host at all
}

// ParseHostPort reads host:port: only localhost is loopback by name. The error
// completes a sentence that begins with what was read.
func ParseHostPort(s string) (HostPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if strings.Count(s, ":") > 1 && !strings.HasPrefix(s, "[") {
			return HostPort{}, errors.New("must have an IPv6 address in brackets: [::1]:7400")
		}
		return HostPort{}, errors.New("must be host:port")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return HostPort{}, errors.New("must have a port between 0 and 65535")
	}
	ip := net.ParseIP(host)
	return HostPort{
		Port:     int(n),
		Loopback: host == "localhost" || (ip != nil && ip.IsLoopback()),
		AnyHost:  host == "" || (ip != nil && ip.IsUnspecified()),
	}, nil
}
