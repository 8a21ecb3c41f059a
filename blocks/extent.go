package blocks

import (
	"unsafe"

	"meridian/wire"
)

// extent is a run of a segment that is cut into slots of one size.
type extent struct {
	slots    []slot
	peers    []uint32 // leases of peers, by slot; nil: there was none in this cut
	seg      uint32   // segment number; 0: the extent has no memory
	segPos   uint32   // index in Core.segs
	off      uint64   // in the segment
	stride   uint32
	room     uint32 // body bytes of a slot
	genBase  uint32 // byte offset of slot 0's word in the generation table
	pool     int32  // -1: not cut
	floor    uint32 // even; generations of the next cut start above it
	freeHead uint32 // slots that were used and are free
	fresh    uint32 // slots from here on were never used in this cut
	nfree    uint32 // both kinds
	busy     uint32 // reserved, referenced or doomed slots
	idle     [3]uint32
	kept     [3]uint32 // of them in a kept list
	last     uint64    // newest stamp of a slot
	prev     uint32    // in its pool's list of extents with free slots, or its tenant's list of uncut ones
	next     uint32
}

// segment is a memfd's worth of extents of one tenant.
type segment struct {
	id     uint32 // 0: vacant
	tenant uint16
	n      int    // extents
	slab   []slot // records for n extents of the class that came first
}

// records returns the slot records for an extent that is cut into per slots. A
// segment usually serves one class: one allocation for all of it is large
// enough for huge pages, which decide what a look-up among 10^6 slots costs.
func (c *Core) records(i, per uint32) []slot {
	g := &c.segs[c.ext[i].segPos]
	if g.slab == nil {
		g.slab = make([]slot, g.n*int(per))
		c.advise(unsafe.Pointer(&g.slab[0]), uintptr(len(g.slab))*unsafe.Sizeof(slot{}))
	}
	each := uint32(len(g.slab) / g.n)
	if per > each {
		return make([]slot, per)
	}
	at := each * (i % uint32(c.geo.segExtents))
	r := g.slab[at : at+per : at+per]
	clear(r)
	return r
}

// extentList is a doubly linked list of extents.
type extentList struct{ head, tail uint32 }

func (c *Core) pushExtent(l *extentList, i uint32, back bool) {
	e := &c.ext[i]
	switch {
	case l.head == none:
		e.prev, e.next, l.head, l.tail = none, none, i, i
	case back:
		e.prev, e.next = l.tail, none
		c.ext[l.tail].next, l.tail = i, i
	default:
		e.prev, e.next = none, l.head
		c.ext[l.head].prev, l.head = i, i
	}
}

func (c *Core) unlinkExtent(l *extentList, i uint32) {
	e := &c.ext[i]
	if e.prev == none {
		l.head = e.next
	} else {
		c.ext[e.prev].next = e.next
	}
	if e.next == none {
		l.tail = e.prev
	} else {
		c.ext[e.next].prev = e.prev
	}
}

// pool is one tenant's slots of one size class, with the idle ones by tier.
type pool struct {
	tenant uint16
	room   uint32
	stride uint32
	per    uint32 // slots an extent
	part   extentList
	nfree  int // slots in part
	empty  int // extents in part with no slot in use
	need   int // of the Reserve call that is being looked at
	idle   [3]idleList
	misfit uint32 // slots taken from larger classes since the last extent: per of them earn one
	skip   uint32 // evictions until extents of other classes are looked at again
}

// poolOf returns the tenant's pool for n-byte bodies.
func (c *Core) poolOf(tenant uint16, n uint32) int32 {
	class, room := c.geo.class(n)
	t := &c.tenants[tenant]
	if p := t.pools[class]; p != 0 {
		return p - 1
	}
	st := stride(room)
	c.pools = append(c.pools, pool{
		tenant: tenant, room: room, stride: uint32(st), per: uint32(c.geo.pitch / st),
		part: extentList{none, none}, idle: [3]idleList{{emptyList(), emptyList()}, {emptyList(), emptyList()}, {emptyList(), emptyList()}},
	})
	pi := int32(len(c.pools)) - 1
	t.pools[class] = pi + 1
	t.used = append(t.used, pi)
	return pi
}

// cut gives an uncut extent of the tenant to the pool.
func (c *Core) cut(i uint32, pi int32) {
	e, p := &c.ext[i], &c.pools[pi]
	c.unlinkExtent(&c.tenants[p.tenant].uncut, i)
	e.slots = c.records(i, p.per)
	e.pool, e.stride, e.room = pi, p.stride, p.room
	e.freeHead, e.fresh, e.nfree, e.busy, e.idle, e.kept = none, 0, p.per, 0, [3]uint32{}, [3]uint32{}
	c.pushExtent(&p.part, i, true)
	p.empty++
	p.misfit, p.skip = 0, 0
	p.nfree += int(p.per)
	c.slots += int(p.per)
	c.count[free] += int(p.per)
	c.bytes[free] += uint64(p.per) * uint64(p.stride)
	c.index.reserve(c.slots + c.remotes.n)
}

