package synthetic

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/wire"
)

// block is one published payload. It never changes: Flip replaces it.
type block struct {
	h    uint64
	id   ident
	tier wire.Tier
	att  wire.Attest
	head wire.Header
	buf  []byte // header, body
}

// ident is a block's name; a zero key is no name, such a block has only its handle.
type ident struct {
	ns  wire.Namespace
	key wire.Key
}

// world is what endpoints share: the blocks, and the windows of those that are placed.
type world struct {
	mu       sync.Mutex
	capacity uint64
	used     uint64 // bytes of published and placed payloads
	handles  uint64 // the last one given out
	byHandle map[uint64]*block
	byName   map[ident]*block
	placed   map[uint64]*placement
	peers    map[string]*Fabric
	windows  *window.Table
}

// windowBytes is far above any capacity: a placement counts for that, by the byte, and
// its window in whole pages.
const windowBytes = 1 << 46

func newWorld(capacity uint64) *world {
	start := time.Now()
	return &world{
		capacity: capacity,
		byHandle: make(map[uint64]*block),
		byName:   make(map[ident]*block),
		placed:   make(map[uint64]*placement),
		peers:    make(map[string]*Fabric),
		windows:  window.New(nil, func() time.Duration { return time.Since(start) }, windowBytes, nil),
	}
}

func handleOf(n uint64) (h fabric.Handle) {
	binary.LittleEndian.PutUint64(h[:], n)
	return h
}

// numberOf is 0 for a handle that was never one of this fabric's.
func numberOf(h fabric.Handle) uint64 {
	n := binary.LittleEndian.Uint64(h[:])
	if h != handleOf(n) {
		return 0
	}
	return n
}

// find looks an item up by handle, or by name where the handle is zero. The
// world is locked.
func (w *world) find(it *fabric.Item) (*block, error) {
	if it.H == (fabric.Handle{}) {
		if it.Key == (wire.Key{}) {
			return nil, &fabric.Error{Code: wire.CodeInvalid, Fabric: Label, Text: "neither a handle nor a key"}
		}
		if b := w.byName[ident{it.NS, it.Key}]; b != nil {
			return b, nil
		}
	} else if b := w.byHandle[numberOf(it.H)]; b != nil {
		return b, nil
	}
	return nil, &fabric.Error{Code: wire.CodeAbsent, Fabric: Label}
}

// reserve takes n bytes of the capacity and a handle for id. A name that is
// taken gives CodeExists and the handle that has it. The world is locked.
func (w *world) reserve(id ident, n uint64) (uint64, error) {
	if id.key != (wire.Key{}) {
		if b := w.byName[id]; b != nil {
			return b.h, &fabric.Error{Code: wire.CodeExists, Fabric: Label}
		}
	}
	if free := w.capacity - w.used; n > free {
		return 0, &fabric.Error{Code: wire.CodeFull, Fabric: Label, Have: free, Need: n}
	}
	w.used += n
	w.handles++
	return w.handles, nil
}

// publish makes b visible; its bytes are reserved. The world is locked.
func (w *world) publish(b *block) {
	w.byHandle[b.h] = b
	if b.id.key != (wire.Key{}) {
		w.byName[b.id] = b
	}
}

// remove frees b. The world is locked.
func (w *world) remove(b *block) {
	delete(w.byHandle, b.h)
	if b.id.key != (wire.Key{}) {
		delete(w.byName, b.id)
	}
	w.used -= uint64(len(b.buf))
}

// sorted returns all handles in ascending order.
func (w *world) sorted() []uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]uint64, 0, len(w.byHandle))
	for h := range w.byHandle {
		all = append(all, h)
	}
	slices.Sort(all)
	return all
}
