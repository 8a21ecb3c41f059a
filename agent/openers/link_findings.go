package openers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"meridian/agent/finding"
)

// linkChecks are what the link looks at on a host.
var linkChecks = []finding.Check{
	{ID: "net.congestion", About: "TCP congestion control of the link's sockets", Run: finding.One(checkCongestion)},
	{ID: "net.advertised", About: "listeners that remote peers can reach", Run: finding.One(checkReachable)},
	{ID: "llama.partner_link", About: "a prefill/decode split against the link's peers", Run: finding.One(checkPartnerLink)},
}

func checkCongestion(h *finding.Host) finding.Finding {
	kernel := h.Trimmed("/proc/sys/net/ipv4/tcp_congestion_control")
	used, from := kernel, "net.ipv4.tcp_congestion_control"
	if h.Config != nil && linkOf(h.Config).congestion != "" {
		used, from = linkOf(h.Config).congestion, "link.congestion"
		allowed := strings.Fields(h.Trimmed("/proc/sys/net/ipv4/tcp_available_congestion_control"))
		if len(allowed) > 0 && !slices.Contains(allowed, used) {
			return finding.Failed(from+" = "+used, "the kernel has only "+strings.Join(allowed, ", "), "load the module, or choose one of these")
		}
	}
	subject := from + " = " + cmp.Or(used, "unknown")
	if strings.HasPrefix(used, "bbr") {
		return finding.Warned(subject, used+" paces by a model of the path and halves throughput on loopback and inside a rack; in a comparison every side must use the same",
			`set link.congestion = "cubic"; the kernel's default stays as it is`)
	}
	return finding.Fine(subject, "no pacing that costs throughput in a rack")
}

// checkReachable looks for peers on other hosts that have no way to us.
func checkReachable(h *finding.Host) finding.Finding {
	if h.Config == nil {
		return finding.Fine("link.listen", "no configuration to look at")
	}
	s := linkOf(h.Config)
	var far, dialling []string
	for _, p := range s.Peers {
		switch {
		case p.address == "":
			dialling = append(dialling, p.name)
		case !loopback(p.address):
			far = append(far, p.name)
		}
	}
	subject := fmt.Sprintf("link.listen = %v", s.listen)
	switch {
	case len(dialling) > 0 && len(s.listen) == 0:
		return finding.Failed(subject, "peers without an address ("+strings.Join(dialling, ", ")+") must dial us, and we listen nowhere",
			"set link.listen, or give these peers an address")
	case len(far) > 0 && len(s.listen) > 0 && !slices.ContainsFunc(s.listen, func(a string) bool { return !loopback(a) }):
		return finding.Warned(subject, "peers on other hosts ("+strings.Join(far, ", ")+") cannot reach a loopback listener: only we can dial them",
			"listen on an address that they can reach, with tls://")
	}
	return finding.Fine(subject, "nothing contradicts the list of peers")
}

// loopback says whether an address stays on this host.
func loopback(addr string) bool {
	a, err := parseAddress(addr)
	return err == nil && a.Loopback
}

// checkPartnerLink looks for a node of a split that has nobody to pull blocks
// from: its partner's prefill would be of no use.
func checkPartnerLink(h *finding.Host) finding.Finding {
	if h.Config == nil || !h.Config.Llama.On() || h.Config.Llama.Partner == "" {
		return finding.Fine("llama.partner", "there is no partner")
	}
	c, s := h.Config, linkOf(h.Config)
	subject := fmt.Sprintf("llama.partner = %s, link.peer: %d", c.Llama.Partner, len(s.Peers))
	if c.Llama.Role == "both" || len(s.Peers) > 0 {
		return finding.Fine(subject, "the partner's daemon can be a peer")
	}
	const fix = "add a [[link.peer]] with the name and address of the partner's daemon, on both nodes"
	if len(s.listen) > 0 {
		return finding.Warned(subject, "no peer is configured: blocks can be had only if the partner's daemon dials this one", fix)
	}
	return finding.Failed(subject, "no peer is configured and nobody can dial: the partner is never asked, and this node computes every prompt", fix)
}
