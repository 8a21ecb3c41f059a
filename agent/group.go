package agent

import (
	"bytes"
	"context"
	"sync"

	"meridian/adapters/link"
	"meridian/fabric"
	"meridian/wire"
)

// peerGroup is all peers of the link as one fabric. A handle is a wire.Ref and
// so names its peer; what has no handle yet goes to the ready peer that
// rendezvous hashing gives the key, so that equal keys meet at one place.
type peerGroup struct{ a *Agent }

var _ fabric.Fabric = peerGroup{}

func (g peerGroup) Label() string { return linkFabric }

func (g peerGroup) Caps() fabric.Caps { return link.Caps() }

// Push sends each item to the peer that its key chooses among those ready.
func (g peerGroup) Push(ctx context.Context, it []fabric.Item) {
	ready := g.ready()
	g.split(it, func(i *fabric.Item) *link.Peer { return choose(ready, i.Key) },
		func(p *link.Peer, sub []fabric.Item) { p.Push(ctx, sub) })
}

// Pull asks the peer that each item's handle names.
func (g peerGroup) Pull(ctx context.Context, it []fabric.Item) {
	ready := g.ready()
	g.split(it, func(i *fabric.Item) *link.Peer {
		if i.H == (fabric.Handle{}) {
			return choose(ready, i.Key)
		}
		agent := wire.RefOf(i.H).Agent
		for _, p := range ready {
			if p.Info().Agent == agent {
				return p
			}
		}
		return nil
	}, func(p *link.Peer, sub []fabric.Item) { p.Pull(ctx, sub) })
}

// Quiesce waits for every peer.
func (g peerGroup) Quiesce(ctx context.Context) error {
	for _, c := range g.a.cfg.Link.Peers {
		if err := g.a.node.Peer(c.Name).Quiesce(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close does nothing: the peers are closed with the node.
func (g peerGroup) Close() error { return nil }

func (g peerGroup) ready() []*link.Peer {
	var out []*link.Peer
	for _, c := range g.a.cfg.Link.Peers {
		if p := g.a.node.Peer(c.Name); p.Info().State == link.StateReady {
			out = append(out, p)
		}
	}
	return out
}

// split runs f once for each peer with that peer's items, at the same time.
func (g peerGroup) split(it []fabric.Item, pick func(*fabric.Item) *link.Peer, f func(*link.Peer, []fabric.Item)) {
	groups := map[*link.Peer][]int{}
	for i := range it {
		p := pick(&it[i])
		if p == nil {
			it[i].Head, it[i].Via, it[i].Loose = wire.Header{}, "", false
			it[i].Err = &fabric.Error{Code: wire.CodeUnreachable, Fabric: linkFabric, Text: "no ready peer for this block"}
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

// choose is rendezvous hashing: the peer whose hash with the key is highest.
func choose(peers []*link.Peer, key wire.Key) *link.Peer {
	var best *link.Peer
	var top wire.Key
	for _, p := range peers {
		agent := p.Info().Agent
		h := wire.KeyOf(wire.Namespace(key), agent[:])
		if best == nil || bytes.Compare(h[:], top[:]) > 0 {
			best, top = p, h
		}
	}
	return best
}
