package mooncake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/fabric/lent"
	"meridian/wire"
)

// roster is the listed peers. It never changes: Next.Apply puts another one in its place.
type roster struct {
	peers  []*peer // ascending by name
	each   map[string]*onePeer
	guests map[string]*guest // by name; empty where nothing is served
	// common is the window whose address every peer has for its own, on a metadata server.
	// The address stays when its peer goes, since others remember it.
	common window.Window
}

// Next is a list of peers that was checked and has what it needs, and that nobody sees
// yet. It ends with one call of Apply or Cancel.
type Next struct {
	n     *Node
	r     *roster
	fresh []*peer // new ones, and those whose entry has changed
	found found
}

// Prepare checks a list of peers and makes what it needs: windows of new peers, and where
// they come from. A peer whose entry stays as it is stays as it is; one whose entry changes
// is a new peer. On an error nothing has changed.
func (n *Node) Prepare(list []PeerConfig) (*Next, error) {
	if len(list) > maxPeers {
		return nil, &fabric.Error{Code: wire.CodeConfig, Fabric: n.cfg.Label, Text: "peers", Have: maxPeers, Need: uint64(len(list))}
	}
	old := n.roster.Load()
	x := &Next{n: n, r: &roster{each: map[string]*onePeer{}, guests: map[string]*guest{}, common: old.common}}
	for _, c := range list {
		i := slices.IndexFunc(old.peers, func(p *peer) bool { return p.PeerConfig == c })
		if i >= 0 {
			x.r.peers = append(x.r.peers, old.peers[i])
			continue
		}
		p := newPeer(n, c)
		x.r.peers, x.fresh = append(x.r.peers, p), append(x.fresh, p)
	}
	slices.SortFunc(x.r.peers, func(a, b *peer) int { return cmp.Compare(a.Name(), b.Name()) })
	if err := x.invite(old); err != nil {
		x.Cancel()
		return nil, err
	}
	return x, nil
}

// invite gives new peers their windows, and refuses two peers at one address where the
// configuration says so.
func (x *Next) invite(old *roster) error {
	s := x.n.server
	if s == nil {
		return nil
	}
	s.mu.RLock()
	was := maps.Clone(s.found.addrs)
	s.mu.RUnlock()
	for _, p := range x.fresh {
		delete(was, p.Name())
	}
	x.found = x.n.look(x.n.life, x.r.peers, was)
	if err := x.found.shared(); err != nil && x.n.cfg.Plane == nil {
		return err
	}
	for _, p := range x.r.peers {
		g := old.guests[p.Name()]
		if slices.Contains(x.fresh, p) {
			var err error
			if g, err = s.invite(p); err != nil {
				return err
			}
		}
		x.r.guests[p.Name()] = g
		if x.n.cfg.Plane != nil && x.r.common.Len == 0 {
			x.r.common = g.window
		}
	}
	return nil
}

// Cancel gives back what the list would have had.
func (x *Next) Cancel() {
	for _, p := range x.fresh {
		if g := x.r.guests[p.Name()]; g != nil {
			x.n.server.dismiss(g)
		}
		p.unlist()
	}
}

// Apply puts the list in force. Peers that are not in it lose their connections, their
// windows, which refuse late writes, and their blocks; nobody waits for them.
func (x *Next) Apply() error {
	n := x.n
	n.changing.Lock()
	defer n.changing.Unlock()
	if n.closed {
		x.Cancel()
		return fmt.Errorf("mooncake: the fabric is closed: %w", wire.CodeDraining)
	}
	old := n.roster.Load()
	n.store.Set(lentPeers(x.r.peers))
	for _, p := range x.r.peers {
		if x.r.each[p.Name()] = old.each[p.Name()]; slices.Contains(x.fresh, p) {
			x.r.each[p.Name()] = &onePeer{n.store.One(p.Name()), p}
		}
	}
	n.roster.Store(x.r)
	s := n.server
	if s != nil && s.learn(x.found, x.r.guests) {
		s.identify()
	}
	for _, p := range old.peers {
		if slices.Contains(x.r.peers, p) {
			continue
		}
		n.running.Go(p.retire)
		if g := old.guests[p.Name()]; g != nil {
			s.Windows.Drop(g.owner)
			n.running.Go(func() { s.dismiss(g) })
		}
	}
	if s != nil && s.publisher != nil && old.common.Len == 0 && x.r.common.Len > 0 {
		s.publisher.Again()
	}
	return nil
}

func lentPeers(peers []*peer) []lent.Peer {
	out := make([]lent.Peer, len(peers))
	for i, p := range peers {
		out[i] = p
	}
	return out
}
