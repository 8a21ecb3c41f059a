package nixl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/fabric/lent"
	"meridian/wire"
)

// maxRetired are the windows of peers that are gone with which a helper goes on: their
// agents still have the keys, so only its end gives the memory back.
const maxRetired = maxPeers / 2

// roster is the listed peers. It never changes: Next.Apply puts another one in its place.
type roster struct {
	peers []*peer // in the order of the configuration
	each  map[string]*onePeer
}

// Next is a list of peers that was checked and has what it needs, and that nobody sees
// yet. It ends with one call of Apply or Cancel.
type Next struct {
	n     *Node
	peers []*peer
	fresh []*peer // new ones, and those whose entry has changed
	s     *session
}

// Prepare checks a list of peers and makes the windows of new ones, where there is a helper.
// A peer whose entry stays as it is stays as it is; one whose entry changes is a new peer. On
// an error nothing has changed.
func (n *Node) Prepare(ctx context.Context, list []PeerConfig) (*Next, error) {
	if len(list) > maxPeers {
		return nil, &fabric.Error{Code: wire.CodeConfig, Fabric: n.cfg.Label, Text: "peers", Have: maxPeers, Need: uint64(len(list))}
	}
	x := &Next{n: n}
	old := n.roster.Load().peers
	for _, c := range list {
		if i := slices.IndexFunc(old, func(p *peer) bool { return p.PeerConfig == c }); i >= 0 {
			x.peers = append(x.peers, old[i])
			continue
		}
		p := newPeer(n, c)
		x.peers, x.fresh = append(x.peers, p), append(x.fresh, p)
	}
	n.mu.Lock()
	x.s = n.session
	n.mu.Unlock()
	if x.s == nil {
		return x, nil // the next helper has the windows of all
	}
	for _, p := range x.fresh {
		if _, err := x.s.invite(ctx, p); err != nil && x.s.err() == nil {
			x.Cancel()
			return nil, err
		}
	}
	return x, nil
}

// Cancel keeps the windows that the list would have had, for the next list.
func (x *Next) Cancel() {
	for _, p := range x.fresh {
		if x.s != nil {
			x.s.spare(p)
		}
		p.unlist()
	}
}

// Apply puts the list in force. Peers that are not in it lose their connections and their
// blocks, and nothing that they bring or ask for is done; nobody waits for them.
func (x *Next) Apply() error {
	n := x.n
	n.changing.Lock()
	defer n.changing.Unlock()
	if n.closed {
		x.Cancel()
		return fmt.Errorf("nixl: the fabric is closed: %w", wire.CodeDraining)
	}
	old := n.roster.Load()
	n.enlist(x.peers, old)
	var gone []*peer
	for _, p := range old.peers {
		if !slices.Contains(x.peers, p) {
			p.unlist()
			gone = append(gone, p)
		}
	}
	n.retire(gone)
	n.changed()
	return nil
}

// enlist has these peers listed, and connects those that old has not.
func (n *Node) enlist(peers []*peer, old *roster) {
	list, configs := make([]lent.Peer, len(peers)), make([]PeerConfig, len(peers))
	for i, p := range peers {
		list[i], configs[i] = p, p.PeerConfig
	}
	n.store.Set(list)
	n.inbox.list(configs)
	r := &roster{peers: peers, each: map[string]*onePeer{}}
	for _, p := range peers {
		if r.each[p.Name()] = old.each[p.Name()]; !slices.Contains(old.peers, p) {
			r.each[p.Name()] = &onePeer{n.store.One(p.Name())}
		}
	}
	n.roster.Store(r)
	for _, p := range peers {
		if !slices.Contains(old.peers, p) {
			n.running.Go(func() { p.run(p.listed) })
		}
	}
}

// retire gives up the windows of peers that are gone. A helper that has too many of them, or
// that they leave no room for another one, is started again, which connects all peers anew.
func (n *Node) retire(peers []*peer) {
	n.mu.Lock()
	s := n.session
	n.mu.Unlock()
	if s == nil {
		return
	}
	if retired := s.retire(peers); retired >= maxRetired || retired > 0 && !n.roomy() {
		go s.end(errors.New("it is started again to give back the windows of peers that are listed no more"))
	}
}

// roomy says whether another window can be had.
func (n *Node) roomy() bool {
	owner := n.cfg.Store.NewOwner(0)
	defer n.cfg.Store.Drop(owner)
	defer n.cfg.Windows.Drop(owner)
	w, err := n.cfg.Windows.Open(owner, window.Spec{Bytes: n.cfg.Window, TTL: window.Forever, Map: true})
	if err == nil {
		_ = unix.Close(w.FD) // nobody maps it
	}
	return err == nil
}
