package blocks

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/blocks/internal/memfd"
	"meridian/wire"
)

// segmentMemory is a segment's bytes and its generation table.
type segmentMemory struct{ bytes, gens *memfd.Memory }

// beginSegment makes a segment of which no byte may be touched yet; its table is
// there.
func beginSegment(size, gens uint64) (*segmentMemory, error) {
	g, err := memfd.New("meridian-generations", gens, memfd.ReadOnly)
	if err != nil {
		return nil, err
	}
	b, err := memfd.Begin("meridian-segment", size, memfd.ReadOnly)
	if err != nil {
		g.Close()
		return nil, err
	}
	return &segmentMemory{b, g}, nil
}

func (m *segmentMemory) close() {
	m.bytes.Close()
	m.gens.Close()
}

// setGen stores a generation word. The load behind the store keeps later plain
// stores (the first byte of reuse) from becoming visible before it on arm64,
// where Store is a release only; store-release then load-acquire stays in order.
func (m *segmentMemory) setGen(off uint32, word uint64) {
	p := (*uint64)(unsafe.Pointer(&m.gens.B[off:][:8][0]))
	atomic.StoreUint64(p, word)
	_ = atomic.LoadUint64(p)
}

// arena is the memory of all segments. The store's mutex guards it.
type arena struct{ segs []*segmentMemory } // by segment number; nil where there is none

func (a *arena) install(seg uint32, m *segmentMemory) {
	for uint32(len(a.segs)) <= seg {
		a.segs = append(a.segs, nil)
	}
	a.segs[seg] = m
}

func (a *arena) get(seg uint32) *segmentMemory {
	if uint64(seg) >= uint64(len(a.segs)) {
		return nil
	}
	return a.segs[seg]
}

// remove takes a segment out; the caller unmaps it.
func (a *arena) remove(seg uint32) *segmentMemory {
	m := a.segs[seg]
	a.segs[seg] = nil
	return m
}

// slotBytes returns head room and body of a view: header first, n bytes of body.
func (a *arena) slotBytes(v *View, n uint32) []byte {
	from := v.Off - wire.HeaderLen
	to := v.Off + uint64(n)
	return a.segs[v.Seg].bytes.B[from:to:to]
}

func (a *arena) close() {
	for _, m := range a.segs {
		if m != nil {
			m.close()
		}
	}
	a.segs = nil
}

const hugePage = 2 << 20 // of amd64, and of arm64 with 4 KiB pages

// hugePages asks for huge pages where whole ones lie in a table of the core. It
// is a hint: a kernel that has none leaves the table as it is.
func hugePages(p unsafe.Pointer, n uintptr) {
	if skip, whole := wholeHugePages(uintptr(p), n); whole > 0 {
		_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(p, skip)), whole), unix.MADV_HUGEPAGE)
	}
}

// wholeHugePages is what of n bytes at an address is whole huge pages: how many
// bytes, and how many lie before them.
func wholeHugePages(at, n uintptr) (skip, whole uintptr) {
	skip = -at % hugePage
	return skip, (n - min(skip, n)) &^ (hugePage - 1)
}
