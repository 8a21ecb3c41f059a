package nixl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/fabric/lent"
	"meridian/wire"
)

const (
	leaseTime = time.Minute      // for a block while it is written to a peer
	getTime   = 20 * time.Second // for a block that a peer asked for
)

// refused tells that a request of a listed peer was turned away.
func (n *Node) refused(peer string, err error) { n.turned(peer, true, err) }

func (n *Node) turned(who string, listed bool, err error) {
	n.count.refusals.Add(1)
	n.cfg.Observer.Refused(who, listed, err)
}

// asked does what a peer asks for in one notification, and tells it what became of each
// line.
func (n *Node) asked(ctx context.Context, p *peer, s *session, agent string, list []message) {
	if n.draining.Load() {
		return // it is told nothing: it would ask again
	}
	n.doing.Add(1)
	defer n.doing.Add(-1)
	lines := make([]string, len(list))
	for i, m := range list {
		began := time.Now()
		body, err := n.does(ctx, p, s, agent, m)
		if err != nil {
			n.refused(p.Name(), err)
		} else {
			n.moved(p, m.verb == verbPut, body, time.Since(began))
		}
		lines[i] = m.notice().Answer(wire.CodeOf(err))
	}
	if s.notify(ctx, agent, strings.Join(lines, "\n")) != nil {
		n.count.untold.Add(uint64(len(lines)))
	}
}

func (n *Node) does(ctx context.Context, p *peer, s *session, agent string, m message) (body uint64, err error) {
	tenant, known := n.cfg.Tenant(m.ns)
	switch {
	case !known || !slices.Contains(n.cfg.Tenants, tenant): // whether it exists is not told
		return 0, fmt.Errorf("nixl: notification to %s: namespace %v is not open here for peers: %w", m.verb, m.ns, wire.CodeNSUnknown)
	case n.draining.Load():
		return 0, fmt.Errorf("nixl: notification to %s: %w", m.verb, wire.CodeDraining)
	case m.verb == verbPut:
		return m.n - wire.HeaderLen, n.put(s.guest(p), p, m)
	}
	return n.get(ctx, p, s, agent, m)
}

// moved counts a block that a peer brought or took.
func (n *Node) moved(p *peer, in bool, body uint64, took time.Duration) {
	n.count.requests.Add(1)
	if in {
		n.count.in.Add(body)
	} else {
		n.count.out.Add(body)
	}
	via := viaUnknown // who brings a block chooses
	if !in {
		via = p.way(true)
	}
	n.cfg.Observer.Moved(p.Name(), in, via, body, took)
}

// put publishes a payload that lies in a peer's window. A key that is there already is
// as good.
func (n *Node) put(g guest, p *peer, m message) error {
	if m.addr < g.at || m.n > g.w.Len || m.addr-g.at > g.w.Len-m.n {
		return fmt.Errorf("nixl: notification to put: %d bytes at %d are not in the window of %d bytes at %d: %w", m.n, m.addr, g.w.Len, g.at, wire.CodeInvalid)
	}
	addr := g.w.Addr + (m.addr - g.at)
	b, leave, err := n.cfg.Windows.Own(g.owner, addr, wire.HeaderLen)
	if err != nil {
		return err
	}
	own := [wire.HeaderLen]byte(b) // the peer may go on writing
	leave()
	head, err := wire.ParseHeader(own[:], wire.Strict, wire.MaxBody)
	if err != nil {
		return fmt.Errorf("nixl: notification to put: the payload at %d: %w", m.addr, err)
	}
	if m.n != wire.HeaderLen+uint64(head.BodyLen) {
		return fmt.Errorf("nixl: notification to put: a payload of %d bytes whose header says %d: %w", m.n, wire.HeaderLen+uint64(head.BodyLen), wire.CodeInvalid)
	}
	c := blocks.Commit{NS: m.ns, Key: m.key, Tier: head.Tier, Head: &head}
	passage, err := n.cfg.Gateway.Bring(fabric.Hop{Fabric: n.cfg.Label, Peer: p.Name()}, fabric.Brought{NS: m.ns, Key: m.key, Tier: head.Tier, Bytes: uint64(head.BodyLen)})
	if err != nil {
		return fmt.Errorf("nixl: notification to put: %w", err)
	}
	err = n.cfg.Windows.Publish(g.owner, addr+wire.HeaderLen, &c)
	passage.End(err)
	switch {
	case errors.Is(err, wire.CodeExists):
		return nil
	case errors.Is(err, wire.CodeChecksum):
		n.cfg.Observer.Wrong(p.Name())
	}
	return err
}

// get writes a block's payload to where a peer wants it.
func (n *Node) get(ctx context.Context, p *peer, s *session, agent string, m message) (body uint64, err error) {
	v, keys := make([]blocks.View, 1), []wire.Key{m.key}
	if n.cfg.Store.Lookup(m.ns, keys, v) != 1 || v[0].Seg == 0 {
		n.cfg.Gateway.Look(ctx, fabric.Hop{Fabric: n.cfg.Label, Peer: p.Name()}, m.ns, keys)
	}
	if n.cfg.Store.Lookup(m.ns, keys, v) != 1 || v[0].Err != nil || v[0].Seg == 0 {
		return 0, fmt.Errorf("nixl: notification to get: block %v: %w", m.key, cmp.Or(v[0].Err, error(wire.CodeAbsent)))
	}
	owner := s.guest(p).owner
	lease, err := n.cfg.Store.Acquire(owner, v, leaseTime, false)
	if err != nil {
		return 0, err
	}
	defer n.cfg.Store.Release(owner, lease)
	if v[0].Err != nil {
		return 0, v[0].Err
	}
	payload := n.cfg.Store.Payload(v[0])
	if uint64(len(payload)) > m.n {
		return 0, fmt.Errorf("nixl: notification to get: a payload of %d bytes, room for %d: %w", len(payload), m.n, wire.CodeTooLarge)
	}
	ctx, cancel := context.WithTimeout(ctx, getTime)
	defer cancel()
	ops := []lent.Op{{Addr: m.addr, B: payload}}
	p.Write(ctx, ops)
	if ops[0].Err == nil {
		n.cfg.Store.Pulled([]wire.Ref{v[0].Ref})
	}
	return uint64(len(payload)) - wire.HeaderLen, ops[0].Err
}
