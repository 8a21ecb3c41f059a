package link

import (
	"errors"

	"meridian/adapters/link/internal/core"
	"meridian/blocks/quota"
	"meridian/wire"
)

// Namespaces knows the manifests of this agent. Nothing here blocks for long:
// the calls are made while a session waits.
type Namespaces interface {
	// Manifest returns the manifest of a namespace that is open here.
	Manifest(ns wire.Namespace) (wire.Manifest, bool)
	// Tenant returns the tenant of a namespace that is open here. It is asked for every block.
	Tenant(ns wire.Namespace) (string, bool)
	// Add opens a namespace of this agent's own, for good.
	Add(m wire.Manifest) (wire.Namespace, error)
	// OpenPeer takes a manifest that a peer offers, whose tenant it has proved. The
	// peer holds the namespace until close. A *wire.GeometryError where the manifest
	// contradicts one that an engine of this agent has open; a *quota.Error above the
	// peer's or the tenant's share.
	OpenPeer(peer quota.Holder, m wire.Manifest) (ns wire.Namespace, close func(), err error)
}

// sessionNamespaces is what one session has open here, in the terms of the core. It is
// used under the session's lock.
type sessionNamespaces struct {
	n      Namespaces
	peer   quota.Holder
	closes []func()
}

// Open implements core.Namespaces.
func (p *sessionNamespaces) Open(m wire.Manifest) (ns wire.Namespace, code wire.Code, field, ours, theirs string) {
	ns, done, err := p.n.OpenPeer(p.peer, m)
	if err == nil {
		p.closes = append(p.closes, done)
		return ns, wire.CodeOK, "", "", ""
	}
	if g, ok := errors.AsType[*wire.GeometryError](err); ok {
		return ns, wire.CodeGeometry, g.Field, g.Ours, g.Theirs
	}
	return ns, wire.CodeOf(err), "", "", ""
}

// close ends the session's use of everything that it opened.
func (p *sessionNamespaces) close() {
	for _, done := range p.closes {
		done()
	}
	p.closes = nil
}

var _ core.Namespaces = (*sessionNamespaces)(nil)
