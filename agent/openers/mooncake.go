package openers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"meridian/adapters/mooncake"
	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/adapters/mooncake/store"
	"meridian/agent/config"
	"meridian/fabric"
	"meridian/internal/door"
	"meridian/wire"
)

const mooncakeKind = "mooncake"

// mooncakeSettings is the table of a fabric of Mooncake peers.
type mooncakeSettings struct {
	listen, data, advertise string
	peers, tenants, allow   []string
	memory, window          uint64
	lanes                   int
	notify, insecure        bool
	metadata, cluster       string
	segment                 string
	masters, storeCluster   string
	lend                    uint64
	metaListen              string
	metaHosts               []string
}

var openMooncake = New(
	config.OpensTenants(config.ListsPeers(config.NewFabricKind(mooncakeKind, "Applications that speak Mooncake's transfer engine over TCP, and nothing else: their registered memory holds blocks, and they bring and take blocks. docs/mooncake.md tells how.", checkMooncake,
		config.Key("peers", func(s *mooncakeSettings) *[]string { return &s.peers }, config.Lists, nil, config.Free[[]string](), "The peers, NAME=HOST:PORT, the latter the name of the segment, an IPv6 address in brackets; without :PORT it is 12001. With a metadata server the segment's name may be any. The first buffer of each is memory for blocks. Where two have one address, this daemon cannot serve them, since Mooncake proves nothing else. A reload adds, changes and removes peers; the blocks and the window of one that changes or goes are gone.").Live(),
		config.Key("memory_bytes", func(s *mooncakeSettings) *uint64 { return &s.memory }, config.Sizes, 0, config.BytesWithin(0, 1<<46), "Bytes of each peer's first buffer, from its start, that this daemon may write. 0: all of it."),
		config.Key("lanes", func(s *mooncakeSettings) *int { return &s.lanes }, config.Integers, engine.DefaultLanes, config.Within(1, engine.MaxLanes), "Connections to each peer."),
		config.Key("notify", func(s *mooncakeSettings) *bool { return &s.notify }, config.Booleans, false, config.Free[bool](), "Tell a peer by a notify which block lies where in its memory. Its engine keeps these until the application takes them."),
		config.Key("listen", func(s *mooncakeSettings) *string { return &s.listen }, config.Words, "", config.Free[string](), "HOST:PORT of the handshake: the name by which peers open this daemon's segment. Empty: peers can bring and take nothing. Beyond loopback it takes insecure and allow."),
		config.Key("data", func(s *mooncakeSettings) *string { return &s.data }, config.Words, "", config.Free[string](), "HOST:PORT of the data plane. Engines remember the port for as long as they run, so it should not be 0.").Listens(),
		config.Key("advertise", func(s *mooncakeSettings) *string { return &s.advertise }, config.Words, "", config.Free[string](), "Host that peers are told to connect to, an IPv6 address without brackets. Empty: that of listen."),
		config.Key("window_bytes", func(s *mooncakeSettings) *uint64 { return &s.window }, config.Sizes, 64<<20, config.BytesWithin(1<<16, 1<<40), "Bytes of the window that each listed peer may write and read."),
		config.Key("tenants", func(s *mooncakeSettings) *[]string { return &s.tenants }, config.Lists, nil, config.Free[[]string](), "Tenants whose blocks listed peers may bring and take. Mooncake proves no tenant: a host that has a peer's address has these."),
		config.Key("allow", func(s *mooncakeSettings) *[]string { return &s.allow }, config.Lists, nil, config.Free[[]string](), "Source addresses that may connect, ADDRESS/BITS, and where a peer may have its data plane besides the host of its segment's name. Empty: this host's only, and nowhere else. A reload closes the connections of those that are not allowed any more.").Live(),
		config.Key("metadata", func(s *mooncakeSettings) *string { return &s.metadata }, config.Words, metadata.P2P, config.Free[string](), "The metadata server by which peers are found, and this daemon's segment by them, as engines take it: P2PHANDSHAKE is none; http://HOST:PORT/metadata; etcd://HOST:PORT;HOST:PORT. The daemon starts without it, and tries again. Beyond loopback it takes insecure, and allow for where its entries may lead."),
		config.Key("metadata_cluster", func(s *mooncakeSettings) *string { return &s.cluster }, config.Words, "", config.Free[string](), "What the engines have as MC_METADATA_CLUSTER_ID."),
		config.Key("segment", func(s *mooncakeSettings) *string { return &s.segment }, config.Words, "", config.Free[string](), "Name of this daemon's segment on the metadata server. Empty: HOST:PORT of listen."),
		config.Key("store_node_bytes", func(s *mooncakeSettings) *uint64 { return &s.lend }, config.Sizes, 0, config.BytesWithin(0, store.MaxLent), "Bytes of memory that this daemon lends to a Mooncake Store, apart from its own blocks: it is a storage node then, and needs listen and store_masters. 0: it is none; 16 MiB at least. The memory is taken when it is written."),
		config.Key("store_masters", func(s *mooncakeSettings) *string { return &s.masters }, config.Words, "", config.Free[string](), "Where mooncake_master is: HOST:PORT, several of them with commas between, or etcd://HOST:PORT;HOST:PORT. The daemon starts without it, and tries again."),
		config.Key("store_cluster", func(s *mooncakeSettings) *string { return &s.storeCluster }, config.Words, "", config.Free[string](), "What the masters have as --cluster_id, for etcd://. Empty: "+store.DefaultCluster+"."),
		config.Key("metadata_listen", func(s *mooncakeSettings) *string { return &s.metaListen }, config.Words, "", config.Free[string](), "HOST:PORT of an HTTP metadata server that Mooncake nodes may use: http://HOST:PORT/metadata. Empty: none. Who may connect may read all of it. Beyond loopback it takes insecure and allow; the keys metadata_* and source_metadata_* of [quota] bound it."),
		config.Key("metadata_hosts", func(s *mooncakeSettings) *[]string { return &s.metaHosts }, config.Lists, nil, config.Free[[]string](), "Host names by which nodes call the metadata server. Addresses need no entry."),
		config.Key("insecure", func(s *mooncakeSettings) *bool { return &s.insecure }, config.Booleans, false, config.Free[bool](), "Allow Mooncake beyond loopback: it has no TLS, and a source address is all that it proves."),
	), mooncakePeers), func(s *mooncakeSettings) []string { return s.tenants }),
	func(ctx context.Context, at Site, s *mooncakeSettings) (fabric.Fabric, error) {
		live := &liveNode{}
		live.reach.Set(s.allowed())
		c, err := mooncakeConfig(at, s, live.reach.Has)
		if err != nil {
			return nil, err
		}
		n, err := mooncake.New(ctx, c)
		if err != nil {
			return nil, err // not a nil *Node in an interface
		}
		live.Node = n
		if s.metaListen != "" {
			return withMetadata(ctx, live, at, s)
		}
		return live, nil
	},
)

