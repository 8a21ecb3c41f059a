package scheduler

import "math/bits"

// table maps request ids to slots: open addressing with linear probing, never
// more than half full. A Go map costs twice as much a look-up, which is most of
// what a token costs.
type table struct {
	cell  []cell // a power of two
	shift uint8
}

// cell holds slot+1, so that the zero cell is empty.
type cell struct {
	id   ID
	slot uint32
}

func newTable(entries int) table {
	n := max(bits.Len(uint(2*entries-1)), 4)
	return table{cell: make([]cell, 1<<n), shift: uint8(32 - n)}
}

// home is the first cell tried for an id: Fibonacci hashing, so that counted
// ids spread.
func (t *table) home(id ID) uint32 { return uint32(id) * 0x9E3779B1 >> (t.shift & 31) }

// find returns the slot of an id, or -1.
func (t *table) find(id ID) int32 {
	mask := uint32(len(t.cell) - 1)
	for i := t.home(id); ; i++ {
		c := t.cell[i&mask]
		if c.slot == 0 {
			return -1
		}
		if c.id == id {
			return int32(c.slot - 1)
		}
	}
}

// put adds an id that is not there.
func (t *table) put(id ID, slot int32) {
	mask := uint32(len(t.cell) - 1)
	i := t.home(id) & mask
	for t.cell[i].slot != 0 {
		i = (i + 1) & mask
	}
	t.cell[i] = cell{id: id, slot: uint32(slot) + 1}
}

// del removes an id that is there, and moves later cells of its run back, so
// that no tombstone slows later look-ups (Knuth vol. 3, 6.4, algorithm R).
func (t *table) del(id ID) {
	mask := uint32(len(t.cell) - 1)
	i := t.home(id) & mask
	for t.cell[i].id != id || t.cell[i].slot == 0 {
		i = (i + 1) & mask
	}
	for j := i; ; {
		j = (j + 1) & mask
		c := t.cell[j]
		if c.slot == 0 {
			break
		}
		// A cell may move back to i only if its home is not between i and j.
		if (j-t.home(c.id))&mask >= (j-i)&mask {
			t.cell[i] = c
			i = j
		}
	}
	t.cell[i] = cell{}
}
