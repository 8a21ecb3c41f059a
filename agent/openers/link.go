package openers

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"meridian/adapters/link"
	"meridian/agent/config"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/wire"
)

// openLink opens the link. Every daemon has it: it serves peers whether a route names
// it or not.
var openLink = New(linkKind, func(_ context.Context, at Site, s *linkSettings) (fabric.Fabric, error) {
	l, err := newLink(at, s)
	if err != nil {
		return nil, err // not a nil *Link in an interface
	}
	return l, nil
})

// Link is the link as a fabric of the daemon.
type Link struct {
	link.Group
	Node      *link.Node
	addresses []string
	certs     atomic.Pointer[link.TLS] // in force; nil: none
}

var (
	_ fabric.Server  = (*Link)(nil)
	_ fabric.Peered  = (*Link)(nil)
	_ fabric.Advisor = (*Link)(nil)
	_ Reloader       = (*Link)(nil)
)

func newLink(at Site, s *linkSettings) (*Link, error) {
	c := at.Config
	u, err := linkUpdate(c, s)
	if err != nil {
		return nil, err
	}
	cfg := link.Config{
		Agent: at.ID, Incarnation: at.Incarnation, Name: at.Agent,
		Store: at.Store, Namespaces: at.Spaces, Peers: u.Peers, Tenants: u.Tenants,
		PSK: u.PSK, TLS: u.TLS, UIDs: c.Security.UIDs, Insecure: s.insecure,
		Lanes: s.laneCount(), Congestion: s.congestion, Log: at.Log, Observer: linkObserver{at.Observer},
		Quota: at.Quota, Standing: u.Standing, Gateway: at.Gateway,
	}
	node, err := link.New(cfg)
	if err != nil {
		return nil, err
	}
	for _, w := range ownCertificate(c, u) {
		at.Log.Warn("the certificate of this agent: " + w.String())
	}
	l := &Link{Group: node.Group(), Node: node}
	l.certs.Store(u.TLS)
	for _, addr := range s.listen {
		bound, err := node.Listen(addr)
		if err != nil {
			_ = node.Close()
			return nil, err
		}
		scheme, _, _ := strings.Cut(addr, "://")
		l.addresses = append(l.addresses, scheme+"://"+bound.String())
	}
	return l, nil
}

// Addresses implements fabric.Server.
func (l *Link) Addresses() []string { return l.addresses }

// linkUpdate is what the link takes of a configuration, at the start and at each
// reload.
func linkUpdate(c *config.Config, s *linkSettings) (link.Update, error) {
	u := link.Update{Tenants: c.Security.Tenants, PSK: []byte(s.PSK), Standing: standing(c), Drain: c.Agent.DrainTimeout}
	if s.tls() {
		var err error
		if u.TLS, err = link.LoadTLS(s.cert, s.key, s.ca); err != nil {
			return u, err
		}
	}
	for _, p := range s.Peers {
		pc, err := peerConfig(p)
		if err != nil {
			return u, err
		}
		u.Peers = append(u.Peers, pc)
	}
	return u, nil
}

// tlsKeys name the files of link.LoadTLS, in its order.
var tlsKeys = [3]string{"link.tls.cert", "link.tls.key", "link.tls.ca"}

// checkLinkFiles says what newLink would refuse of files that the configuration names,
// and what is worth a warning.
func checkLinkFiles(c *config.Config) (warnings []config.Warning, problems []config.Problem) {
	u, err := linkUpdate(c, linkOf(c))
	var wrong *link.TLSError
	switch {
	case err == nil:
		return ownCertificate(c, u), nil
	case errors.As(err, &wrong):
		return nil, []config.Problem{c.Problem(tlsKeys[wrong.File], wrong.Err.Error())}
	default:
		return nil, []config.Problem{c.Problem("link.tls", err.Error())}
	}
}

