//go:build invariants

package blocks

import (
	"fmt"

	"meridian/internal/invariants"
)

// freed watches slots that are not in use. The core notes what is released and
// what is taken again; the store, under its lock and before anybody hears of the
// call's outcome, overwrites the former and looks whether the latter still are as
// they were overwritten. Who reads a block without a lease then gets a pattern
// that matches no checksum, and who writes to a slot that is not his is found.
type freed struct {
	watched bool // a store carries out what is noted
	notes   []note
	by      map[uint32]invariants.Stack // who released a slot last
}

type note struct {
	seg   uint32
	off   uint64
	n     uint32
	taken bool
}

func (f *freed) watch() { f.watched = true }

// check panics where a slot is released that nobody has.
func (f *freed) check(id uint32, s *slot) {
	if s.state == free {
		panic(fmt.Sprintf("blocks: slot %d is released twice; released first by\n%s", id, f.by[id]))
	}
	if f.by == nil {
		f.by = map[uint32]invariants.Stack{}
	}
	f.by[id] = invariants.Here(1)
}

func (f *freed) gone(c *Core, id uint32)  { f.note(c, id, false) }
func (f *freed) taken(c *Core, id uint32) { f.note(c, id, true) }

func (f *freed) note(c *Core, id uint32, taken bool) {
	if e := c.extent(id); f.watched && e.seg != 0 {
		f.notes = append(f.notes, note{e.seg, e.off + uint64(id&c.slotMask)*uint64(e.stride), e.stride, taken})
	}
}

func (f *freed) apply(a *arena) {
	for _, n := range f.notes {
		m := a.get(n.seg)
		if m == nil {
			continue // returned: its pages are never used again, and who maps them keeps what he had
		}
		if b := m.bytes.B[n.off:][:n.n]; n.taken {
			invariants.Intact(b, fmt.Sprintf("slot at %d of segment %d", n.off, n.seg))
		} else {
			invariants.Overwrite(b)
		}
	}
	f.notes = f.notes[:0]
}

// left reports the leases of owners that were not dropped.
func (*freed) left(c *Core) {
	for _, l := range c.leases.of {
		r := &c.leases.all[l]
		if w := &c.owners.all[r.owner]; !w.orphan {
			invariants.Left(fmt.Sprintf("blocks: at Close, a lease on %d blocks", len(r.slots)), r.made)
		}
	}
}