// liveNode is a fabric of Mooncake peers whose peers and allow a reload can change.
type liveNode struct {
	*mooncake.Node
	reach door.Ranges // where entries of the metadata server may lead
}

var _ Reloader = (*liveNode)(nil)

// Prepare implements Reloader.
func (l *liveNode) Prepare(c *config.Config) (Prepared, error) {
	s := c.Settings(l.Label()).(*mooncakeSettings)
	next, err := l.Node.Prepare(s.listed())
	if err != nil {
		return Prepared{}, fmt.Errorf("fabric.%s.peers: %w", l.Label(), err)
	}
	return Prepared{Peers: len(s.peers), Cancel: next.Cancel, Apply: func() error {
		allow := s.allowed()
		l.reach.Set(allow)
		l.SetAllow(allow)
		return next.Apply()
	}}, nil
}

// mooncakeConfig is what the fabric takes of its table, and where entries of the metadata
// server may lead besides this host.
func mooncakeConfig(at Site, s *mooncakeSettings, allowed func(netip.Addr) bool) (mooncake.Config, error) {
	c := mooncake.Config{Label: at.Name, Lent: s.memory, Lanes: s.lanes, Notify: s.notify, Log: at.Log, Allow: s.allowed()}
	c.Peers = s.listed()
	if s.listen != "" {
		c.Serve = mooncakeServe(at, s)
		c.Serve.Allow = c.Allow
	}
	if s.lend > 0 {
		m, closing, err := mooncake.Masters(s.masters, s.storeCluster)
		if err != nil {
			return c, fmt.Errorf("store_masters: %w", err)
		}
		c.Serve.Lend = &mooncake.LendConfig{Masters: m, Bytes: s.lend, Close: closing}
	}
	if s.metadata != metadata.P2P {
		var err error
		c.Dial = metadata.DialAllowed(func(a netip.Addr) bool { return s.planeOnThisHost() && a.IsLoopback() || allowed(a) })
		if c.Plane, err = metadata.Open(metadata.Config{Server: s.metadata, Cluster: s.cluster, Dial: c.Dial}); err != nil {
			if s.lend > 0 {
				err = errors.Join(err, c.Serve.Lend.Close())
			}
			return c, fmt.Errorf("metadata: %w", err)
		}
	}
	return c, nil
}

// listed are the peers.
func (s *mooncakeSettings) listed() (out []mooncake.PeerConfig) {
	for _, p := range s.peers {
		name, seg, _ := strings.Cut(p, "=")
		out = append(out, mooncake.PeerConfig{Name: name, Segment: seg})
	}
	return out
}

// allowed is allow.
func (s *mooncakeSettings) allowed() []netip.Prefix { return prefixes(s.allow) }

// prefixes are those of a list that was checked with the file.
func prefixes(list []string) (out []netip.Prefix) {
	for _, a := range list {
		out = append(out, netip.MustParsePrefix(a))
	}
	return out
}

