package finding

import (
	"slices"
	"strings"

	"meridian/agent/config"
)

// A variable is one that a transport or this program reads.
type variable struct {
	changes string
	bad     func(value string) (reason, fix string) // nil: never bad
}

// known are the variables whose effect is worth saying. Sources: UCX, NIXL and
// Mooncake read them in their own processes; see their manuals.
var known = map[string]variable{
	"UCX_TLS":                       {"the transports that UCX may use", ucxTLS},
	"UCX_NET_DEVICES":               {"the devices that UCX may use", ucxDevices},
	"UCX_PROTO_EMULATION_ENABLE":    {"whether UCX emulates one-sided operations in software where the transport has none", ucxEmulation},
	"UCX_RCACHE_MAX_UNRELEASED":     {"how much unregistered memory UCX's registration cache keeps", nil},
	"UCX_MEM_MMAP_HOOK_MODE":        {"how UCX watches memory being unmapped", nil},
	"UCX_MODULE_DIR":                {"where UCX loads its transports from", nil},
	"UCX_LOG_LEVEL":                 {"how much UCX logs", nil},
	"NIXL_PLUGIN_DIR":               {"where NIXL loads its backends from", nil},
	"NIXL_PREFIX":                   {"where NIXL is installed", nil},
	"NIXL_LOG_LEVEL":                {"how much NIXL logs", nil},
	"NIXL_ETCD_ENDPOINTS":           {"the etcd that NIXL keeps its metadata in", nil},
	"NIXL_ETCD_NAMESPACE":           {"the prefix of NIXL's keys in etcd", nil},
	"NIXL_CONFIG_FILE":              {"NIXL's own configuration", nil},
	"NIXL_UCX_SGL_ENABLE":           {"whether NIXL posts scatter lists to UCX", nil},
	"MC_TCP_BIND_ADDRESS":           {"the address that Mooncake listens on and publishes", mcBind},
	"MC_FORCE_TCP":                  {"Mooncake uses TCP even where it has RDMA", mcForceTCP},
	"MC_TCP_ENABLE_CONNECTION_POOL": {"whether Mooncake keeps its connections", mcPool},
	"MC_TCP_LANES_PER_PEER":         {"Mooncake's connections to a peer", nil},
	"MC_TCP_PROTO":                  {"the version of Mooncake's TCP framing", mcProto},
	"MC_TCP_SLICE_SIZE":             {"the size of Mooncake's reads and writes", nil},
	"MC_TRANSFER_TIMEOUT":           {"seconds until Mooncake gives a transfer up", nil},
	"MC_HANDSHAKE_PORT":             {"Mooncake's metadata port", nil},
	"MC_USE_IPV6":                   {"Mooncake speaks IPv6", nil},
	"MC_MIN_RPC_PORT":               {"the lowest of Mooncake's data ports", nil},
	"MC_MAX_RPC_PORT":               {"the highest of Mooncake's data ports", nil},
	"MC_USE_TENT":                   {"the other transfer engine of Mooncake, which speaks another protocol", mcTent},
	"MC_USE_TEV1":                   {"the other transfer engine of Mooncake, which speaks another protocol", mcTent},
	"MC_DISABLE_METACACHE":          {"Mooncake asks its metadata server for each transfer", nil},
}

var foreign = []string{"UCX_", "NIXL_", "MC_"}

// checkEnvironment makes a finding for each variable in force.
func checkEnvironment(h *Host) []Finding {
	var out []Finding
	env := slices.Sorted(slices.Values(h.Env))
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case strings.HasPrefix(name, "MERIDIAN_"):
			out = append(out, ours(name, value, h.Kinds))
		case slices.ContainsFunc(foreign, func(p string) bool { return strings.HasPrefix(name, p) }):
			out = append(out, theirs(name, value))
		}
	}
	if len(out) == 0 {
		return []Finding{Fine("environment", "no MC_*, NIXL_*, UCX_* or MERIDIAN_* variable is set")}
	}
	return out
}

func theirs(name, value string) Finding {
	f := Finding{ID: "env." + name, Subject: name + "=" + value, Reason: "in force; this program does not know what it changes"}
	if secretName(name) {
		f.Subject = name + "=[redacted]"
	}
	v, isKnown := known[name]
	if !isKnown {
		return f
	}
	f.Reason = "changes " + v.changes
	if v.bad == nil {
		return f
	}
	if reason, fix := v.bad(value); reason != "" {
		f.Severity, f.Reason, f.Fix = Warn, f.Reason+": "+reason, fix
	}
	return f
}

func ours(name, value string, kinds []config.FabricKind) Finding {
	f := Finding{ID: "env." + name, Subject: name + "=" + value}
	key, err := config.CheckVariable(name, value, kinds...)
	if secretName(name) {
		f.Subject = name + "=[redacted]"
	}
	switch {
	case err != nil:
		f.Severity, f.Reason, f.Fix = Err, "the daemon refuses to start with it: "+err.Error(), "unset or correct it"
	case key == "":
		f.Reason = "a setting of the command line, not of the daemon"
	default:
		f.Reason = "sets " + key + ", above the file"
	}
	return f
}

func secretName(name string) bool {
	for _, part := range []string{"PSK", "PASSWORD", "SECRET", "TOKEN"} {
		if strings.HasSuffix(name, part) {
			return true
		}
	}
	return false
}

// ucxTLS: a list without an RDMA transport takes RDMA away, silently.
func ucxTLS(value string) (reason, fix string) {
	for _, t := range strings.Split(strings.ToLower(value), ",") {
		switch {
		case strings.HasPrefix(value, "^"):
			return "", ""
		case t == "all", t == "ib", strings.HasPrefix(t, "rc"), strings.HasPrefix(t, "dc"), strings.HasPrefix(t, "ud"), t == "srd":
			return "", ""
		}
	}
	return "no RDMA transport is in the list, so everything between hosts goes by TCP, without a word in any log; often it was injected by an image or a chart",
		"unset it on a host with RDMA; keep it where there is none"
}

func ucxDevices(value string) (reason, fix string) {
	for _, d := range strings.Split(value, ",") {
		if strings.HasPrefix(d, "docker") || strings.HasPrefix(d, "veth") || strings.HasPrefix(d, "br-") {
			return d + " is a bridge of this host only: other hosts cannot reach what is advertised on it", "name the device that the peers are on"
		}
	}
	return "", ""
}

func ucxEmulation(value string) (reason, fix string) {
	if v := strings.ToLower(value); v == "n" || v == "no" || v == "0" {
		return "a one-sided read over TCP fails with a misleading error", "set it to y, or use a transport with one-sided reads"
	}
	return "", ""
}

func mcBind(value string) (reason, fix string) {
	switch value {
	case "0.0.0.0", "::":
		return "a wildcard is published as the address, and no peer can dial it", "set the address that peers reach"
	}
	return "", ""
}

func mcForceTCP(value string) (reason, fix string) {
	if value == "" || value == "0" {
		return "", ""
	}
	return "RDMA is not used", "unset it on a host with RDMA"
}

func mcPool(value string) (reason, fix string) {
	if v := strings.ToLower(value); v == "0" || v == "false" || v == "no" {
		return "each transfer makes a connection of its own, and a batch as many at once", "set it to 1"
	}
	return "", ""
}

func mcProto(value string) (reason, fix string) {
	if value == "1" {
		return "the first framing has no status: a failed write looks like a success", "unset it unless an old peer needs it"
	}
	return "", ""
}

func mcTent(value string) (reason, fix string) {
	if value == "" || value == "0" {
		return "", ""
	}
	return "peers that speak the classic protocol cannot talk to it", "unset it"
}
