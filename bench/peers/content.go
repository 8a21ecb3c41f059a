package peers

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Seeds of the two contents: what a target holds, and what an initiator writes.
const (
	seedRemote = 1
	seedLocal  = 2
)

// fill writes the content of a region from offset at into b: its 64-bit word g
// is seed<<56 | g, little-endian, so that a byte of another place, of the other
// region or of nowhere is never right. at and len(b) are multiples of 8.
// drivers/driver.py has the same.
func fill(b []byte, seed, at uint64) {
	w := seed<<56 + at/8
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, w)
		w++
	}
}

// expect tells where b is not that content.
func expect(b []byte, seed, at uint64) error {
	w := seed<<56 + at/8
	for i := 0; i+8 <= len(b); i += 8 {
		if got := binary.LittleEndian.Uint64(b[i:]); got != w {
			return fmt.Errorf("wrong content: word %#x at byte %d of %d, want %#x", got, i, len(b), w)
		}
		w++
	}
	return nil
}

// aligned is n bytes that begin at a multiple of 64, as slots and registered
// memory do.
func aligned(n uint64) []byte {
	b := make([]byte, n+64)
	at := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % 64
	return b[at:][:n:n]
}

// order is how a cell's blocks are used: scattered, so that no two neighbours of
// a batch can be moved as one, and each stream in its own share of the batches.
type order struct {
	Cell
	blocks, batches, step int
}

func orderOf(c Cell) order {
	o := order{Cell: c, blocks: int(c.Set / c.Size)}
	o.batches = o.blocks / c.Batch
	o.step = int(float64(o.blocks)*0.618) | 1
	for gcd(o.step, o.blocks) != 1 {
		o.step += 2
	}
	return o
}

// item is the block that is item j of the k-th batch of a stream.
func (o order) item(stream, k, j int) int {
	from := stream * o.batches / o.Streams
	to := (stream + 1) * o.batches / o.Streams
	batch := from + k%(to-from)
	return (batch*o.Batch + j) * o.step % o.blocks
}

// local is the offset of a stream's buffer for item j.
func (o order) local(stream, j int) uint64 { return uint64(stream*o.Batch+j) * o.Size }

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
