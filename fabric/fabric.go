package fabric

import (
	"context"

	"meridian/wire"
)

// Mem is one contiguous payload: header, then body. Seg 0 is plain memory.
type Mem struct {
	B   []byte
	Seg uint32
	Off uint64
}

// Handle is opaque and persistable; the zero handle is never valid.
type Handle [32]byte

// Item is one block of a Push, Pull, Find or Drop. The caller fills NS, Key,
// Tier, H (zero: by key), M and, for a Push, Att; the fabric fills H, Head, Via,
// Loose, Err and, for a Pull or Find, Att; Proof is for a Pull.
type Item struct {
	NS    wire.Namespace
	Key   wire.Key
	Tier  wire.Tier
	H     Handle
	M     Mem // Push: exactly header + body. Pull: room for header + the largest body wanted.
	Head  wire.Header
	Att   wire.Attest   // who vouched for Head.Sum: travels with the block and is never raised on the way
	Proof wire.Verified // of the body where it lies in M, by a fabric that hashed it there; else the publisher has to
	Via   string        // the transport really used: tcp, tls, unix, mem, ...
	Loose bool          // M may still be touched until Quiesce returns
	Err   error         // matches a wire.Code by errors.Is
}

// Caps says what a fabric can do.
type Caps struct {
	Verified   bool // Pull compares each body with Head, and gives Proof; else the caller hashes
	Persistent bool
	OneSided   bool
	TwoPhase   bool
	MaxItem    int // bytes of a payload, header included; 0: no limit
	MaxBatch   int // items of one call; 0: no limit
	Lanes      int // calls that move bytes side by side; 0: one
}

// Fabric moves blocks. Every item has its own Err; a batch never fails as a
// whole for one item. Calls may run at the same time.
type Fabric interface {
	Label() string
	Caps() Caps
	Push(ctx context.Context, it []Item)
	Pull(ctx context.Context, it []Item) // idempotent, verified
	Quiesce(ctx context.Context) error   // no memory of a finished call is touched any more
	Close() error
}
