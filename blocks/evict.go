package blocks

import (
	"errors"
	"slices"

	"meridian/wire"
)

// errNoRoom ends takeOne; Reserve turns it into a FullError.
var errNoRoom = errors.New("no room")

// maxMisfit is how much larger than its own class a slot may be that is taken
// for want of one, as a factor.
const maxMisfit = 4

// reach is what a reservation may take to get its room.
type reach struct {
	highest wire.Tier // of idle blocks
	grow    bool      // a new segment can be made
	foreign bool      // another tenant's blocks
}

// reaches reports whether a segment may be looked at for room for a tenant. One of
// another tenant helps only where a new one can be made in its place.
func (c *Core) reaches(may reach, pos int, tenant uint16) bool {
	g := &c.segs[pos]
	switch {
	case g.id == 0:
		return false
	case g.tenant == tenant:
		return true
	}
	return may.grow && (may.foreign || c.blank(pos))
}

// blank reports whether no slot of a segment is in use.
func (c *Core) blank(pos int) bool {
	for k := range c.segs[pos].n {
		e := &c.ext[pos*c.geo.segExtents+k]
		if e.pool >= 0 && e.nfree < uint32(len(e.slots)) {
			return false
		}
	}
	return true
}

// takeOne takes a slot for a pool, in this order: a free one; an uncut extent;
// an extent that another class keeps empty; a new segment; then whatever goes
// first in the order of eviction: an idle block of the class, or an extent of
// another class (or a segment of another tenant) all of whose blocks would go
// before that; failing those, a slot of a larger class.
func (c *Core) takeOne(pi int32, may reach) (uint32, error) {
	for {
		p := &c.pools[pi]
		if p.part.head != none {
			return c.take(pi), nil
		}
		t := &c.tenants[p.tenant]
		if t.uncut.head == none {
			c.reclaimEmpty(pi)
		}
		if t.uncut.head != none {
			c.cut(t.uncut.head, pi)
			continue
		}
		if may.grow && c.room() > 0 {
			return none, &GrowError{Tenant: t.id}
		}
		id, err := c.makeRoom(pi, may)
		if id != none || err != nil {
			return id, err
		}
	}
}

// SegmentExtents is how many extents the next segment may have.
func (c *Core) SegmentExtents() int { return min(c.geo.segExtents, c.room()) }

// room is how many more extents may have memory: as the capacity allows, and as
// there are places for segments. A segment that was made for the rest of the
// capacity takes a whole place, and the capacity can grow again when a ring goes.
func (c *Core) room() int {
	return min(max(c.maxExtents()-c.extents, 0), c.places*c.geo.segExtents)
}

// reclaimEmpty uncuts an extent that another class of the tenant keeps empty.
func (c *Core) reclaimEmpty(pi int32) {
	for _, q := range c.tenants[c.pools[pi].tenant].used {
		if q != pi && c.pools[q].empty > 0 {
			c.uncut(c.pools[q].part.tail)
			return
		}
	}
}

// makeRoom evicts something. It returns the slot that came free, or none where
// that was more than one, and the caller looks again.
func (c *Core) makeRoom(pi int32, may reach) (uint32, error) {
	p, highest := &c.pools[pi], may.highest
	own, ownRank := c.victim(pi, highest)
	up := c.larger(pi, highest, own == none)
	if up >= 0 && p.misfit < p.per {
		return c.takeUp(pi, up, highest), nil
	}
	if own == none || p.skip == 0 {
		if c.reclaim(pi, own != none, ownRank, may) {
			return none, nil
		}
		p.skip = p.per/8 + 1
	}
	switch {
	case own != none:
		p.skip--
		c.uproot(own)
		c.freed.gone(c, own)
		c.claim(own, c.slot(own))
		return own, nil
	case up >= 0:
		return c.takeUp(pi, up, highest), nil
	}
	return none, errNoRoom
}

// victim returns the pool's block that goes first.
func (c *Core) victim(pi int32, highest wire.Tier) (uint32, rank) {
	for t := range highest + 1 {
		if id, kept := c.first(&c.pools[pi].idle[t]); id != none {
			return id, rank{t, kept, c.slot(id).stamp}
		}
	}
	return none, rank{}
}

