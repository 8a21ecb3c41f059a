package spaces

import (
	"cmp"
	"slices"
	"sync"

	"meridian/blocks/quota"
	"meridian/wire"
)

// configuration is the holder of the namespaces that the daemon opens by its
// configuration: all of them together have the share of one engine.
var configuration = quota.Holder{Kind: quota.Engine, Name: "configuration"}

// Configure opens the namespaces that the configuration names, in place of those that
// it named before, in two steps: so far those of before are open too. commit closes
// them, and cannot fail; cancel takes the new ones back. One of the two is called,
// before Configure is called again. They decide the geometry, as those of engines do.
//
// A *wire.GeometryError where one contradicts another or what an engine has open; a
// *quota.Error above a share. Nothing has changed then.
func (r *Registry) Configure(list []wire.Manifest) (commit, cancel func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	growth, err := r.book.Take(quota.Namespaces, uint64(max(len(list)-r.configured, 0)), configuration)
	if err != nil {
		return nil, nil, err
	}
	var opened []*space
	undo := func() {
		for _, s := range opened {
			s.due--
			r.sweepOne(s.manifest.Namespace(), s)
		}
		growth.Give()
	}
	for i, m := range list {
		s, err := r.due(list[:i], m)
		if err != nil {
			undo()
			return nil, nil, err
		}
		opened = append(opened, s)
	}
	var once sync.Once
	end := func(f func()) func() {
		return func() {
			once.Do(func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				f()
			})
		}
	}
	return end(func() { r.replace(opened, growth) }), end(undo), nil
}

// due makes one namespace known that is about to be configured, after others.
func (r *Registry) due(others []wire.Manifest, m wire.Manifest) (*space, error) {
	for _, o := range others {
		if err := conflict(o, m); err != nil {
			return nil, err
		}
	}
	for _, s := range r.by {
		if s.engines > 0 || s.own {
			if err := conflict(s.manifest, m); err != nil {
				return nil, err
			}
		}
	}
	s, err := r.put(m, quota.Total)
	if err == nil {
		s.due++
	}
	return s, err
}

// replace has the configuration hold these namespaces, and no others. growth is what
// they count more than those of before.
func (r *Registry) replace(opened []*space, growth *quota.Hold) {
	for _, s := range opened {
		s.due--
		s.wanted = true
	}
	if hold, err := r.book.Exchange([]*quota.Hold{r.held, growth}, quota.Namespaces, uint64(len(opened)), configuration); err == nil {
		r.held = hold // else a limit that fell meanwhile is still exceeded, by what both holds count
	}
	r.configured = len(opened)
	for ns, s := range r.by {
		if s.configured && !s.wanted {
			s.configured = false
			r.sweepOne(ns, s)
		}
		s.configured = s.wanted
		s.wanted = false
	}
}

// conflict compares two manifests of one part of a model.
func conflict(ours, theirs wire.Manifest) error {
	if ours == theirs || !ours.SameFamily(theirs) || !ours.SamePart(theirs) {
		return nil
	}
	field, a, b := ours.Diff(theirs)
	return &wire.GeometryError{Field: field, Ours: a, Theirs: b}
}

// State is a namespace that is known here, and who has it open.
type State struct {
	Manifest   wire.Manifest
	Own        bool     // for the daemon's own test blocks
	Configured bool     // by the daemon's configuration
	Engines    int      // processes of engines
	Peers      []string // by name, ascending
}

// List is all that are known, by tenant, model and namespace.
func (r *Registry) List() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]State, 0, len(r.by))
	for _, s := range r.by {
		one := State{Manifest: s.manifest, Own: s.own, Configured: s.configured, Engines: s.engines}
		for peer, u := range s.peers {
			if u.sessions > 0 {
				one.Peers = append(one.Peers, peer.Name)
			}
		}
		slices.Sort(one.Peers)
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b State) int {
		x, y := a.Manifest.Namespace(), b.Manifest.Namespace()
		return cmp.Or(cmp.Compare(a.Manifest.Tenant, b.Manifest.Tenant), cmp.Compare(a.Manifest.Model, b.Manifest.Model), slices.Compare(x[:], y[:]))
	})
	return out
}
