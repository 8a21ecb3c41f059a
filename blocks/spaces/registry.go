package spaces

import (
	"sync"
	"sync/atomic"

	"meridian/blocks/quota"
	"meridian/wire"
	proto "meridian/wire/link"
)

// Registry is the namespaces in memory: who has each open, and until when it is
// remembered. Engines and the configuration add namespaces, and those of one model that
// differ in rank or layers stand side by side. Peers hold what they opened for
// their sessions. What nobody has open is forgotten once nothing of it is stored.
type Registry struct {
	add    func(ns wire.Namespace, tenant [32]byte) error
	forget func(ns wire.Namespace) bool
	book   *quota.Book

	mu         sync.Mutex
	by         map[wire.Namespace]*space
	held       *quota.Hold // of those that are configured
	configured int

	tenants atomic.Pointer[map[wire.Namespace]string] // of by, and never changed; nil: not made. Stored under mu
}

// space is a namespace that is known here.
type space struct {
	manifest wire.Manifest
	own      bool // never forgotten
	engines  int  // that have it open
	hold     *quota.Hold

	configured, wanted bool // by what is in force, and by what replaces it
	due                int  // it is about to be configured
	peers              map[quota.Holder]*peerUse
}

// peerUse is what a peer has of a namespace. It stays, and counts, while blocks
// that came for nobody else are stored.
type peerUse struct {
	sessions int
	hold     *quota.Hold
}

// Store is what a Registry needs of the block store.
type Store interface {
	AddNamespace(ns wire.Namespace, tenant [32]byte) error
	RemoveNamespace(ns wire.Namespace) bool
}

// New makes an empty registry without shares that never forgets. add is
// told about each namespace before it is open, and may refuse it: the block
// store's AddNamespace.
func New(add func(ns wire.Namespace, tenant [32]byte) error) *Registry {
	book := &quota.Book{}
	book.SetLimit(quota.Namespaces, quota.All, proto.MaxNamespaces)
	return &Registry{add: add, forget: func(wire.Namespace) bool { return false }, book: book, by: map[wire.Namespace]*space{}}
}

// Over makes an empty registry over a block store, with the shares of
// a book.
func Over(st Store, book *quota.Book) *Registry {
	return &Registry{add: st.AddNamespace, forget: st.RemoveNamespace, book: book, by: map[wire.Namespace]*space{}}
}

// Manifest returns the manifest of a namespace that is open here.
func (r *Registry) Manifest(ns wire.Namespace) (wire.Manifest, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.by[ns]; s != nil {
		return s.manifest, true
	}
	return wire.Manifest{}, false
}

// Tenant returns the tenant of a namespace that is open here. It is asked for every
// block, and takes the lock only after a change.
func (r *Registry) Tenant(ns wire.Namespace) (string, bool) {
	all := r.tenants.Load()
	if all == nil {
		all = r.tell()
	}
	tenant, ok := (*all)[ns]
	return tenant, ok
}

// tell makes what Tenant answers from.
func (r *Registry) tell() *map[wire.Namespace]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[wire.Namespace]string, len(r.by))
	for ns, s := range r.by {
		all[ns] = s.manifest.Tenant
	}
	r.tenants.Store(&all)
	return &all
}

// Add opens a namespace of this agent's own, for good.
func (r *Registry) Add(m wire.Manifest) (wire.Namespace, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.put(m, quota.Total)
	if err == nil {
		s.own = true
	}
	return m.Namespace(), err
}

// OpenEngine opens a namespace for an engine until close is called. A
// *wire.GeometryError where it contradicts what another engine has open; a
// *quota.Error above the engine's share.
func (r *Registry) OpenEngine(engine quota.Holder, m wire.Manifest) (ns wire.Namespace, close func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.contradicts(m); err != nil {
		return ns, nil, err
	}
	hold, err := r.book.Take(quota.Namespaces, 1, engine)
	if err != nil {
		return ns, nil, err
	}
	s, err := r.put(m, quota.Total)
	if err != nil {
		hold.Give()
		return ns, nil, err
	}
	s.engines++
	ns = m.Namespace()
	return ns, sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		hold.Give()
		s.engines--
		r.sweepOne(ns, s)
	}), nil
}

