package openers

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/relay"
	"meridian/adapters/mooncake/segment"
	"meridian/agent/config"
	"meridian/fabric"
	"meridian/wire"
)

// relaySettings is the table of a relay between Mooncake engines.
type relaySettings struct {
	target, metadata        string
	cluster, segment        string
	listen, data, advertise string
	allow, reach            []string
	insecure                bool
}

var openMooncakeRelay = New(
	config.CarriesNoBlocks(config.NewFabricKind("mooncake-relay", "A relay that stands between Mooncake engines and one other engine, the target, and is transparent to both. It carries their requests, and no blocks of this daemon: no route can name it. docs/mooncake.md tells how.", checkRelay,
		config.Key("target", func(s *relaySettings) *string { return &s.target }, config.Words, "", config.Free[string](), "The engine to which requests are carried, NAME=SEGMENT. NAME is what it is called here; SEGMENT is the name of its segment, with P2PHANDSHAKE the HOST:PORT of its handshake."),
		config.Key("metadata", func(s *relaySettings) *string { return &s.metadata }, config.Words, metadata.P2P, config.Free[string](), "Metadata server on which the target is found, and the relay by its sources, as engines take it: P2PHANDSHAKE is none; http://HOST:PORT/metadata; etcd://HOST:PORT;HOST:PORT. Beyond loopback it takes insecure, and reach for where its entries may lead."),
		config.Key("metadata_cluster", func(s *relaySettings) *string { return &s.cluster }, config.Words, "", config.Free[string](), "What the engines have as MC_METADATA_CLUSTER_ID."),
		config.Key("segment", func(s *relaySettings) *string { return &s.segment }, config.Words, "", config.Free[string](), "Name of the relay's segment on the metadata server, by which sources open it. Empty: HOST:PORT of listen."),
		config.Key("listen", func(s *relaySettings) *string { return &s.listen }, config.Words, "", config.Free[string](), "HOST:PORT of the handshake: the name by which sources open the target's segment through the relay. Beyond loopback it takes insecure and allow."),
		config.Key("data", func(s *relaySettings) *string { return &s.data }, config.Words, "", config.Free[string](), "HOST:PORT or HOST:FIRST-LAST of the data plane. Each time that the target is another process the relay takes a port that it had not, since sources remember port and addresses for as long as they run; when none is left, nothing is carried until this daemon is restarted.").Listens(),
		config.Key("advertise", func(s *relaySettings) *string { return &s.advertise }, config.Words, "", config.Free[string](), "Host that sources are told to connect to, an IPv6 address without brackets. Empty: that of listen."),
		config.Key("allow", func(s *relaySettings) *[]string { return &s.allow }, config.Lists, nil, config.Free[[]string](), "Sources that may connect, ADDRESS/BITS or NAME=ADDRESS/BITS. What is carried for a source with a name is counted by it. This host may always connect. A reload closes the connections of those that are not allowed any more.").Live(),
		config.Key("reach", func(s *relaySettings) *[]string { return &s.reach }, config.Lists, nil, config.Free[[]string](), "Addresses where the target may be, ADDRESS/BITS, besides the host that target names. A metadata server on this host may also lead to this host."),
		config.Key("insecure", func(s *relaySettings) *bool { return &s.insecure }, config.Booleans, false, config.Free[bool](), "Allow sources and a target beyond loopback: Mooncake has no TLS, and a source address is all that it proves."),
	)),
	func(ctx context.Context, at Site, s *relaySettings) (fabric.Fabric, error) {
		name, target, _ := strings.Cut(s.target, "=")
		c := relay.Config{
			Label: at.Name, Peer: name, Target: target, Server: s.metadata, Cluster: s.cluster, Segment: s.segment, Epoch: at.Incarnation, Log: at.Log, Listen: s.listen, Advertise: s.advertise,
			Doors: at.Doors,
			Refused: func(source string, named bool, err error) {
				at.Observer.Refused(wire.CodeOf(err))
				who := "from" // those without a name are one kind of log line
				if named {
					who = "peer"
				}
				at.Log.Info("mooncake relay: a request was refused", "fabric", at.Name, who, source, "err", err)
			},
		}
		c.Here = s.metadata != metadata.P2P && s.plane().planeOnThisHost()
		c.Data, _ = relay.ParsePorts(s.data) // checked with the file
		c.Sources = s.sources()
		for _, a := range s.reach {
			c.Reach = append(c.Reach, netip.MustParsePrefix(a))
		}
		r, err := relay.New(ctx, c)
		if err != nil {
			return nil, err // not a nil *Relay in an interface
		}
		return &relayFabric{r}, nil
	},
)

