package openers

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"meridian/adapters/link"
	"meridian/agent/config"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/wire"
)

// linkName is the registry name of all peers of the link together.
const linkName = "link"

// openLink opens the link, whose settings are the tables [link], [link.tls] and
// [[link.peer]]. Every daemon has it: it serves peers whether a route names it or not.
var openLink = Opener{
	Kind: config.FabricKind{Name: linkName},
	open: func(_ context.Context, s Site, _ any) (fabric.Fabric, error) {
		l, err := newLink(s)
		if err != nil {
			return nil, err // not a nil *Link in an interface
		}
		return l, nil
	},
}

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

func newLink(s Site) (*Link, error) {
	c := s.Config
	u, err := linkUpdate(c)
	if err != nil {
		return nil, err
	}
	cfg := link.Config{
		Agent: s.ID, Incarnation: s.Incarnation, Name: s.Agent,
		Store: s.Store, Namespaces: s.Spaces, Peers: u.Peers, Tenants: u.Tenants,
		PSK: u.PSK, TLS: u.TLS, UIDs: c.Security.UIDs, Insecure: c.Link.Insecure,
		Lanes: c.Link.Lanes, Congestion: c.Link.Congestion, Log: s.Log, Observer: linkObserver{s.Observer},
		Quota: s.Quota, Standing: u.Standing,
	}
	node, err := link.New(cfg)
	if err != nil {
		return nil, err
	}
	l := &Link{Group: node.Group(), Node: node}
	l.certs.Store(u.TLS)
	for _, addr := range c.Link.Listen {
		at, err := node.Listen(addr)
		if err != nil {
			_ = node.Close()
			return nil, err
		}
		scheme, _, _ := strings.Cut(addr, "://")
		l.addresses = append(l.addresses, scheme+"://"+at.String())
	}
	return l, nil
}

// Addresses implements fabric.Server.
func (l *Link) Addresses() []string { return l.addresses }

// linkUpdate is what the link takes of a configuration, at the start and at each
// reload.
func linkUpdate(c *config.Config) (link.Update, error) {
	u := link.Update{Tenants: c.Security.Tenants, PSK: []byte(c.Link.PSK), Standing: standing(c), Drain: c.Agent.DrainTimeout}
	if t := c.Link.TLS; t.On() {
		var err error
		if u.TLS, err = link.LoadTLS(t.Cert, t.Key, t.CA); err != nil {
			return u, err
		}
	}
	for _, p := range c.Link.Peers {
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

// checkLink says what newLink would refuse of files that the configuration names.
func checkLink(c *config.Config) []config.Problem {
	t := c.Link.TLS
	if !t.On() {
		return nil
	}
	_, err := link.LoadTLS(t.Cert, t.Key, t.CA)
	var wrong *link.TLSError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return []config.Problem{c.Problem(tlsKeys[wrong.File], wrong.Err.Error())}
	default:
		return []config.Problem{c.Problem("link.tls", err.Error())}
	}
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
	u, err := linkUpdate(c)
	if err == nil {
		err = l.Node.Check(u)
	}
	if err != nil {
		return Prepared{}, err
	}
	return Prepared{Peers: len(u.Peers), Changed: otherFiles(l.certs.Load(), u.TLS), Apply: func() error {
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

func peerConfig(p config.Peer) (link.PeerConfig, error) {
	out := link.PeerConfig{Name: p.Name, Addr: p.Address, Tenants: p.Tenants, PSK: []byte(p.PSK)}
	if p.Agent == "" {
		return out, nil
	}
	b, err := hex.DecodeString(p.Agent)
	if err != nil || len(b) != len(out.Agent) {
		return out, fmt.Errorf("link.peer %s: agent %q: want 32 hexadecimal digits", p.Name, p.Agent)
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
