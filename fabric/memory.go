package fabric

import (
	"context"
)

// Range names memory of a peer. Addr is in that peer's own numbering: an
// address in its process, or a synthetic one of a Target.
type Range struct {
	Peer      string
	Addr, Len uint64 // bytes
	Dev       uint32 // 0 is host memory; else the peer's number of a device
}

// Xfer is one one-sided access. The caller fills R and M, with R.Len equal to
// len(M.B); the fabric fills Via, Loose and Err under the same rules as in
// Item. There is no header and no checksum here: bytes that arrive by a Read
// are not a block until somebody has checked them.
type Xfer struct {
	R     Range
	M     Mem
	Via   string
	Loose bool // M may still be touched until Quiesce returns
	Err   error
}

// Memory is a fabric with one-sided access to ranges of its peers, as NIXL and
// the Mooncake transfer engine have it. Quiesce of the same fabric covers it.
type Memory interface {
	// Read copies R to M, Write copies M to R, each item by itself and in no
	// particular order. A range that lies not wholly in one open window of the
	// peer is refused, never cut.
	Read(ctx context.Context, x []Xfer)
	Write(ctx context.Context, x []Xfer)
}

// Placer is an object store with two phases: an object push is Place, then
// Memory.Write to the ranges, then Seal (PutStart to PutEnd of Mooncake Store).
type Placer interface {
	// Place reserves room for each item, len(M.B) bytes, and returns one range
	// an item; it fills H, or sets Err and leaves that range zero. The error
	// is for the case that nothing was placed at all. A placed item is
	// invisible. It is freed by Seal, or when the store's own deadline for it
	// passes.
	Place(ctx context.Context, it []Item) ([]Range, error)
	// Seal publishes the items with ok set and frees the others. It sets Err of
	// an item that did not become visible: CodeChecksum where the store checks
	// what was written, CodeAbsent where the placement was gone. len(ok) is
	// len(it). The error is for the case that nothing was sealed at all.
	Seal(ctx context.Context, it []Item, ok []bool) error
}

// Target is memory of this agent that peers of a fabric reach one-sidedly: windows at
// synthetic addresses, of which none is ever given out twice in an incarnation. An
// adapter that serves such accesses asks before each one, and touches no memory that it
// was not let into; it never learns whose the window is. The agent's Target is a table
// of package blocks/window, whose doc.go shows the use.
type Target interface {
	// Enter lets peer's access of n bytes at addr in, to read or to write. b is the
	// memory, until leave is called with the number of bytes that were written from the
	// beginning of b on: 0 after a read. The peer gets its answer after leave, so that
	// the owner has heard of the bytes by then. A refusal is a wire.Code: STALE for a
	// window that is gone or closing, INVALID for a range that is empty or not wholly in
	// one window, DENIED for what this peer may not do there. It is for this access only.
	Enter(peer string, addr, n uint64, write bool) (b []byte, leave func(wrote uint64), err error)
}
