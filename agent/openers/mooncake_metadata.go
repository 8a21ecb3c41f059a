package openers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/metaserver"
	"meridian/agent/config"
	"meridian/fabric"
	"meridian/wire"
)

// moonNode is a fabric of Mooncake peers with a metadata server beside it.
type moonNode struct {
	*liveNode
	meta *metaserver.Server
}

var (
	_ fabric.Server  = (*moonNode)(nil)
	_ fabric.Advisor = (*moonNode)(nil)
	_ fabric.Counter = (*moonNode)(nil)
	_ fabric.Keeper  = (*moonNode)(nil)
	_ Reloader       = (*moonNode)(nil)
)

// withMetadata starts the metadata server of a fabric.
func withMetadata(ctx context.Context, n *liveNode, at Site, s *mooncakeSettings) (fabric.Fabric, error) {
	c := metaserver.Config{
		Listen: s.metaListen, Allow: s.allowed(), Hosts: s.metaHosts, Quota: at.Quota, Log: at.Log, Table: "fabric." + at.Name,
		Refused: func(err error) { at.Observer.Refused(wire.CodeOf(err)) },
	}
	meta, err := metaserver.Listen(ctx, c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("metadata_listen: %w", err), n.Close())
	}
	return &moonNode{n, meta}, nil
}

// Prepare implements Reloader.
func (m *moonNode) Prepare(c *config.Config) (Prepared, error) {
	p, err := m.liveNode.Prepare(c)
	if err != nil {
		return p, err
	}
	allow, apply := c.Settings(m.Label()).(*mooncakeSettings).allowed(), p.Apply
	p.Apply = func() error {
		m.meta.SetAllow(allow)
		return apply()
	}
	return p, nil
}

// Addresses implements fabric.Server.
func (m *moonNode) Addresses() []string {
	return append(m.Node.Addresses(), "http://"+m.meta.Address()+metadata.HTTPPath)
}

// Close ends both.
func (m *moonNode) Close() error { return errors.Join(m.meta.Close(), m.Node.Close()) }

// Stats implements fabric.Counter.
func (m *moonNode) Stats() fabric.Stats {
	st := m.Node.Stats()
	for what, n := range m.meta.Stats().Requests {
		st.RequestsIn += n
		if what[1] != "ok" && what[1] != "absent" {
			st.Refusals += n
		}
	}
	return st
}

// Findings implements fabric.Advisor.
func (m *moonNode) Findings() []fabric.Finding {
	st := m.meta.Stats()
	f := fabric.Finding{ID: "metadata.stale", Bad: st.Silent > 0, Subject: fmt.Sprintf("%d nodes of %d", st.Silent, st.Nodes)}
	if f.Bad {
		f.Reason = "published themselves here and do not answer; their entries end when that goes on"
		f.Fix = "look whether they run, and whether this host reaches the address that they publish (MC_TCP_BIND_ADDRESS)"
	}
	return append(m.Node.Findings(), f)
}

// checkPlane checks what is said of the metadata server that is used.
func checkPlane(s *mooncakeSettings, bad config.Bad) {
	if s.metadata == metadata.P2P {
		for key, value := range map[string]string{"metadata_cluster": s.cluster, "segment": s.segment} {
			if value != "" {
				bad(key, "%q is of no use with metadata = %q", value, metadata.P2P)
			}
		}
		return
	}
	plane, err := metadata.Open(metadata.Config{Server: s.metadata, Cluster: s.cluster})
	if err != nil {
		bad("metadata", "%v", err)
		return
	}
	_ = plane.Close()
	if s.segment != "" {
		if err := (metadata.Key{Name: s.segment}).Check(); err != nil {
			bad("segment", "%v", err)
		}
	}
	switch local := s.planeOnThisHost(); {
	case !local && !s.insecure:
		bad("metadata", "%q is beyond loopback, and proves nothing of what it says: set insecure = true", s.metadata)
	case !local && len(s.allow) == 0:
		bad("allow", "empty, and metadata %q is beyond loopback: name the addresses to which its entries may lead", s.metadata)
	}
}

// planeOnThisHost says that the metadata server is reached without leaving this host.
func (s *mooncakeSettings) planeOnThisHost() bool {
	_, rest, found := strings.Cut(s.metadata, "://")
	if !found {
		rest = s.metadata
	}
	rest, _, _ = strings.Cut(rest, "/")
	return allOnThisHost(rest)
}

// allOnThisHost says that a list of HOST:PORT reaches no other host.
func allOnThisHost(list string) bool {
	for _, at := range strings.FieldsFunc(list, func(r rune) bool { return r == ';' || r == ',' }) {
		u, err := url.Parse("any://" + at)
		if err != nil || !onThisHost(u.Hostname()) {
			return false
		}
	}
	return true
}

// checkMetadata checks the keys of the metadata server.
func checkMetadata(s *mooncakeSettings, bad config.Bad) {
	if s.metaListen == "" {
		if len(s.metaHosts) > 0 {
			bad("metadata_hosts", "%q is of no use without metadata_listen", s.metaHosts)
		}
		return
	}
	checkListen(s, bad, "metadata_listen", s.metaListen)
}
