package blocks

import (
	"time"

	"meridian/wire"
)

// Owner is a session of the store: an engine, a peer, or a part of the daemon.
// Everything it holds ends with Drop. The zero Owner is never valid.
type Owner uint64

// Lease is a reader's right to some blocks for a time: 16 random bytes minted
// here, bound to the owner that asked. The zero Lease is never granted.
type Lease [16]byte

// Loc is where a copy of a block lies outside the arena: a fabric's label and
// that fabric's opaque handle. The zero Loc means the arena.
type Loc struct {
	Fabric string
	H      [32]byte
}

// View describes a slot as it was when the call returned. It grants nothing:
// bytes may be touched only under a lease or a reservation.
type View struct {
	NS     wire.Namespace
	Key    wire.Key
	Ref    wire.Ref    // odd Gen: a reservation; zero: no bytes here
	Seg    uint32      // segment number, from 1; 0: no bytes here
	Off    uint64      // of the body, 64-byte aligned; the header is at Off-32
	GenOff uint32      // byte offset of the generation word in the segment's table
	Cap    uint32      // body bytes: those asked for while reserved, the slot's room after
	Head   wire.Header // as it was fixed at commit
	Tier   wire.Tier   // as it is now
	Att    wire.Attest
	Where  Loc   // of the copy outside, if there is one
	Refs   int   // leases and other pins
	Pins   int   // of them, those of Pin
	Err    error // matches a wire.Code
}

// Commit publishes one reserved slot. Whatever Err says, the slot is no longer
// the caller's afterwards, unless it never was.
type Commit struct {
	Slot uint32
	Gen  uint32         // of the reservation's Ref; 0: not checked
	NS   wire.Namespace // zero: the reservation's; else it must be the same
	Key  wire.Key
	Tier wire.Tier
	Head *wire.Header // what the bytes are claimed to be: others are refused (CHECKSUM); nil: mint one
	Len  uint32       // body length, read where Head is nil
	Att  wire.Attest

	// Proof of the slot's bytes, by the room that hashed them. Without it,
	// or with that of other memory, the store hashes them itself.
	Proof wire.Verified

	Transient bool // not published: only this owner finds it, and it is freed at release
	Live      bool // belongs to a request that is running
	Pin       Pin  // of the block once it is published, or of the one that is there already
	Err       error

	sealed wire.Header // Store.Commit's own, between its steps
	room   []byte      // likewise
	failed error       // likewise
}

// Moved reports a copy that the caller made: see Store.Moved.
type Moved struct {
	Slot uint32
	Gen  uint32 // of the block's Ref; 0: not checked
	Loc  Loc
	Err  error // not nil: the copy failed, the block stays
}

// Input is what happened outside since the last Step.
type Input struct {
	Free uint64 // evict idle blocks until this many bytes are free; 0: none
}

// Evict is one block that left the arena to make room.
type Evict struct {
	Ref  wire.Ref
	Tier wire.Tier
	Live bool // an OutputCritical block of a running request: this is what alerts
}

// Ready is what the caller should do, and what it should know.
type Ready struct {
	Evicted []Evict       // at most MaxEvents; beyond, only counted
	Lapsed  []Lease       // at most MaxEvents; beyond, only counted
	Aged    []Lease       // hold leases that outlived their time; they still hold
	Next    time.Duration // clock reading at which Step is due again; 0: nothing is due
}
