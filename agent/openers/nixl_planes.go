package openers

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"meridian/adapters/nixl"
	"meridian/adapters/nixl/plane"
	"meridian/agent/config"
)

// liveNIXL is a fabric of NIXL agents whose peers and allow a reload can change.
type liveNIXL struct{ *nixl.Node }

var _ Reloader = (*liveNIXL)(nil)

// Prepare implements Reloader.
func (l *liveNIXL) Prepare(c *config.Config) (Prepared, error) {
	s := c.Settings(l.Label()).(*nixlSettings)
	ctx, cancel := context.WithTimeout(context.Background(), invitationTime)
	defer cancel()
	next, err := l.Node.Prepare(ctx, s.listed())
	if err != nil {
		return Prepared{}, fmt.Errorf("fabric.%s.peers: %w", l.Label(), err)
	}
	return Prepared{Peers: len(s.peers), Cancel: next.Cancel, Apply: func() error {
		l.SetAllow(prefixes(s.allow))
		return next.Apply()
	}}, nil
}

// invitationTime bounds what a reload waits for the helper to map the windows of new peers.
const invitationTime = 10 * time.Second

// listed are the peers.
func (s *nixlSettings) listed() (out []nixl.PeerConfig) {
	for _, p := range s.peers {
		name, addr, _ := strings.Cut(p, "=")
		out = append(out, nixl.PeerConfig{Name: name, Address: addr})
	}
	return out
}

// openPlanes opens the stores of metadata that a table names.
func openPlanes(at Site, s *nixlSettings, c *nixl.Config) (err error) {
	c.Listen, c.Allow, c.Doors = s.listen, prefixes(s.allow), at.Doors
	if s.tcpstore != "" {
		c.TCPStore = plane.NewTCPStore(s.tcpstore)
	}
	if len(s.etcd) > 0 {
		var e *plane.Etcd
		if e, err = plane.NewEtcd(s.etcd, s.etcdNamespace); err == nil {
			c.Etcd, c.Reap = e, s.etcdReap
		}
	}
	return err
}

// checkPlanes checks how agents find this daemon's, and this daemon theirs.
func checkPlanes(s *nixlSettings, bad config.Bad) {
	if s.listen != "" {
		checkNIXLListen(bad, s.listen, s.allow, s.insecure)
		if strings.HasPrefix(s.listen, "[") {
			bad("listen", "%q is an IPv6 address, and NIXL connects by IPv4 only", s.listen)
		}
	}
	checkAllow(bad, s.allow, s.insecure)
	for key, list := range map[string][]string{"tcpstore": {s.tcpstore}, "etcd": s.etcd} {
		for _, at := range list {
			if at == "" && key == "tcpstore" {
				continue
			}
			if host, ok := hostPort(at); !ok {
				bad(key, "%q must be HOST:PORT", at)
			} else if !onThisHost(host) && !s.insecure {
				bad(key, "%q is beyond loopback, and proves nothing of what it says: set insecure = true", at)
			}
		}
	}
	if s.etcdReap && len(s.etcd) == 0 {
		bad("etcd_reap", "true is of no use without etcd")
	}
	if len(s.etcd) > 0 && s.etcdNamespace == "" {
		bad("etcd_namespace", "empty: it is what the agents have as NIXL_ETCD_NAMESPACE")
	}
}

// checkPeerPlane checks the address of a peer that is found by its agent's name.
func checkPeerPlane(s *nixlSettings, bad config.Bad, entry, by, agent string) {
	if err := plane.CheckName(agent); err != nil {
		bad("peers", "%q: %v", entry, err)
	}
	for scheme, need := range map[string]struct {
		key  string
		have bool
	}{nixl.ByListener: {"listen", s.listen != ""}, nixl.ByTCPStore: {"tcpstore", s.tcpstore != ""}, nixl.ByEtcd: {"etcd", len(s.etcd) > 0}} {
		if by == scheme && !need.have {
			bad("peers", "%q needs %s", entry, need.key)
		}
	}
	if by == nixl.ByEtcd && strings.Contains(agent, "/") {
		bad("peers", "%q: the name of an agent in etcd has no slash", entry)
	}
}

func hostPort(at string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(at)
	n, wrong := strconv.ParseUint(port, 10, 16)
	return host, err == nil && wrong == nil && n > 0 && host != ""
}

// checkNIXLListen checks where agents may connect.
func checkNIXLListen(bad config.Bad, addr string, allow []string, insecure bool) {
	host, wrong := listenHost(addr)
	switch {
	case wrong != "":
		bad("listen", "%q %s", addr, wrong)
	case onThisHost(host):
	case !insecure:
		bad("listen", "%q is beyond loopback, and NIXL has no TLS: bind it to 127.0.0.1, or set insecure = true", addr)
	case len(allow) == 0:
		bad("allow", "empty, and listen %q is beyond loopback: name the source addresses that may connect", addr)
	}
}

func checkAllow(bad config.Bad, allow []string, insecure bool) {
	for _, a := range allow {
		if p, err := netip.ParsePrefix(a); err != nil {
			bad("allow", "%q must be ADDRESS/BITS", a)
		} else if !p.Addr().IsLoopback() && !insecure {
			bad("allow", "%q is beyond loopback, and NIXL has no TLS: set insecure = true", a)
		}
	}
}
