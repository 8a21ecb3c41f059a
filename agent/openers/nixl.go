package openers

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"meridian/adapters/nixl"
	"meridian/adapters/nixl/plane"
	"meridian/agent/config"
	"meridian/fabric"
	"meridian/wire"
)

const nixlKind = "nixl"

// The values of emulation.
const (
	emulationAllowed = "allow"
	emulationRefused = "refuse"
)

// nixlSettings is the table of a fabric of NIXL agents.
type nixlSettings struct {
	library, helper, backend, devices   string
	params, environment, peers, tenants []string
	listen, tcpstore, etcdNamespace     string
	allow, etcd                         []string
	window, staging                     uint64
	emulation                           string
	lanes                               int
	notify, insecure, etcdReap          bool
}

var openNIXL = New(
	config.OpensTenants(config.ListsPeers(config.NewFabricKind(nixlKind, "Applications with a NIXL agent: they lend memory for blocks, and bring and take blocks. NIXL's library runs in meridian-ffi, a process of its own. docs/nixl.md tells how.", checkNIXL,
		config.Key("peers", func(s *nixlSettings) *[]string { return &s.peers }, config.Lists, nil, config.Free[[]string](), "The peers, NAME=ADDRESS. ADDRESS says how the peer's agent is found: HOST:PORT is where its listener is, which NIXL has at IPv4 only; listener://AGENT sends its metadata to listen; tcpstore://AGENT has them on the TCPStore; etcd://AGENT has them in etcd. A reload adds, changes and removes peers; the blocks of one that changes or goes are gone.").Live(),
		config.Key("listen", func(s *nixlSettings) *string { return &s.listen }, config.Words, "", config.Free[string](), "HOST:PORT to which agents send their metadata, and where they ask for those of the daemon's agent. Empty: nowhere. Beyond loopback it takes insecure and allow."),
		config.Key("allow", func(s *nixlSettings) *[]string { return &s.allow }, config.Lists, nil, config.Free[[]string](), "Source addresses that may connect to listen besides loopback, ADDRESS/BITS. Who may connect gets the metadata of this daemon's agent. A reload closes the connections of those that are not allowed any more.").Live(),
		config.Key("tcpstore", func(s *nixlSettings) *string { return &s.tcpstore }, config.Words, "", config.Free[string](), "HOST:PORT of a TCPStore, such as listen of a nixl-hub, where agents with NIXL_TCPSTORE_ENDPOINT find the daemon's agent, and the daemon theirs."),
		config.Key("etcd", func(s *nixlSettings) *[]string { return &s.etcd }, config.Lists, nil, config.Free[[]string](), "HOST:PORT of each endpoint of an etcd, where agents with NIXL_ETCD_ENDPOINTS find the daemon's agent, and the daemon theirs."),
		config.Key("etcd_namespace", func(s *nixlSettings) *string { return &s.etcdNamespace }, config.Words, plane.DefaultNamespace, config.Free[string](), "What the agents have as NIXL_ETCD_NAMESPACE."),
		config.Key("etcd_reap", func(s *nixlSettings) *bool { return &s.etcdReap }, config.Booleans, false, config.Free[bool](), "Delete the metadata of a listed agent from etcd once the address in them has refused all connections for 30 s: nothing else ever does, where an agent was killed. A firewall that refuses connections looks the same."),
		config.Key("library", func(s *nixlSettings) *string { return &s.library }, config.Words, "", config.Free[string](), "libnixl_capi.so: the file, its folder, or a folder of Python packages. Empty: it is looked for where pip installs packages, and by the dynamic linker."),
		config.Key("helper", func(s *nixlSettings) *string { return &s.helper }, config.Words, "", config.Free[string](), "Path of meridian-ffi. Empty: beside meridiand, else in PATH."),
		config.Key("backend", func(s *nixlSettings) *string { return &s.backend }, config.Words, "UCX", config.Free[string](), "NIXL's plugin."),
		config.Key("params", func(s *nixlSettings) *[]string { return &s.params }, config.Lists, nil, config.Free[[]string](), "Parameters of the plugin, KEY=VALUE, over its own defaults."),
		config.Key("devices", func(s *nixlSettings) *string { return &s.devices }, config.Words, "lo", config.Free[string](), "Network devices that UCX may use (UCX_NET_DEVICES); auto: the one that `mrdn fabric topology` says is chosen, at each start of meridian-ffi. Another one than lo takes insecure."),
		config.Key("environment", func(s *nixlSettings) *[]string { return &s.environment }, config.Lists, nil, config.Free[[]string](), "Variables of meridian-ffi, NAME=VALUE, such as UCX_TLS=tcp. It gets no UCX_ or NIXL_ variable of the daemon's own environment."),
		config.Key("emulation", func(s *nixlSettings) *string { return &s.emulation }, config.Words, emulationAllowed, config.NewRule("allow or refuse", func(v string) bool { return v == emulationAllowed || v == emulationRefused }), "Whether UCX may do in software what a transport cannot, such as reads over TCP: the peer's processor then takes part in each. A peer that can be reached in no other way is not usable where it is refused, and a route that requires this fabric fails."),
		config.Key("window_bytes", func(s *nixlSettings) *uint64 { return &s.window }, config.Sizes, 64<<20, config.BytesWithin(1<<16, 1<<40), "Bytes of the window that each listed peer may write and read."),
		config.Key("staging_bytes", func(s *nixlSettings) *uint64 { return &s.staging }, config.Sizes, nixl.DefaultStaging, config.BytesWithin(nixl.MinStaging, 1<<40), "Bytes through which blocks go to and come from the memory of peers, of which one peer has half at most."),
		config.Key("lanes", func(s *nixlSettings) *int { return &s.lanes }, config.Integers, 2, config.Within(1, 16), "Pulls of one load that run side by side."),
		config.Key("tenants", func(s *nixlSettings) *[]string { return &s.tenants }, config.Lists, nil, config.Free[[]string](), "Tenants whose blocks listed peers may bring and take. NIXL proves no tenant."),
		config.Key("notify", func(s *nixlSettings) *bool { return &s.notify }, config.Booleans, false, config.Free[bool](), "Tell a peer by a notification which block lies where in its memory. Its agent keeps these until the application takes them."),
		config.Key("insecure", func(s *nixlSettings) *bool { return &s.insecure }, config.Booleans, false, config.Free[bool](), "Allow NIXL beyond loopback: it has no TLS, and a process that has the metadata of this daemon's agent can write the windows of all peers of this table."),
	), func(s *nixlSettings) []string { return listedNames(s.peers) }), func(s *nixlSettings) []string { return s.tenants }),
	func(ctx context.Context, at Site, s *nixlSettings) (fabric.Fabric, error) {
		c := nixl.Config{
			Label: at.Name, Agent: at.Agent, Window: s.window, Staging: s.staging, Lanes: s.lanes, Notify: s.notify, Tenants: s.tenants,
			Helper: nixl.HelperConfig{
				Path: s.helper, Library: s.library, Backend: s.backend, Params: s.params, Devices: s.devices, Environment: s.environment, RefuseEmulation: s.emulation == emulationRefused, Log: at.Log.With("fabric", at.Name),
			},
			Store: at.Store, Windows: at.Windows, Tenant: at.Spaces.Tenant, Gateway: at.Gateway,
			Observer: nixl.Observer{
				Changed: at.Observer.PeerChanged,
				Moved: func(peer string, in bool, via string, bytes uint64, took time.Duration) {
					at.Observer.Served(Served{Fabric: at.Name, Peer: peer, In: in, Class: fabric.ClassNormal, Via: via, Items: 1, Bytes: bytes, Took: took})
				},
				Refused: func(who string, listed bool, err error) {
					at.Observer.Refused(wire.CodeOf(err))
					key := "from" // strangers are one kind of log line
					if listed {
						key = "peer"
					}
					at.Log.Info("nixl: a request was refused", "fabric", at.Name, key, who, "err", err)
				},
				Wrong: func(peer string) { at.Observer.ArrivedWrong(at.Name, peer) },
			},
		}
		if s.devices == autoDevices {
			c.Helper.Choose = chooseDevices(at.Config, c.Helper)
		}
		c.Peers = s.listed()
		if err := openPlanes(at, s, &c); err != nil {
			return nil, err
		}
		n, err := nixl.New(ctx, c)
		if err != nil {
			return nil, err // not a nil *Node in an interface
		}
		return &liveNIXL{n}, nil
	},
)