// OpenPeer opens a namespace for a peer, whose tenant it has proved, until close is
// called. A *wire.GeometryError where it contradicts what an engine has open; a
// *quota.Error above a share.
func (r *Registry) OpenPeer(peer quota.Holder, m wire.Manifest) (ns wire.Namespace, close func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.contradicts(m); err != nil {
		return ns, nil, err
	}
	ns = m.Namespace()
	s := r.by[ns]
	if s == nil || s.peers[peer] == nil {
		tenant := quota.Holder{Kind: quota.Tenant, Name: m.Tenant}
		hold, err := r.take(peer, tenant)
		if err != nil {
			return ns, nil, err
		}
		if s, err = r.put(m, quota.Total, quota.AllPeers); err != nil {
			hold.Give()
			return ns, nil, err
		}
		if s.peers == nil {
			s.peers = map[quota.Holder]*peerUse{}
		}
		s.peers[peer] = &peerUse{hold: hold}
	}
	use := s.peers[peer]
	use.sessions++
	return ns, sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		use.sessions--
		r.sweepOne(ns, s)
	}), nil
}

// contradicts compares a manifest with what engines and the configuration have open.
// What other peers opened says nothing about it.
func (r *Registry) contradicts(m wire.Manifest) error {
	if s := r.by[m.Namespace()]; s != nil && s.decides() {
		return nil
	}
	for _, s := range r.by {
		if s.decides() || s.own {
			if err := conflict(s.manifest, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// decides says whether others that contradict it are refused.
func (s *space) decides() bool { return s.engines > 0 || s.configured || s.due > 0 }

// take counts one more namespace for holders. Before one of them is refused, what
// can be forgotten is.
func (r *Registry) take(who ...quota.Holder) (*quota.Hold, error) {
	hold, err := r.book.Take(quota.Namespaces, 1, who...)
	if err != nil {
		r.sweep()
		hold, err = r.book.Take(quota.Namespaces, 1, who...)
	}
	return hold, err
}

// put returns the record of a manifest. A new one counts for holders until it is
// forgotten.
func (r *Registry) put(m wire.Manifest, who ...quota.Holder) (*space, error) {
	ns := m.Namespace()
	if s := r.by[ns]; s != nil {
		return s, nil
	}
	hold, err := r.take(who...)
	if err != nil {
		return nil, err
	}
	if err := r.add(ns, m.TenantID()); err != nil {
		hold.Give()
		return nil, err
	}
	s := &space{manifest: m, hold: hold}
	r.by[ns] = s
	r.tenants.Store(nil)
	return s, nil
}

// sweep forgets all that can be forgotten.
func (r *Registry) sweep() {
	for ns, s := range r.by {
		r.sweepOne(ns, s)
	}
}

// sweepOne gives back what a namespace no longer needs, and forgets one that nobody
// has open and of which nothing is stored. A peer's use lasts as long as it has the
// namespace open, or as blocks are stored that nobody else accounts for.
func (r *Registry) sweepOne(ns wire.Namespace, s *space) {
	if r.by[ns] != s {
		return
	}
	open := s.own || s.decides()
	for _, u := range s.peers {
		open = open || u.sessions > 0
	}
	gone := !open && r.forget(ns)
	for peer, u := range s.peers {
		if u.sessions == 0 && (open || gone) {
			u.hold.Give()
			delete(s.peers, peer)
		}
	}
	if gone {
		s.hold.Give()
		delete(r.by, ns)
		r.tenants.Store(nil)
	}
}

// Len is how many namespaces are known.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.by)
}
