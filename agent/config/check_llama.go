package config

import (
	"net/url"
	"slices"
	"strings"
)

// checkLlama tests the table [llama]. That its files exist is the node's to say,
// since they may come later than the configuration.
func (l *loader) checkLlama() {
	c := l.cfg.Llama
	if !c.On() {
		if c.Server != "" || c.Partner != "" {
			l.fail("llama.model", "missing: [llama] has no use without it")
		}
		return
	}
	if c.Server == "" {
		l.fail("llama.server", "missing: the path of a llama-server binary")
	}
	if !slices.Contains(l.cfg.Security.Tenants, c.Tenant) {
		l.fail("llama.tenant", "%q is not in security.tenants, which is %q", c.Tenant, l.cfg.Security.Tenants)
	}
	if (c.ThinkStart == "") != (c.ThinkEnd == "") {
		l.fail("llama.think_end", "%q, and llama.think_start is %q: both or none", c.ThinkEnd, c.ThinkStart)
	}
	if c.ThinkOpen && c.ThinkStart == "" {
		l.fail("llama.think_open", "true, and there is no llama.think_start to append")
	}
	if c.Context < 2*c.BlockTokens {
		l.fail("llama.context", "%d tokens are fewer than two blocks: llama.block_tokens is %d", c.Context, c.BlockTokens)
	}
	l.checkFront()
	l.checkPartner()
}

func (l *loader) checkFront() {
	c := l.cfg.Llama
	a, err := ParseHostPort(c.Listen)
	switch {
	case err != nil:
		l.fail("llama.listen", "%q %s", c.Listen, err)
	case !a.Loopback && !c.Insecure:
		l.fail("llama.listen", "%q is beyond loopback, and has no TLS: bind it to 127.0.0.1, or set llama.insecure = true", c.Listen)
	case !a.Loopback && c.Token == "":
		l.fail("llama.token", "missing: llama.listen %q is beyond loopback", c.Listen)
	}
}

func (l *loader) checkPartner() {
	c := l.cfg.Llama
	if c.Partner == "" {
		if c.Role != "both" {
			l.fail("llama.partner", "missing: a node of role %q needs the URL of the other node's front", c.Role)
		}
		return
	}
	u, err := url.Parse(c.Partner)
	switch {
	case err == nil && u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/":
		l.fail("llama.partner", "%q must be http://host:port, https://host:port or unix:///path", c.Partner)
	case u.Scheme == "http" && !c.Insecure:
		if a, err := ParseHostPort(u.Host); err != nil || !a.Loopback {
			l.fail("llama.partner", "%q sends prompts in clear beyond loopback: use https through a proxy, or set llama.insecure = true", c.Partner)
		}
	}
}