// listedNames are the names of entries NAME=ADDRESS.
func listedNames(peers []string) (names []string) {
	for _, p := range peers {
		name, _, _ := strings.Cut(p, "=")
		names = append(names, name)
	}
	return names
}

func checkNIXL(s *nixlSettings, bad config.Bad) {
	checkPlanes(s, bad)
	names, agents := map[string]bool{}, map[string]bool{}
	for _, p := range s.peers {
		name, addr, ok := strings.Cut(p, "=")
		if by, agent := nixl.Planned(addr); by != "" && peerName.MatchString(name) && !names[name] {
			if checkPeerPlane(s, bad, p, by, agent); agents[agent] {
				bad("peers", "%q: the agent %q is there twice", p, agent)
			}
			names[name], agents[agent] = true, true
			continue
		}
		host, port, err := net.SplitHostPort(addr)
		number, wrong := strconv.ParseUint(port, 10, 16)
		switch {
		case !ok || !peerName.MatchString(name):
			bad("peers", "%q must be NAME=ADDRESS, the name 1 to 32 lower-case letters, digits or hyphens", p)
		case err != nil:
			bad("peers", "%q: %v", p, err)
		case wrong != nil || number == 0:
			bad("peers", "%q must have a port from 1 to 65535", p)
		case strings.Contains(host, ":"):
			bad("peers", "%q is an IPv6 address, and NIXL listens at IPv4 only", p)
		case names[name]:
			bad("peers", "%q is there twice", name)
		case !onThisHost(host) && !s.insecure:
			bad("peers", "%q is beyond loopback, and NIXL has no TLS: set insecure = true to send blocks in clear", p)
		}
		names[name] = true
	}
	if s.devices != "lo" && !s.insecure {
		bad("devices", "%q is beyond loopback, and NIXL has no TLS: set insecure = true to send blocks in clear", s.devices)
	}
	for key, list := range map[string][]string{"params": s.params, "environment": s.environment} {
		if i := slices.IndexFunc(list, func(v string) bool { name, _, ok := strings.Cut(v, "="); return !ok || name == "" }); i >= 0 {
			bad(key, "%q must be NAME=VALUE", list[i])
		}
	}
	for _, v := range s.environment {
		for variable, key := range map[string]string{"UCX_NET_DEVICES": "devices", "UCX_PROTO_EMULATION_ENABLE": "emulation"} {
			if strings.HasPrefix(v, variable+"=") {
				bad("environment", "%q: set %s instead", v, key)
			}
		}
	}
	if s.backend == "" {
		bad("backend", "empty: name a plugin of NIXL, such as UCX")
	}
}
