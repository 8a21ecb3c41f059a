package mooncake

import (
	"meridian/adapters/mooncake/segment"
	"meridian/fabric"
	"meridian/fabric/lent"
	"meridian/wire"
)

var (
	_ fabric.Peered  = (*Node)(nil)
	_ fabric.Chooser = (*Node)(nil)
	_ fabric.Finder  = (*onePeer)(nil)
	_ fabric.Gate    = (*onePeer)(nil)
	_ fabric.Keeper  = (*onePeer)(nil)
	_ fabric.Prober  = (*onePeer)(nil)
)

// onePeer is the fabric that leads to one listed peer.
type onePeer struct {
	lent.Group
	peer *peer
}

// Transports implements fabric.Transporter.
func (o *onePeer) Transports() []string { return []string{via} }

// Close does nothing: the peer is closed with its Node.
func (o *onePeer) Close() error { return nil }

// Peers tells how each listed peer stands. One that was not needed yet is idle.
func (n *Node) Peers() []fabric.Peer {
	peers := n.roster.Load().peers
	out := make([]fabric.Peer, len(peers))
	for i, p := range peers {
		out[i] = p.stands()
	}
	return out
}

func (p *peer) stands() fabric.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := fabric.Peer{Name: p.Name(), Listed: true, Addr: segment.TCP + "://" + p.Segment}
	switch {
	case p.failed != nil:
		out.Code, out.Text = wire.CodeOf(p.failed), p.failed.Error()
	case p.seg == nil:
		out.State, out.Code, out.Text = fabric.PeerIdle, wire.CodeUnreachable, "not needed yet"
	default:
		out.State, out.Via, out.Lanes = fabric.PeerReady, via, p.seg.Lanes()
	}
	return out
}

// Peer is the fabric that leads to a listed peer.
func (n *Node) Peer(name string) fabric.Fabric {
	if o := n.roster.Load().each[name]; o != nil {
		return o
	}
	return nil
}
