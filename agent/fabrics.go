package agent

import (
	"context"
	"errors"

	"meridian/agent/openers"
	"meridian/fabric"
	"meridian/internal/door"
)

// openFabrics adds the caller's fabrics, and those of the configuration that the
// caller has not given.
func (a *Agent) openFabrics(ctx context.Context) error {
	for name, f := range a.opt.Fabrics {
		if err := a.fabrics.Add(name, f); err != nil {
			return err
		}
	}
	site := openers.Site{
		Agent: a.id.name, ID: a.id.agent, Incarnation: a.id.incarnation, Config: a.cfg, Log: a.log,
		Store: a.store, Windows: a.windows, Spaces: a.spaces, Quota: &a.quota, Doors: door.NewCommon(&a.quota), Observer: fabricObserver{a}, Gateway: a.mover,
	}
	for _, one := range a.cfg.Fabrics {
		if _, ok := a.fabrics.Get(one.Name); ok {
			continue
		}
		f, err := openers.Open(ctx, one, site, a.opt.Openers...)
		if err != nil {
			return err
		}
		if err := a.fabrics.Add(one.Name, f); err != nil {
			return errors.Join(err, f.Close())
		}
		if err := a.matchPeers(one.Name, f); err != nil {
			return err
		}
		if s, ok := f.(fabric.Server); ok {
			for _, at := range s.Addresses() {
				a.addPort(one.Name, at)
			}
		}
	}
	return nil
}

// matchPeers makes each listed peer of a fabric known as a fabric of its own, and
// those that are listed no more, or are others now, no more.
func (a *Agent) matchPeers(name string, f fabric.Fabric) (err error) {
	g, ok := f.(fabric.Peered)
	if !ok {
		return nil
	}
	is := map[string]bool{}
	for _, p := range g.Peers() {
		is[p.Name] = is[p.Name] || p.Listed
	}
	for _, known := range a.fabrics.Names() {
		of, peer := fabric.SplitName(known)
		if of != name || peer == "" {
			continue
		}
		switch was, _ := a.fabrics.Get(known); {
		case !is[peer]:
			a.metrics.forget(peer)
		case was == g.Peer(peer):
			is[peer] = false
			continue
		}
		a.fabrics.Remove(known) // the fabric has closed it
	}
	for peer, add := range is {
		if add {
			err = errors.Join(err, a.fabrics.Add(fabric.PeerName(name, peer), g.Peer(peer)))
			a.metrics.incarnations.WithLabelValues(a.metrics.peer(peer))
		}
	}
	return err
}

// whole are the fabrics by name, their peers' own entries left out.
func (a *Agent) whole(yield func(name string, f fabric.Fabric) bool) {
	for _, name := range a.fabrics.Names() {
		f, ok := a.fabrics.Get(name)
		if _, peer := fabric.SplitName(name); ok && peer == "" && !yield(name, f) {
			return
		}
	}
}

// server is a fabric that serves its peers by itself.
type server interface {
	fabric.Fabric
	fabric.Server
}

func (a *Agent) servers() []server {
	var out []server
	for _, f := range a.whole {
		if s, ok := f.(server); ok {
			out = append(out, s)
		}
	}
	return out
}

// peers are those of all fabrics, in the order of the fabrics' names and then of
// theirs.
func (a *Agent) peers() []fabric.Peer {
	var out []fabric.Peer
	for _, f := range a.whole {
		g, ok := f.(fabric.Peered)
		if !ok {
			continue
		}
		for _, p := range g.Peers() {
			p.Fabric = f.Label()
			out = append(out, p)
		}
	}
	return out
}
