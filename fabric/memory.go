package fabric

import (
	"context"

	"meridian/wire"
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

// Window is memory that peers may touch. M lies end to end in the numbering of
// the range. OnWrite, where set, is called once the bytes of one write are in
// place and before the writer learns it; calls may be concurrent, and it must
// not block and must not call Shut.
type Window struct {
	M       []Mem
	Write   bool     // peers may write too, not only read
	Peers   []string // who may; empty: every peer of the fabric
	OnWrite func(wire.Span)
}

// Target is the passive end of Memory.
type Target interface {
	// Open makes a window reachable. No address of it was ever given out before
	// in this incarnation, so that an access meant for an earlier window can
	// only miss. The window's memory belongs to the fabric's peers until Shut.
	Open(w Window) (Range, error)
	// Shut refuses new accesses, waits for those under way, and returns what was
	// written, merged and in ascending order. Once it has returned nil nobody
	// touches the memory. When ctx ends first the window stays closed for new
	// accesses, the error is the context's, and Shut is called again to go on
	// waiting. A window that is not, or no longer, open is no error.
	Shut(ctx context.Context, r Range) (touched []wire.Span, err error)
}
