package link

import (
	"context"
	"fmt"
	"sync"

	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// Group is all peers of a node's configuration as one fabric. A handle is a
// wire.Ref with the peer's digest for its agent, and so names its peer; what has no
// handle yet goes to the ready peer that rendezvous hashing (Thaler, Ravishankar,
// 1998) of the names gives the key, so that equal keys meet at one place.
type Group struct{ n *Node }

var (
	_ fabric.Fabric      = Group{}
	_ fabric.Gate        = Group{}
	_ fabric.Peered      = Group{}
	_ fabric.Keeper      = Group{}
	_ fabric.Chooser     = Group{}
	_ fabric.Transporter = Group{}
	_ fabric.Counter     = Group{}
	_ fabric.Advisor     = Group{}
	_ fabric.Referrer    = Group{}
	_ fabric.Gate        = (*Peer)(nil)
)

// Group is the fabric of all configured peers.
func (n *Node) Group() Group { return Group{n} }

// Label implements fabric.Fabric.
func (g Group) Label() string { return label }

// Caps implements fabric.Fabric.
func (g Group) Caps() fabric.Caps { return g.n.caps() }

func (n *Node) caps() fabric.Caps {
	return fabric.Caps{Verified: true, MaxItem: proto.MaxBytesInFlight + wire.HeaderLen, MaxBatch: proto.MaxItems, Lanes: n.cfg.Lanes}
}

// Transports implements fabric.Transporter.
func (g Group) Transports() []string { return []string{viaTCP, viaTLS, viaUnix} }

// Usable implements fabric.Gate: one usable peer is enough.
func (g Group) Usable(ns wire.Namespace) error {
	tenant, peers := g.able(ns)
	for _, p := range peers {
		if p.takes(ns, tenant) {
			return nil
		}
	}
	return &fabric.Error{Code: wire.CodeUnreachable, Fabric: label, Text: "no peer is ready"}
}

// Usable implements fabric.Gate: the peer is ready, and has proved the tenant of
// the namespace. Nobody else is told that a key exists, or sees the manifest (I11).
func (p *Peer) Usable(ns wire.Namespace) error {
	s := p.use()
	if s == nil {
		var err error
		if s, err = p.session(); err != nil {
			return err
		}
	}
	if ns == (wire.Namespace{}) {
		return nil
	}
	tenant, ok := p.node.cfg.Namespaces.Tenant(ns)
	if !ok || !s.peer.tenants.Has(tenant) {
		return &fabric.Error{Code: wire.CodeNSUnknown, Fabric: label, Text: "peer " + p.cfg.Name + " has not proved the tenant"}
	}
	return nil
}

// Peers implements fabric.Peered. Those that are on no list are there too.
func (g Group) Peers() []fabric.Peer {
	rows := g.n.Peers()
	out := make([]fabric.Peer, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = fabric.Peer{
			Name: r.Name, Listed: g.n.Peer(r.Name) != nil, Agent: r.Agent, Inc: r.Inc, Addr: r.Addr, State: r.State, Code: r.Code,
			Text: r.Text, Via: r.Transport, Lanes: r.Lanes, RTT: r.RTT, Tenants: r.Tenants,
		}
		for _, ns := range r.Namespaces {
			out[i].Spaces = append(out[i].Spaces, ns.NS)
		}
	}
	return out
}

// Peer implements fabric.Peered.
func (g Group) Peer(name string) fabric.Fabric {
	if p := g.n.Peer(name); p != nil {
		return p
	}
	return nil
}

// Stats implements fabric.Counter.
func (g Group) Stats() fabric.Stats { return g.n.Stats() }

// Drain is a part of fabric.Server.
func (g Group) Drain(ctx context.Context) { g.n.Drain(ctx) }

// Findings implements fabric.Advisor: daemons that share a name or an id, and
// connections that were refused, both of the last minute.
func (g Group) Findings() []fabric.Finding {
	var out []fabric.Finding
	for _, d := range g.n.Duplicates() {
		out = append(out, fabric.Finding{
			ID: "duplicate", Bad: true, Severe: true, Subject: "peer " + d.OtherName, Reason: d.Text(),
			Fix: "give each daemon an agent.name and a state folder of its own: remove agent-id from a copied agent.state_dir, and pin link.peer.agent",
		})
	}
	for _, r := range g.n.Refusals() {
		out = append(out, fabric.Finding{
			ID: "refused", Bad: true, Subject: fmt.Sprintf("connections from %s that were refused: %d", r.Source, r.Seen),
			Reason: fmt.Sprintf("the last one, from %s with the name %q: %s", r.Addr, r.Claimed, r.Text), Fix: "mrdn errors lookup " + r.Code.String(),
		})
	}
	return out
}

// Keeps implements fabric.Keeper: a copy is there for as long as the incarnation
// lives, and is connected, that the handle names.
func (g Group) Keeps(h fabric.Handle) bool {
	ref := wire.RefOf(h)
	p := g.n.callable.Load().byDigest[ref.Agent]
	if p == nil {
		return false
	}
	s := p.use()
	return s != nil && s.made(ref)
}

// Refer implements fabric.Referrer, for the peers that can be called now.
func (g Group) Refer(agent [16]byte, inc uint64) (peer string, handle func(slot, gen uint32) fabric.Handle, err error) {
	err = &fabric.Error{Code: wire.CodeUnreachable, Fabric: label, Text: "no peer with that agent id is ready"}
	for _, p := range g.n.callable.Load().byAgent[agent] {
		s := p.use()
		switch {
		case s == nil || s.peer.agent != agent:
		case s.peer.inc > inc: // they rise with each start
			peer, err = p.cfg.Name, &fabric.Error{Code: wire.CodeIncarnation, Fabric: label, Text: "peer " + p.cfg.Name + " has started anew"}
		case s.peer.inc != inc:
			peer, err = p.cfg.Name, &fabric.Error{Code: wire.CodeStale, Fabric: label, Text: "peer " + p.cfg.Name + " runs in another incarnation"}
		default:
			return p.cfg.Name, s.handle, nil
		}
	}
	return peer, nil, err
}

// able is the tenant of a namespace and the peers that may be called for it; all
// peers for the zero one.
func (g Group) able(ns wire.Namespace) (tenant string, peers []*Peer) {
	c := g.n.callable.Load()
	if ns == (wire.Namespace{}) {
		return "", c.peers
	}
	tenant, ok := g.n.cfg.Namespaces.Tenant(ns)
	if !ok {
		return "", nil
	}
	return tenant, c.of(tenant)
}

// takes says whether a peer may be called for a namespace of that tenant; for the zero one,
// whether it is ready.
func (p *Peer) takes(ns wire.Namespace, tenant string) bool {
	return ns == (wire.Namespace{}) && p.use() != nil || p.proved(tenant)
}

// Choose implements fabric.Chooser: the usable peer whose hash with the key is
// highest.
func (g Group) Choose(ns wire.Namespace, key wire.Key) string {
	if p := g.choose(ns, key); p != nil {
		return p.cfg.Name
	}
	return ""
}

func (g Group) choose(ns wire.Namespace, key wire.Key) *Peer {
	var best *Peer
	var top uint64
	tenant, peers := g.able(ns)
	for _, p := range peers {
		if s := score(p.home, key); (best == nil || s > top) && p.takes(ns, tenant) {
			best, top = p, s
		}
	}
	return best
}

// Push sends each item to the peer that its key chooses.
func (g Group) Push(ctx context.Context, it []fabric.Item) {
	g.split(it, func(i *fabric.Item) *Peer { return g.choose(i.NS, i.Key) },
		func(p *Peer, sub []fabric.Item) { p.Push(ctx, sub) })
}

// Pull asks the peer that each item's handle names.
func (g Group) Pull(ctx context.Context, it []fabric.Item) {
	g.split(it, func(i *fabric.Item) *Peer {
		if i.H == (fabric.Handle{}) {
			return g.choose(i.NS, i.Key)
		}
		digest := wire.RefOf(i.H).Agent
		p := g.n.callable.Load().byDigest[digest]
		if p == nil || p.Usable(i.NS) != nil {
			return nil
		}
		return p
	}, func(p *Peer, sub []fabric.Item) { p.Pull(ctx, sub) })
}

// Quiesce implements fabric.Fabric, as that of a Peer does.
func (g Group) Quiesce(ctx context.Context) error { return fabric.ContextError(ctx, label) }

// Close closes the node.
func (g Group) Close() error { return g.n.Close() }

// split runs f once for each peer with that peer's items, at the same time.
func (g Group) split(it []fabric.Item, pick func(*fabric.Item) *Peer, f func(*Peer, []fabric.Item)) {
	groups := map[*Peer][]int{}
	for i := range it {
		p := pick(&it[i])
		if p == nil {
			it[i].Head, it[i].Via, it[i].Loose = wire.Header{}, "", false
			it[i].Err = &fabric.Error{Code: wire.CodeUnreachable, Fabric: label, Text: "no ready peer for this block"}
			continue
		}
		groups[p] = append(groups[p], i)
	}
	var wg sync.WaitGroup
	for p, idx := range groups {
		sub := make([]fabric.Item, len(idx))
		for k, i := range idx {
			sub[k] = it[i]
		}
		wg.Go(func() {
			f(p, sub)
			for k, i := range idx {
				it[i] = sub[k]
			}
		})
	}
	wg.Wait()
}