// uncut takes an extent without used slots back from its pool. Every generation
// word that a reader may still watch becomes odd and stays behind what follows.
func (c *Core) uncut(i uint32) {
	e := &c.ext[i]
	p := &c.pools[e.pool]
	c.unlinkExtent(&p.part, i)
	p.empty--
	top := e.floor
	for j := range e.slots[:e.fresh] {
		if g := e.slots[j].gen; int32(g-top) > 0 {
			top = g
		}
	}
	e.floor = (top + 1) &^ 1
	for j := range e.fresh {
		c.gens = append(c.gens, GenWrite{Seg: e.seg, Off: e.genBase + j*8, Word: uint64(e.floor + 1)})
	}
	e.floor += 2
	p.nfree -= len(e.slots)
	c.slots -= len(e.slots)
	c.count[free] -= len(e.slots)
	c.bytes[free] -= uint64(len(e.slots)) * uint64(e.stride)
	e.slots, e.peers, e.pool = nil, nil, -1
	c.pushExtent(&c.tenants[p.tenant].uncut, i, false)
}

// take removes a free slot from a pool that has one.
func (c *Core) take(pi int32) uint32 {
	p := &c.pools[pi]
	i := p.part.head
	e := &c.ext[i]
	if e.nfree == p.per {
		p.empty--
	}
	j := e.freeHead
	if j != none {
		e.freeHead = e.slots[j].next
		c.freed.taken(c, i<<c.geo.slotBits|j)
	} else {
		j = e.fresh
		e.fresh++
		e.slots[j].gen, e.slots[j].ns = e.floor, noNS
	}
	p.nfree--
	if e.nfree--; e.nfree == 0 {
		c.unlinkExtent(&p.part, i)
	}
	e.busy++
	id := i<<c.geo.slotBits | j
	c.claim(id, &e.slots[j])
	return id
}

// claim makes an unused slot a reservation.
func (c *Core) claim(id uint32, s *slot) {
	s.refs, s.remote, s.group, s.own, s.flags = 0, none, none, none, 0
	c.setNS(s, noNS)
	c.toState(id, s, reserved)
}

// release puts a slot that nothing refers to back. An extent that becomes empty
// returns to its tenant unless it is the pool's only empty one.
func (c *Core) release(id uint32, s *slot) {
	c.freed.check(id, s)
	c.freed.gone(c, id)
	i := id >> c.geo.slotBits
	e := &c.ext[i]
	p := &c.pools[e.pool]
	c.toState(id, s, free)
	c.setNS(s, noNS)
	s.next = e.freeHead
	e.freeHead = id & c.slotMask
	e.busy--
	p.nfree++
	if e.nfree++; e.nfree == 1 {
		c.pushExtent(&p.part, i, false)
	}
	if e.nfree == p.per {
		c.unlinkExtent(&p.part, i)
		c.pushExtent(&p.part, i, true)
		if p.empty++; p.empty > 1 {
			c.uncut(i)
		}
	}
}

// AddSegment tells the core that the tenant of a GrowError has a new segment of
// that many extents. It returns the segment's number, never used before.
func (c *Core) AddSegment(tenant [32]byte, extents int) uint32 {
	t := c.tenantOf[tenant]
	pos := 0
	for c.segs[pos].id != 0 {
		pos++
	}
	c.lastSeg++
	c.places--
	c.segs[pos] = segment{id: c.lastSeg, tenant: t, n: extents}
	c.extents += extents
	for k := range extents {
		i := uint32(pos*c.geo.segExtents + k)
		e := &c.ext[i]
		*e = extent{
			seg: c.lastSeg, segPos: uint32(pos), off: uint64(k) * c.geo.pitch,
			genBase: uint32(k) << c.geo.slotBits * 8, pool: -1, floor: e.floor,
		}
		c.pushExtent(&c.tenants[t].uncut, i, true)
	}
	return c.lastSeg
}

// dropSegment forgets a segment whose extents are all uncut.
func (c *Core) dropSegment(pos int) {
	g := &c.segs[pos]
	for k := range g.n {
		i := uint32(pos*c.geo.segExtents + k)
		c.unlinkExtent(&c.tenants[g.tenant].uncut, i)
		c.ext[i] = extent{pool: -1, floor: c.ext[i].floor}
	}
	c.extents -= g.n
	c.places++
	c.returned = append(c.returned, g.id)
	*g = segment{}
}

// Segments returns the numbers of the tenant's segments.
func (c *Core) Segments(tenant [32]byte) []uint32 {
	t, ok := c.tenantOf[tenant]
	if !ok {
		return nil
	}
	var out []uint32
	for i := range c.segs {
		if c.segs[i].id != 0 && c.segs[i].tenant == t {
			out = append(out, c.segs[i].id)
		}
	}
	return out
}

// rank is a block's or an extent's place in the order of eviction: lower goes first.
type rank struct {
	tier  wire.Tier
	kept  bool
	stamp uint64
}

func (r rank) before(o rank) bool {
	switch {
	case r.tier != o.tier:
		return r.tier < o.tier
	case r.kept != o.kept:
		return o.kept
	}
	return r.stamp < o.stamp
}
