package blocks

import (
	"math/bits"

	"meridian/blocks/internal/memfd"
	"meridian/wire"
)

const (
	// Bounds of an extent that the capacity chooses, in bytes.
	maxExtent = 64 << 20
	minExtent = 256 << 10

	// slotAlign is a cache line, and the alignment of every body.
	slotAlign = 64

	// slotHead is the room in front of a body: padding, then the header in its
	// last wire.HeaderLen bytes, so that header and body are one range.
	slotHead = slotAlign

	// maxSlotBits bounds the slots of one extent, and so the generation table.
	maxSlotBits = 14

	// classesPerOctave is the number of body sizes between two powers of two.
	// With 8, every size 2^n × 1, 3, 5, 7, 9, 11, 13 or 15 fits without waste,
	// which covers the usual numbers of layers; the worst case wastes 1/9.
	classesPerOctave = 8

	// maxClasses bounds the class numbers that geometry.class returns.
	maxClasses = 32*classesPerOctave + classesPerOctave + 1

	// A segment has a 64th of all extents within these bounds: it is what the arena
	// grows by, and each costs the daemon two descriptors and an engine two maps.
	fewSegExtents = 4  // 256 MiB at 64 MiB; fewer where the arena has not even 8 times as many
	maxSegExtents = 16 // 1 GiB
)

// geometry is how a capacity is cut into segments, extents and slots.
type geometry struct {
	extent     uint64 // nominal bytes of an extent, what counts against the capacity
	pitch      uint64 // bytes from one extent to the next: room for the heads of power-of-two bodies
	extents    int    // that the capacity allows
	segExtents int    // extents a segment
	minBody    uint32 // body bytes of the smallest class
	maxBody    uint32 // the largest body that fits
	slotBits   uint   // a slot number is extent<<slotBits | index
}

// newGeometry derives the cut. extent 0 chooses one.
func newGeometry(capacity, extent uint64) (geometry, error) {
	if extent == 0 {
		extent = 1 << (bits.Len64(max(capacity/8, 1)) - 1)
		extent = min(max(extent, minExtent), maxExtent)
		for extent > capacity && extent > 64<<10 {
			extent /= 2
		}
		for capacity/extent > 1<<16 { // slot numbers have 31 bits
			extent *= 2
		}
	}
	switch {
	case extent&(extent-1) != 0 || extent < 4<<10 || extent > 1<<31:
		return geometry{}, &LimitError{Code: wire.CodeConfig, What: "extent bytes (a power of two from 4 KiB to 2 GiB)", Got: extent, Limit: 1 << 31}
	case extent > capacity:
		return geometry{}, &LimitError{Code: wire.CodeConfig, What: "bytes of one extent against the arena's capacity", Got: extent, Limit: capacity}
	}
	g := geometry{
		extent:  extent,
		pitch:   extent + max(8*slotHead, extent>>10),
		extents: int(capacity / extent),
		minBody: uint32(max(256, extent>>maxSlotBits)),
		maxBody: uint32(extent),
	}
	g.segExtents = min(max(g.extents/8, 1), max(fewSegExtents, min(g.extents/64, maxSegExtents)))
	g.slotBits = uint(bits.Len64(g.pitch/uint64(g.minBody+slotHead) - 1))
	if limit := uint64(1)<<(31-g.slotBits) - maxSegExtents; uint64(g.extents) > limit {
		return geometry{}, &LimitError{Code: wire.CodeConfig, What: "extents; use larger ones", Got: uint64(g.extents), Limit: limit}
	}
	return g, nil
}

// class returns the class of an n-byte body and the body bytes of its slots.
func (g *geometry) class(n uint32) (class int, room uint32) {
	n = max(n, g.minBody)
	shift := bits.Len32(n-1) - 4
	units := (uint64(n) + 1<<shift - 1) >> shift // classesPerOctave < units ≤ 2*classesPerOctave
	return shift*classesPerOctave + int(units), uint32(min(units<<shift, uint64(g.maxBody)))
}

// stride is the bytes of a slot whose body has room bytes.
func stride(room uint32) uint64 {
	return slotHead + (uint64(room)+slotAlign-1)&^(slotAlign-1)
}

// genBytes is the size of its generation table: a u64 a slot.
func (g *geometry) genBytes(n int) uint64 { return memfd.WholePages(uint64(n) << g.slotBits * 8) }

// segBytes is the size of a segment of n extents, in whole pages.
func (g *geometry) segBytes(n int) uint64 { return memfd.WholePages(uint64(n) * g.pitch) }
