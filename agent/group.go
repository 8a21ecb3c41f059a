package agent

import (
	"bytes"
	"context"
	"sync"

	"meridian/adapters/link"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// peerGroup is all peers of the link as one fabric. A handle is a wire.Ref and
// so names its peer; what has no handle yet goes to the ready peer that
// rendezvous hashing gives the key, so that equal keys meet at one place.
type peerGroup struct{ a *Agent }

var _ fabric.Fabric = peerGroup{}

func (g peerGroup) Label() string { return linkFabric }

func (g peerGroup) Caps() fabric.Caps {
	return fabric.Caps{Verified: true, MaxItem: proto.MaxBytesInFlight + wire.HeaderLen, MaxBatch: proto.MaxItems}
}

// Push sends each item to the peer that its key chooses.
func (g peerGroup) Push(ctx context.Context, it []fabric.Item) {
	peers := g.byNamespace(it)
	g.split(it, func(i *fabric.Item) *link.Peer { return g.choose(peers[i.NS], i.Key) },
		func(p *link.Peer, sub []fabric.Item) { p.Push(ctx, sub) })
}

// Pull asks the peer that each item's handle names.
func (g peerGroup) Pull(ctx context.Context, it []fabric.Item) {
	peers := g.byNamespace(it)
	g.split(it, func(i *fabric.Item) *link.Peer {
		if i.H == (fabric.Handle{}) {
			return g.choose(peers[i.NS], i.Key)
		}
		agent := wire.RefOf(i.H).Agent
		for _, p := range peers[i.NS] {
			if p.Agent == agent {
				return g.a.node.Peer(p.Name)
			}
		}
		return nil
	}, func(p *link.Peer, sub []fabric.Item) { p.Pull(ctx, sub) })
}

// byNamespace lists the peers for each namespace among the items.
func (g peerGroup) byNamespace(it []fabric.Item) map[wire.Namespace][]link.PeerInfo {
	out := map[wire.Namespace][]link.PeerInfo{}
	for i := range it {
		if _, ok := out[it[i].NS]; !ok {
			out[it[i].NS] = g.a.peersOf(it[i].NS)
		}
	}
	return out
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
func (g peerGroup) choose(peers []link.PeerInfo, key wire.Key) *link.Peer {
	var best string
	var top wire.Key
	for _, p := range peers {
		h := wire.KeyOf(wire.Namespace(key), p.Agent[:])
		if best == "" || bytes.Compare(h[:], top[:]) > 0 {
			best, top = p.Name, h
		}
	}
	return g.a.node.Peer(best)
}