// mooncakeServe is what listed peers may do here.
func mooncakeServe(at Site, s *mooncakeSettings) *mooncake.ServeConfig {
	c := &mooncake.ServeConfig{
		Listen: s.listen, Data: s.data, Advertise: s.advertise, Window: s.window, Tenants: s.tenants,
		Segment: s.segment, Epoch: at.Incarnation,
		Doors: at.Doors, Store: at.Store, Windows: at.Windows, Tenant: at.Spaces.Tenant, Gateway: at.Gateway,
		Observer: mooncake.Observer{
			Moved: func(peer string, in bool, bytes uint64, took time.Duration) {
				at.Observer.Served(Served{Fabric: at.Name, Peer: peer, In: in, Class: fabric.ClassNormal, Via: segment.TCP, Items: 1, Bytes: bytes, Took: took})
			},
			Refused: func(peer string, listed bool, err error) {
				at.Observer.Refused(wire.CodeOf(err))
				who := "from" // strangers are one kind of log line
				if listed {
					who = "peer"
				}
				at.Log.Info("mooncake: a request was refused", who, peer, "err", err)
			},
			Wrong: func(peer string) { at.Observer.ArrivedWrong(at.Name, peer) },
		},
	}
	return c
}

// mooncakePeers are the names that routes can use.
func mooncakePeers(s *mooncakeSettings) []string {
	var names []string
	for _, p := range s.peers {
		name, _, _ := strings.Cut(p, "=")
		names = append(names, name)
	}
	return names
}

func checkMooncake(s *mooncakeSettings, bad config.Bad) {
	names := map[string]bool{}
	for _, p := range s.peers {
		name, seg, ok := strings.Cut(p, "=")
		host, _, err := segment.SplitName(seg)
		if s.metadata != metadata.P2P { // any name; its host is not known yet
			host, err = "localhost", metadata.Key{Name: seg}.Check()
		}
		switch {
		case !ok || !peerName.MatchString(name):
			bad("peers", "%q must be NAME=HOST:PORT, the name 1 to 32 lower-case letters, digits or hyphens", p)
		case err != nil:
			bad("peers", "%q: %v", p, err)
		case names[name]:
			bad("peers", "%q is there twice", name)
		case !onThisHost(host) && !s.insecure:
			bad("peers", "%q is beyond loopback, and Mooncake has no TLS: set insecure = true to send blocks in clear", p)
		}
		names[name] = true
	}
	for _, a := range s.allow {
		if _, err := netip.ParsePrefix(a); err != nil {
			bad("allow", "%q must be ADDRESS/BITS", a)
		}
	}
	checkPlane(s, bad)
	checkStoreNode(s, bad)
	checkMetadata(s, bad)
	if s.listen == "" {
		for key, value := range map[string]string{"data": s.data, "advertise": s.advertise, "segment": s.segment} {
			if value != "" {
				bad(key, "%q is of no use without listen", value)
			}
		}
		return
	}
	listen, data := checkListen(s, bad, "listen", s.listen), checkListen(s, bad, "data", s.data)
	if listen && data {
		checkAdvertised(s, bad)
	}
}

// checkListen checks an address to listen at, and reports whether it can be used.
func checkListen(s *mooncakeSettings, bad config.Bad, key, addr string) bool {
	host, wrong := listenHost(addr)
	switch {
	case addr == "":
		bad(key, "empty: name HOST:PORT of this host")
	case wrong != "":
		bad(key, "%q %s", addr, wrong)
	case onThisHost(host):
		return true
	case !s.insecure:
		bad(key, "%q is beyond loopback, and Mooncake has no TLS: bind it to 127.0.0.1, or set insecure = true", addr)
	case len(s.allow) == 0:
		bad("allow", "empty, and %s %q is beyond loopback: name the source addresses that may connect", key, addr)
	default:
		return true
	}
	return false
}

// checkAdvertised checks the host that peers are told to connect to: they get what is
// written, and cannot say what is wrong with it.
func checkAdvertised(s *mooncakeSettings, bad config.Bad) {
	listen, _ := listenHost(s.listen)
	dataHost, _ := listenHost(s.data)
	told, err := netip.ParseAddr(s.advertise)
	switch {
	case s.advertise == "" && s.insecure && (listen == "" || isWildcard(listen)):
		bad("advertise", "empty, and listen %q is every address of this host: set the one that peers connect to", s.listen)
	case s.advertise == "":
		a, errA := netip.ParseAddr(listen)
		b, errB := netip.ParseAddr(dataHost)
		if errA == nil && errB == nil && a != b && !a.IsUnspecified() && !b.IsUnspecified() {
			bad("data", "%q is not at the address of listen %q, to which peers connect: give both one address", s.data, s.listen)
		}
	case err == nil && told.IsUnspecified():
		bad("advertise", "%q is every address of this host: set the one that peers connect to", s.advertise)
	case err != nil && strings.ContainsAny(s.advertise, ":[]/ "):
		bad("advertise", "%q must be a host alone, an IPv6 address without brackets", s.advertise)
	}
}

func isWildcard(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsUnspecified()
}

// listenHost is the host of an address to listen at, or what is wrong with the address.
func listenHost(addr string) (host, wrong string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", "must be HOST:PORT"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "must have a port from 0 to 65535"
	}
	return host, ""
}

// onThisHost says that an address reaches no other host.
func onThisHost(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}
