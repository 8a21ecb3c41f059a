package blocks

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"meridian/wire"
)

// index is an open-addressing table with linear probing and backward-shift
// deletion. A cell is tag<<32 | id+1, zero when empty; the keys themselves lie
// in the slots, so a cell costs 8 bytes and a wrong tag costs no second miss.
// A cell's home is its tag masked, so growing and deleting read no key.
type index struct {
	cells []uint64
	mask  uint32
	n     int
	huge  func(unsafe.Pointer, uintptr)
	seed  [4]uint64 // keys come from engines: without a secret they could be made to collide
}

const minCells = 64

func newIndex(seed [4]uint64, huge func(unsafe.Pointer, uintptr)) index {
	return index{cells: make([]uint64, minCells), mask: minCells - 1, seed: seed, huge: huge}
}

// tag hashes a key in its namespace. Keys are BLAKE3 outputs when honest, so
// two rounds of multiply and fold are enough to spread them.
func (x *index) tag(ns uint16, k *wire.Key) uint32 {
	a := binary.LittleEndian.Uint64(k[0:8])
	b := binary.LittleEndian.Uint64(k[8:16])
	c := binary.LittleEndian.Uint64(k[16:24])
	d := binary.LittleEndian.Uint64(k[24:32])
	h1, l1 := bits.Mul64(a^x.seed[0], b^x.seed[1])
	h2, l2 := bits.Mul64(c^x.seed[2], d^x.seed[3]^uint64(ns)<<17)
	h, l := bits.Mul64(h1^l1^x.seed[2], h2^l2^x.seed[1])
	return uint32(h ^ l)
}

func cell(tag, id uint32) uint64 { return uint64(tag)<<32 | uint64(id+1) }

func cellTag(c uint64) uint32 { return uint32(c >> 32) }

func cellID(c uint64) uint32 { return uint32(c) - 1 }

// next is the position where a probe goes on after i.
func (x *index) next(i uint32) uint32 { return (i + 1) & x.mask }

// first returns the id of the first cell with the tag, or none.
func (x *index) first(tag uint32) uint32 {
	for i := tag & x.mask; ; i = x.next(i) {
		e := x.cells[i]
		if e == 0 {
			return none
		}
		if cellTag(e) == tag {
			return cellID(e)
		}
	}
}

// insert adds a cell; the caller knows that the key is not there.
func (x *index) insert(tag, id uint32) {
	x.reserve(x.n + 1)
	x.put(cell(tag, id))
	x.n++
}

func (x *index) put(c uint64) {
	i := cellTag(c) & x.mask
	for x.cells[i] != 0 {
		i = x.next(i)
	}
	x.cells[i] = c
}

// remove empties the cell at i and moves later cells of its run back.
func (x *index) remove(i uint32) {
	x.n--
	for j := i; ; {
		j = x.next(j)
		c := x.cells[j]
		if c == 0 {
			break
		}
		if home := cellTag(c) & x.mask; (j-home)&x.mask >= (j-i)&x.mask {
			x.cells[i] = c
			i = j
		}
	}
	x.cells[i] = 0
}

// locate returns the position of the cell of id, which must be there.
func (x *index) locate(tag, id uint32) uint32 {
	want := cell(tag, id)
	i := tag & x.mask
	for x.cells[i] != want {
		i = x.next(i)
	}
	return i
}

// reserve grows the table so that n entries fill at most three quarters of it.
func (x *index) reserve(n int) {
	size := len(x.cells)
	for n*4 > size*3 {
		size *= 2
	}
	if size != len(x.cells) {
		x.grow(size)
	}
}

func (x *index) grow(size int) {
	old := x.cells
	x.cells = make([]uint64, size)
	x.huge(unsafe.Pointer(&x.cells[0]), uintptr(size)*8)
	x.mask = uint32(size - 1)
	for _, c := range old {
		if c != 0 {
			x.put(c)
		}
	}
}
