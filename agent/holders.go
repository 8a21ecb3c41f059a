package agent

import (
	"context"
	"errors"
	"slices"
	"sync"

	"meridian/adapters/link"
	"meridian/fabric"
	"meridian/wire"
)

// holder is somebody outside who may have a block: a peer on the link, or a
// fabric that keeps blocks itself.
type holder struct {
	name string // peer name, or the fabric's label
	fabric.Fabric
	fabric.Finder
}

// holders are those who may have a block of ns: ready peers that proved its
// tenant, then fabrics that keep blocks themselves.
func (a *Agent) holders(ns wire.Namespace) []holder {
	var out []holder
	for _, info := range a.peersOf(ns) {
		p := a.node.Peer(info.Name)
		out = append(out, holder{name: info.Name, Fabric: p, Finder: p})
	}
	for _, name := range a.fabrics.Names() {
		f, _ := a.fabrics.Get(name)
		if _, isPeer := f.(*link.Peer); isPeer {
			continue
		}
		if finder, ok := f.(fabric.Finder); ok {
			out = append(out, holder{name: name, Fabric: f, Finder: finder})
		}
	}
	return out
}

// readyPeers are the configured peers that calls can be made to.
func (a *Agent) readyPeers() []link.PeerInfo {
	return slices.DeleteFunc(a.node.Peers(), func(p link.PeerInfo) bool {
		return p.State != link.StateReady || a.node.Peer(p.Name) == nil
	})
}

// peersOf are the ready peers that may know the namespace's tenant. Nobody else
// is told that a key exists, or sees the manifest (I11).
func (a *Agent) peersOf(ns wire.Namespace) []link.PeerInfo {
	m, ok := a.spaces.Manifest(ns)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(a.readyPeers(), func(p link.PeerInfo) bool {
		return !slices.Contains(p.Tenants, m.Tenant) && !slices.Contains(p.Tenants, anyTenant)
	})
}

// anyTenant stands in link.PeerInfo.Tenants where a peer may see all of them.
const anyTenant = "*"

// found is one holder's answer for one block.
type found struct {
	holder int
	h      fabric.Handle
	head   wire.Header
	att    wire.Attest
}

// find asks every holder for items at the same time and returns, for each
// item, the answers of the holders that have it, in the holders' order; and an
// error that counts where there is none: ABSENT if all who answered said so,
// else why one could not answer. Deadlines are ctx's.
func find(ctx context.Context, holders []holder, items []fabric.Item) ([][]found, []error) {
	answers := make([][]fabric.Item, len(holders))
	var wg sync.WaitGroup
	for i, h := range holders {
		mine := make([]fabric.Item, len(items))
		copy(mine, items)
		answers[i] = mine
		wg.Go(func() { h.Find(ctx, mine) })
	}
	wg.Wait()
	out, errs := make([][]found, len(items)), make([]error, len(items))
	for k := range items {
		errs[k] = wire.CodeAbsent
		for i := range holders {
			it := &answers[i][k]
			switch {
			case it.Err == nil:
				out[k] = append(out[k], found{holder: i, h: it.H, head: it.Head, att: it.Att})
			case !saysAbsent(it.Err) && saysAbsent(errs[k]):
				errs[k] = it.Err
			}
		}
	}
	return out, errs
}

// saysAbsent says whether an answer means that the holder has no such block, as
// far as it will tell.
func saysAbsent(err error) bool {
	return errors.Is(err, wire.CodeAbsent) || errors.Is(err, wire.CodeNSUnknown) || errors.Is(err, wire.CodeStale)
}
