package openers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"meridian/adapters/mooncake"
	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/objects"
	"meridian/adapters/mooncake/store"
	"meridian/agent/config"
	"meridian/fabric"
	"meridian/internal/door"
)

// checkStoreNode checks the keys of the storage node.
func checkStoreNode(s *mooncakeSettings, bad config.Bad) {
	switch {
	case s.lend == 0:
		for key, value := range map[string]string{"store_masters": s.masters, "store_cluster": s.storeCluster} {
			if value != "" {
				bad(key, "%q is of no use without store_node_bytes", value)
			}
		}
	case s.lend < store.MinLent:
		bad("store_node_bytes", "%d, want %d at least", s.lend, store.MinLent)
	case s.listen == "":
		bad("store_node_bytes", "%d is of no use without listen, by which the memory is reached", s.lend)
	case s.masters == "":
		bad("store_masters", "empty, and store_node_bytes is %d: say where mooncake_master is", s.lend)
	default:
		checkMasters(s.masters, s.storeCluster, s.insecure, "store_masters", bad)
	}
}

// checkMasters checks where masters are.
func checkMasters(masters, cluster string, insecure bool, key string, bad config.Bad) {
	_, closing, err := mooncake.Masters(masters, cluster)
	_ = closing()
	switch _, list, found := strings.Cut(masters, "://"); {
	case err != nil:
		bad(key, "%v", err)
	case !found && !allOnThisHost(masters) && !insecure, found && !allOnThisHost(list) && !insecure:
		bad(key, "%q is beyond loopback, and Mooncake has no TLS: set insecure = true", masters)
	}
}

const mooncakeStoreKind = "mooncake-store"

// storeSettings is the table of a fabric that is a Mooncake Store.
type storeSettings struct {
	masters, cluster, tenant, prefix string
	metadata, metadataCluster        string
	lanes                            int
	allow                            []string
	insecure, raw                    bool
}

var openMooncakeStore = New(
	config.NewFabricKind(mooncakeStoreKind, "A Mooncake Store: each block is an object there, PREFIX/NAMESPACE/KEY, whose content is the MRDN payload. docs/mooncake.md tells more.", checkMooncakeStore,
		config.Key("masters", func(s *storeSettings) *string { return &s.masters }, config.Words, "", config.Free[string](), "Where mooncake_master is: HOST:PORT, several of them with commas between, or etcd://HOST:PORT;HOST:PORT. The daemon starts without it."),
		config.Key("cluster", func(s *storeSettings) *string { return &s.cluster }, config.Words, "", config.Free[string](), "What the masters have as --cluster_id, for etcd://. Empty: "+store.DefaultCluster+"."),
		config.Key("tenant", func(s *storeSettings) *string { return &s.tenant }, config.Words, store.DefaultTenant, config.Free[string](), "Mooncake's tenant of the objects. It is a name, and proves nothing."),
		config.Key("prefix", func(s *storeSettings) *string { return &s.prefix }, config.Words, "mrdn", config.Free[string](), "What the keys of the objects begin with, before a slash."),
		config.Key("metadata", func(s *storeSettings) *string { return &s.metadata }, config.Words, metadata.P2P, config.Free[string](), "The metadata server of the Store's nodes, as they take it: P2PHANDSHAKE is none; http://HOST:PORT/metadata; etcd://HOST:PORT;HOST:PORT."),
		config.Key("metadata_cluster", func(s *storeSettings) *string { return &s.metadataCluster }, config.Words, "", config.Free[string](), "What the nodes have as MC_METADATA_CLUSTER_ID."),
		config.Key("lanes", func(s *storeSettings) *int { return &s.lanes }, config.Integers, engine.DefaultLanes, config.Within(1, engine.MaxLanes), "Connections to each node."),
		config.Key("allow", func(s *storeSettings) *[]string { return &s.allow }, config.Lists, nil, config.Free[[]string](), "Where the nodes are, ADDRESS/BITS: the daemon connects to no others. Empty: this host only.").Live(),
		config.Key("insecure", func(s *storeSettings) *bool { return &s.insecure }, config.Booleans, false, config.Free[bool](), "Allow a Store beyond loopback: Mooncake has no TLS, and a source address is all that it proves."),
		config.Key("raw", func(s *storeSettings) *bool { return &s.raw }, config.Booleans, false, config.Free[bool](), "Let mrdn fabric object get read what other clients have put into the Store, for the tenant above: all but what is below the prefix. It is told as unverified unless its client left a CRC-64."),
	),
	func(_ context.Context, at Site, s *storeSettings) (fabric.Fabric, error) {
		masters, closing, err := mooncake.Masters(s.masters, s.cluster)
		if err != nil {
			return nil, fmt.Errorf("masters: %w", err)
		}
		live := &liveStore{}
		live.reach.Set(s.nodes())
		c := objects.Config{
			Label: at.Name, Masters: masters, Tenant: s.tenant, Prefix: s.prefix, Raw: s.raw, Lanes: s.lanes, Close: closing,
			Dial: metadata.DialAllowed(live.reach.Has),
		}
		c.Resolver = &handshake.Client{Dial: c.Dial}
		if s.metadata != metadata.P2P {
			plane, err := metadata.Open(metadata.Config{Server: s.metadata, Cluster: s.metadataCluster, Dial: c.Dial})
			if err != nil {
				return nil, errors.Join(fmt.Errorf("metadata: %w", err), closing())
			}
			c.Resolver, c.Close = plane, func() error { return errors.Join(plane.Close(), closing()) }
		}
		live.Store = objects.New(c)
		return live, nil
	},
)

// liveStore is a Mooncake Store whose allow a reload can change.
type liveStore struct {
	*objects.Store
	reach door.Ranges // where its nodes may be
}

var (
	_ fabric.Objects = (*liveStore)(nil)
	_ Reloader       = (*liveStore)(nil)
)

// Prepare implements Reloader.
func (l *liveStore) Prepare(c *config.Config) (Prepared, error) {
	nodes := c.Settings(l.Label()).(*storeSettings).nodes()
	return Prepared{Apply: func() error {
		l.reach.Set(nodes)
		l.Recheck()
		return nil
	}}, nil
}

// thisHost are the addresses that reach no other host.
var thisHost = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// nodes are the addresses at which the nodes may be.
func (s *storeSettings) nodes() []netip.Prefix {
	if len(s.allow) == 0 {
		return thisHost
	}
	return prefixes(s.allow)
}

var storePrefix = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}(/[A-Za-z0-9._-]{1,64}){0,3}$`)

func checkMooncakeStore(s *storeSettings, bad config.Bad) {
	if s.masters == "" {
		bad("masters", "empty: say where mooncake_master is")
	} else {
		checkMasters(s.masters, s.cluster, s.insecure, "masters", bad)
	}
	if !storePrefix.MatchString(s.prefix) {
		bad("prefix", "%q must be 1 to 4 words of letters, digits, dots, hyphens or underscores, with slashes between", s.prefix)
	}
	for _, a := range s.allow {
		if p, err := netip.ParsePrefix(a); err != nil {
			bad("allow", "%q must be ADDRESS/BITS", a)
		} else if !p.Addr().IsLoopback() && !s.insecure {
			bad("allow", "%q is beyond loopback, and Mooncake has no TLS: set insecure = true", a)
		}
	}
	checkPlane(&mooncakeSettings{metadata: s.metadata, cluster: s.metadataCluster, allow: s.allow, insecure: s.insecure}, bad)
}
