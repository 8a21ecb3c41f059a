package link

import (
	"errors"
	"sync"

	"meridian/adapters/link/internal/core"
	"meridian/wire"
	proto "meridian/wire/link"
)

// Namespaces knows the manifests of this agent. Nothing here blocks for long:
// the calls are made while a session waits.
type Namespaces interface {
	// Manifest returns the manifest of a namespace that is open here.
	Manifest(ns wire.Namespace) (wire.Manifest, bool)
	// Open takes a manifest that a peer offers; the peer has proved its tenant.
	// A *wire.GeometryError where it contradicts one that is open here.
	Open(m wire.Manifest) (wire.Namespace, error)
}

// Registry is Namespaces in memory, at most 1024 of them.
type Registry struct {
	add func(ns wire.Namespace, tenant [32]byte) error

	mu sync.RWMutex
	by map[wire.Namespace]wire.Manifest
}

// NewRegistry makes an empty registry. add is told about each namespace before
// it is open, and may refuse it: the block store's AddNamespace.
func NewRegistry(add func(ns wire.Namespace, tenant [32]byte) error) *Registry {
	return &Registry{add: add, by: map[wire.Namespace]wire.Manifest{}}
}

// Manifest implements Namespaces.
func (r *Registry) Manifest(ns wire.Namespace) (wire.Manifest, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	m, ok := r.by[ns]
	return m, ok
}

// Add opens a namespace of this agent's own: several of one family, as the ranks
// of one model are, may stand side by side.
func (r *Registry) Add(m wire.Manifest) (wire.Namespace, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.put(m.Namespace(), m)
}

// Open implements Namespaces. TOO_MANY above the limit.
func (r *Registry) Open(m wire.Manifest) (wire.Namespace, error) {
	ns := m.Namespace()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.by[ns]; ok {
		return ns, nil
	}
	for _, o := range r.by {
		if o.SameFamily(m) {
			field, ours, theirs := o.Diff(m)
			return ns, &wire.GeometryError{Field: field, Ours: ours, Theirs: theirs}
		}
	}
	return r.put(ns, m)
}

func (r *Registry) put(ns wire.Namespace, m wire.Manifest) (wire.Namespace, error) {
	if _, ok := r.by[ns]; ok {
		return ns, nil
	}
	if len(r.by) >= proto.MaxNamespaces {
		return ns, wire.CodeTooMany
	}
	if err := r.add(ns, m.TenantID()); err != nil {
		return ns, err
	}
	r.by[ns] = m
	return ns, nil
}

// peerRegistry is Namespaces in the terms of the core.
type peerRegistry struct{ n Namespaces }

// Open implements core.Registry.
func (p peerRegistry) Open(m wire.Manifest) (ns wire.Namespace, code wire.Code, field, ours, theirs string) {
	ns, err := p.n.Open(m)
	if g, ok := errors.AsType[*wire.GeometryError](err); ok {
		return ns, wire.CodeGeometry, g.Field, g.Ours, g.Theirs
	}
	return ns, wire.CodeOf(err), "", "", ""
}

var _ core.Registry = peerRegistry{}

// Len is how many namespaces are open.
func (r *Registry) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.by)
}