// relayFabric is a relay whose sources a reload can change.
type relayFabric struct{ *relay.Relay }

var _ Reloader = (*relayFabric)(nil)

// Prepare implements Reloader.
func (r *relayFabric) Prepare(c *config.Config) (Prepared, error) {
	sources := c.Settings(r.Label()).(*relaySettings).sources()
	return Prepared{Peers: len(r.Peers()), Apply: func() error {
		r.SetSources(sources)
		return nil
	}}, nil
}

// sources are those of allow, which was checked with the file.
func (s *relaySettings) sources() (out []relay.Source) {
	for _, a := range s.allow {
		name, from := cutName(a)
		out = append(out, relay.Source{Name: name, From: netip.MustParsePrefix(from)})
	}
	return out
}

// cutName takes NAME=REST apart; the name may be missing.
func cutName(s string) (name, rest string) {
	if name, rest, found := strings.Cut(s, "="); found {
		return name, rest
	}
	return "", s
}

func checkRelay(s *relaySettings, bad config.Bad) {
	name, target, ok := strings.Cut(s.target, "=")
	switch {
	case !ok || target == "" || !peerName.MatchString(name):
		bad("target", "%q must be NAME=SEGMENT, the name 1 to 32 lower-case letters, digits or hyphens", s.target)
	case target == cmp.Or(s.segment, s.listen):
		bad("target", "%q is the relay itself", s.target)
	case s.metadata == metadata.P2P:
		host, _, err := segment.SplitName(target)
		if err != nil {
			bad("target", "%q: %v", s.target, err)
		} else if !onThisHost(host) && !s.insecure {
			bad("target", "%q is beyond loopback, and Mooncake has no TLS: set insecure = true to carry bytes in clear", s.target)
		}
	}
	checkPlane(s.plane(), func(key, format string, args ...any) {
		if key == "allow" { // of a fabric of blocks, which has one list for both
			key = "reach"
		}
		bad(key, format, args...)
	})
	for _, a := range s.allow {
		name, from := cutName(a)
		_, err := netip.ParsePrefix(from)
		if err != nil || name != "" && !peerName.MatchString(name) || strings.HasPrefix(a, "=") || name == relay.Others {
			bad("allow", "%q must be ADDRESS/BITS or NAME=ADDRESS/BITS, the name 1 to 32 lower-case letters, digits or hyphens, and not %s", a, relay.Others)
		}
	}
	for _, a := range s.reach {
		p, err := netip.ParsePrefix(a)
		switch {
		case err != nil:
			bad("reach", "%q must be ADDRESS/BITS", a)
		case !p.Addr().IsLoopback() && !s.insecure:
			bad("reach", "%q is beyond loopback, and Mooncake has no TLS: set insecure = true to carry bytes in clear", a)
		}
	}
	ports, err := relay.ParsePorts(s.data)
	if err != nil {
		bad("data", "%v", err)
	}
	first := net.JoinHostPort(ports.Host, strconv.Itoa(int(ports.First)))
	as := &mooncakeSettings{listen: s.listen, data: first, advertise: s.advertise, allow: s.allow, insecure: s.insecure}
	if listen := checkListen(as, bad, "listen", s.listen); err == nil && checkListen(as, bad, "data", first) && listen {
		checkAdvertised(as, bad)
	}
}

// plane is what the table says of the metadata server, as a fabric of blocks says it.
func (s *relaySettings) plane() *mooncakeSettings {
	return &mooncakeSettings{metadata: s.metadata, cluster: s.cluster, segment: s.segment, insecure: s.insecure, allow: s.reach}
}