// ownCertificate are warnings of a certificate that peers may not take as that of this
// agent, and of tenants that it proves to no peer that may have them. With them, the
// certificate or the list of peers is not what was meant.
func ownCertificate(c *config.Config, u link.Update) (out []config.Warning) {
	if u.TLS == nil {
		return nil
	}
	name := filepath.Base(linkOf(c).cert)
	for _, doubt := range u.TLS.Doubts(c.Agent.Name) {
		out = append(out, c.Problem(tlsKeys[0], fmt.Sprintf("%q %s", name, doubt)))
	}
	if len(u.Peers) == 0 {
		return out
	}
	proven := u.TLS.Tenants()
	if len(proven) == 0 {
		out = append(out, c.Problem(tlsKeys[0], fmt.Sprintf("%q proves no tenant (meridian://tenant/NAME), so no peer lets this agent in by it", name)))
	}
	for _, tenant := range proven {
		if !slices.ContainsFunc(u.Peers, func(p link.PeerConfig) bool { return slices.Contains(p.Tenants, tenant) }) {
			out = append(out, c.Problem(tlsKeys[0], fmt.Sprintf("%q proves tenant %q, which is in tenants of no [[link.peer]]: no peer has its blocks from this agent", name, tenant)))
		}
	}
	return out
}

// standing is what may be reserved ahead for a peer: never so much that what it asks
// for in so many words finds its share of the arena taken.
func standing(c *config.Config) int64 {
	n := min(c.Quota.PeerStanding, quota.Share(c.KVMemory.Capacity, c.Quota.PeerArena)/8)
	if n == 0 {
		return -1
	}
	return int64(n)
}

// Prepare implements Reloader.
func (l *Link) Prepare(c *config.Config) (Prepared, error) {
	u, err := linkUpdate(c, linkOf(c))
	if err == nil {
		err = l.Node.Check(u)
	}
	if err != nil {
		return Prepared{}, err
	}
	return Prepared{Peers: len(u.Peers), Warnings: ownCertificate(c, u), Changed: otherFiles(l.certs.Load(), u.TLS), Apply: func() error {
		if err := l.Node.Apply(u); err != nil {
			return err
		}
		l.certs.Store(u.TLS)
		return nil
	}}, nil
}

// otherFiles are the certificates and keys that have other content.
func otherFiles(was, now *link.TLS) (out []config.Change) {
	if was == nil || now == nil {
		return nil
	}
	for i, key := range tlsKeys {
		if was.Sums[i] != now.Sums[i] {
			out = append(out, config.Change{Key: key, What: "changed", Live: true})
		}
	}
	return out
}

func peerConfig(p linkPeer) (link.PeerConfig, error) {
	out := link.PeerConfig{Name: p.name, Addr: p.address, Tenants: p.tenants, PSK: []byte(p.PSK)}
	if p.agent == "" {
		return out, nil
	}
	b, err := hex.DecodeString(p.agent)
	if err != nil || len(b) != len(out.Agent) {
		return out, fmt.Errorf("link.peer %s: agent %q: want 32 hexadecimal digits", p.name, p.agent)
	}
	copy(out.Agent[:], b)
	return out, nil
}

// linkObserver passes on what the link reports by itself. What the daemon asked for
// is counted by agent/transfer.
type linkObserver struct{ to Observer }

func (o linkObserver) PeerState(string, link.State, wire.Code) { o.to.PeerChanged() }

func (o linkObserver) Transfer(t link.Transfer) {
	if t.Served {
		o.to.Served(Served{
			Fabric: linkName, Peer: t.Peer, In: t.In, Class: fabric.Class(t.Class), Via: t.Via,
			Items: t.Items, Bytes: t.Bytes, Took: t.Took, Code: t.Code, Refused: t.Refused,
		})
	}
}

func (o linkObserver) Refusal(_ string, code wire.Code) { o.to.Refused(code) }

func (o linkObserver) ChecksumFailure(peer string) { o.to.ArrivedWrong(linkName, peer) }