// larger returns the tenant's pool of the next larger class, up to maxMisfit,
// that has a free slot; or, with evict, the one whose victim goes first. -1: none.
func (c *Core) larger(pi int32, highest wire.Tier, evict bool) int32 {
	best, bestRank := int32(-1), rank{}
	p := &c.pools[pi]
	for _, q := range c.tenants[p.tenant].used {
		if !c.fitsUp(p, &c.pools[q]) {
			continue
		}
		if c.pools[q].part.head != none {
			return q
		}
		if id, r := c.victim(q, highest); evict && id != none && (best < 0 || r.before(bestRank)) {
			best, bestRank = q, r
		}
	}
	return best
}

func (c *Core) takeUp(pi, up int32, highest wire.Tier) uint32 {
	c.pools[pi].misfit++
	if c.pools[up].part.head == none {
		id, _ := c.victim(up, highest)
		c.evict(id)
	}
	return c.take(up)
}

// reclaim empties the extent of another class of the tenant, or the segment of
// another tenant, that goes first in the order of eviction, if it goes before
// the limit or there is no limit. It reports whether it did.
func (c *Core) reclaim(pi int32, limited bool, limit rank, may reach) bool {
	if len(c.pools) == 1 {
		return false
	}
	tenant := c.pools[pi].tenant
	best, bestRank, whole := -1, rank{may.highest, true, ^uint64(0)}, false
	if limited {
		bestRank = limit
	}
	for pos := range c.segs {
		if !c.reaches(may, pos, tenant) {
			continue
		}
		g := &c.segs[pos]
		seg, ok := rank{}, true
		for k := range g.n {
			i := pos*c.geo.segExtents + k
			r, idle := c.coldness(i)
			if g.tenant != tenant {
				ok = ok && idle
				if seg.before(r) {
					seg = r
				}
			} else if idle && c.ext[i].pool >= 0 && c.ext[i].pool != pi && r.before(bestRank) {
				best, bestRank, whole = i, r, false
			}
		}
		if g.tenant != tenant && ok && seg.before(bestRank) {
			best, bestRank, whole = pos, seg, true
		}
	}
	switch {
	case best < 0:
		return false
	case whole:
		for k := range c.segs[best].n {
			c.empty(uint32(best*c.geo.segExtents + k))
		}
		c.dropSegment(best)
	default:
		c.empty(uint32(best))
	}
	return true
}

// coldness is the rank of the last block of an extent to go, and whether all of
// its blocks are idle.
func (c *Core) coldness(i int) (rank, bool) {
	e := &c.ext[i]
	if e.pool < 0 {
		return rank{}, true
	}
	r := rank{stamp: e.last}
	if e.nfree == uint32(len(e.slots)) {
		r.stamp = 0
	}
	for t := range e.idle {
		if e.idle[t] > 0 {
			r.tier, r.kept = wire.Tier(t), e.kept[t] > 0
		}
	}
	return r, e.busy == 0
}

// empty evicts all blocks of an extent and uncuts it.
func (c *Core) empty(i uint32) {
	e := &c.ext[i]
	if e.pool < 0 {
		return
	}
	for j := uint32(0); j < e.fresh && e.pool >= 0; j++ {
		if e.slots[j].state == published {
			c.evict(i<<c.geo.slotBits | j)
		}
	}
	if e.pool >= 0 { // the last eviction uncuts it where the pool keeps another empty one
		c.uncut(i)
	}
}

// evict removes an idle published block to make room.
func (c *Core) evict(id uint32) {
	c.uproot(id)
	c.release(id, c.slot(id))
}

// uproot unpublishes a block that is evicted, and counts it.
func (c *Core) uproot(id uint32) {
	s := c.slot(id)
	live := s.tier == wire.OutputCritical && s.flags&flagLive != 0
	c.n.evictions[s.tier]++
	if live {
		c.n.liveEvictions++
	}
	if n := len(c.evicted); n < MaxEvents {
		c.evicted = slices.Grow(c.evicted, 1)[:n+1]
		e := &c.evicted[n]
		e.Ref.Agent = c.cfg.Agent
		e.Ref.Inc = c.cfg.Incarnation
		e.Ref.Slot, e.Ref.Gen = id, s.gen
		e.Tier, e.Live = s.tier, live
	}
	c.endFollow(id, s, true)
	c.unpublish(id, s)
}

// freeUp evicts in the order of all classes until n bytes are free.
func (c *Core) freeUp(n uint64) {
	for c.freeBytes() < n {
		best, bestRank := none, rank{}
		for pi := range c.pools {
			if id, r := c.victim(int32(pi), wire.OutputCritical); id != none && (best == none || r.before(bestRank)) {
				best, bestRank = id, r
			}
		}
		if best == none {
			return
		}
		c.evict(best)
	}
}
