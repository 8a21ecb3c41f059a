package finding

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"meridian/agent/config"
)

func checkCongestion(h *Host) Finding {
	kernel := h.trimmed("/proc/sys/net/ipv4/tcp_congestion_control")
	used, from := kernel, "net.ipv4.tcp_congestion_control"
	if h.Config != nil && h.Config.Link.Congestion != "" {
		used, from = h.Config.Link.Congestion, "link.congestion"
		allowed := strings.Fields(h.trimmed("/proc/sys/net/ipv4/tcp_available_congestion_control"))
		if len(allowed) > 0 && !slices.Contains(allowed, used) {
			return fail(from+" = "+used, "the kernel has only "+strings.Join(allowed, ", "), "load the module, or choose one of these")
		}
	}
	subject := from + " = " + orUnknown(used)
	if strings.HasPrefix(used, "bbr") {
		return warn(subject, used+" paces by a model of the path and halves throughput on loopback and inside a rack; in a comparison every side must use the same",
			`set link.congestion = "cubic"; the kernel's default stays as it is`)
	}
	return ok(subject, "no pacing that costs throughput in a rack")
}

// checkAdvertised looks for peers on other hosts that have no way to us.
func checkAdvertised(h *Host) Finding {
	if h.Config == nil {
		return ok("link.listen", "no configuration to look at")
	}
	l := h.Config.Link
	var far, dialling []string
	for _, p := range l.Peers {
		switch {
		case p.Address == "":
			dialling = append(dialling, p.Name)
		case !loopback(p.Address):
			far = append(far, p.Name)
		}
	}
	subject := fmt.Sprintf("link.listen = %v", l.Listen)
	switch {
	case len(dialling) > 0 && len(l.Listen) == 0:
		return fail(subject, "peers without an address ("+strings.Join(dialling, ", ")+") must dial us, and we listen nowhere",
			"set link.listen, or give these peers an address")
	case len(far) > 0 && len(l.Listen) > 0 && !slices.ContainsFunc(l.Listen, func(a string) bool { return !loopback(a) }):
		return warn(subject, "peers on other hosts ("+strings.Join(far, ", ")+") cannot reach a loopback listener: only we can dial them",
			"listen on an address that they can reach, with tls://")
	}
	return ok(subject, "nothing contradicts the list of peers")
}

// loopback says whether an address stays on this host. No name but localhost
// is looked up.
func loopback(addr string) bool {
	scheme, rest, _ := strings.Cut(addr, "://")
	if scheme == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(rest)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// shmSmall is what container engines give /dev/shm unless told otherwise.
const shmSmall = 64 << 20

func checkShm(h *Host) Finding {
	n, err := h.ShmBytes()
	switch {
	case err != nil:
		return ok("/dev/shm", "absent, and not needed: segments are memory files")
	case n <= shmSmall:
		return ok("/dev/shm = "+config.FormatBytes(n), "small, and it does not matter here: segments are memory files and count against the memory cgroup. The engine beside us may need --shm-size")
	}
	return ok("/dev/shm = "+config.FormatBytes(n), "not used: segments are memory files")
}

func checkConfigMode(h *Host) Finding {
	if h.Config == nil || h.Config.File == "" {
		return ok("configuration", "no file is read")
	}
	mode, err := h.Mode(h.Config.File)
	if err != nil {
		return warn(h.Config.File, "its mode cannot be read: "+err.Error(), "see that the file is there, and readable for the daemon")
	}
	subject := fmt.Sprintf("%s, mode %04o", h.Config.File, mode)
	if keys := h.Config.SecretsInFile(); len(keys) > 0 && mode&0o044 != 0 {
		return warn(subject, "it holds "+strings.Join(keys, ", ")+", and others than its owner can read it", "chmod 600, or set secrets by their variables")
	}
	return ok(subject, "no secret is open to others")
}

// checkPartnerLink looks for a node of a split that has nobody to pull blocks
// from: its partner's prefill would be of no use.
func checkPartnerLink(h *Host) Finding {
	if h.Config == nil || !h.Config.Llama.On() || h.Config.Llama.Partner == "" {
		return ok("llama.partner", "there is no partner")
	}
	c := h.Config
	subject := fmt.Sprintf("llama.partner = %s, link.peer: %d", c.Llama.Partner, len(c.Link.Peers))
	if c.Llama.Role == "both" || len(c.Link.Peers) > 0 {
		return ok(subject, "the partner's daemon can be a peer")
	}
	const fix = "add a [[link.peer]] with the name and address of the partner's daemon, on both nodes"
	if len(c.Link.Listen) > 0 {
		return warn(subject, "no peer is configured: blocks can be had only if the partner's daemon dials this one", fix)
	}
	return fail(subject, "no peer is configured and nobody can dial: the partner is never asked, and this node computes every prompt", fix)
}
