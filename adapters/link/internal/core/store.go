package core

import (
	"time"

	"meridian/wire"
)

// Block is one block of the store, in the terms of the link.
type Block struct {
	NS        wire.Namespace
	Key       wire.Key
	Slot, Gen uint32 // Gen 0: named by NS and Key
	Head      wire.Header
	Tier      wire.Tier
	Att       wire.Attest
	Body      []byte // the body's bytes in the arena while pinned or reserved, else nil
	Code      wire.Code
	Proof     wire.Verified // of Body, where it is to be published
	Hops      uint32        // daemons that it came through, as its pusher says; where it is to be published

	// Came, where Reserve or Housed has set it, is told how many bytes of the body are in place,
	// from the front: 0 when they are next, then once in growStep, and when all are. It is
	// called with the session's lock, does not wait and does not call back.
	Came func(n int)
}

// Lease is a holder's lease on pinned blocks.
type Lease [16]byte

// Store is what a session needs of the block store. It is bound to one owner,
// so that a peer can name only its own leases. Calls do not block, and do not
// call back. Every call with blocks leaves alone those whose Code is not OK,
// and sets Code on the others.
type Store interface {
	// Stat fills Slot, Gen, Head, Tier and Att, or Code.
	Stat(b []Block)
	// Pin is Stat, and pins what is there; Body is set. The lease is zero where
	// nothing was pinned.
	Pin(b []Block, ttl time.Duration) Lease
	Renew(l Lease, ttl time.Duration) wire.Code
	Unpin(l Lease)
	// Pulled says that the peer was sent pinned blocks to their end.
	Pulled(b []Block)
	// Reserve may take long, and is called without the session's lock. It makes room for Head.BodyLen bytes each: Slot, Gen and Body are
	// set. EXISTS where the key is published, FULL where there is no room.
	Reserve(b []Block, ttl time.Duration)
	// Stock is Reserve for blocks that nobody has named yet: they have no Key, and
	// get room all or none.
	Stock(b []Block, ttl time.Duration)
	// Housed tells that blocks have got homes of a Stock, before their bodies come. A block
	// that is refused is freed.
	Housed(b []Block)
	// Publish makes reserved blocks visible, with Head as it is, by the Proof of
	// their bodies. A block that is refused is freed.
	Publish(b []Block)
	// Abort frees reserved blocks.
	Abort(b []Block)
	// Drop frees all that the owner has.
	Drop()
}

// Looker finds elsewhere what the store does not have.
type Looker interface {
	// Looks reports whether Look may bring anything now. It is called with the session's
	// lock.
	Looks() bool
	// Look makes those of the blocks present that are ABSENT, as far as it can in a
	// short time, and is called without the session's lock.
	Look(b []Block)
}

// Namespaces knows the namespaces of this agent.
type Namespaces interface {
	// Open takes a manifest of a tenant that the peer has proved. It returns
	// the namespace, or a code and, for GEOMETRY, the field that differs with
	// both values.
	Open(m wire.Manifest) (ns wire.Namespace, code wire.Code, field, ours, theirs string)
}

// Tenants is what a peer has proved: a set of names, or all of them.
type Tenants struct {
	All   bool
	Names []string
}

// Has reports whether name was proved.
func (t Tenants) Has(name string) bool {
	if t.All {
		return true
	}
	for _, n := range t.Names {
		if n == name {
			return true
		}
	}
	return false
}
