package blocks

import (
	"fmt"

	"meridian/blocks/quota"
	"meridian/wire"
)

// What is set aside is memory of the daemon that counts against the capacity and
// is not the arena's: the engines' staging rings.

// kept is the part of the capacity that segments may not take.
func (c *Core) kept() uint64 { return max(c.aside, c.cfg.Ahead) }

// maxExtents is how many extents may have memory now.
func (c *Core) maxExtents() int {
	return min(c.geo.extents, int((c.cfg.Capacity-min(c.kept(), c.cfg.Capacity))/c.geo.extent))
}

// SetAside takes n bytes of the capacity for other memory of an owner; 0: of the
// daemon. Where segments have them, the coldest segments of which all blocks are idle
// are emptied and returned. An error matches BUSY or FULL, and nothing has changed: the
// bytes are not there to be had, or (a *quota.Error) other engines are guaranteed them.
// Of the tenants' parts each gets smaller with the capacity that is left: an engine may
// be of several tenants, and its ring is of none.
func (c *Core) SetAside(o Owner, n uint64) error {
	busy := uint64(0) // bytes of segments that must stay
	for pos := range c.segs {
		if _, idle := c.segmentColdness(pos); !idle {
			busy += uint64(c.segs[pos].n) * c.geo.extent
		}
	}
	if n > c.cfg.Capacity-c.aside-busy {
		return fmt.Errorf("blocks that are reserved or leased leave no %d bytes of the arena: %w", n, wire.CodeBusy)
	}
	if _, w := c.owner(o); w != nil && w.acct != none && c.shares.all[w.acct].who.Kind == quota.Engine {
		h, a := &c.shares.all[w.acct], w.acct
		if err := c.leaves(h.who, h.used, n, c.cfg.Shares.EngineGuaranteed, func() uint64 { return c.unusedByEngines(a) }); err != nil {
			return err
		}
	}
	c.aside += n
	for uint64(c.extents)*c.geo.extent > c.cfg.Capacity-c.aside {
		c.dropColdest()
	}
	return nil
}

// dropColdest empties and returns the segment that goes first of those whose blocks
// are all idle. There must be one.
func (c *Core) dropColdest() {
	best, bestRank := -1, rank{}
	for pos := range c.segs {
		if r, idle := c.segmentColdness(pos); idle && (best < 0 || r.before(bestRank)) {
			best, bestRank = pos, r
		}
	}
	for k := range c.segs[best].n {
		c.empty(uint32(best*c.geo.segExtents + k))
	}
	c.dropSegment(best)
}

// GiveAside returns bytes that SetAside took.
func (c *Core) GiveAside(n uint64) { c.aside -= n }

// segmentColdness is the rank of the last block of a segment to go, and whether
// there is a segment and all of its blocks are idle.
func (c *Core) segmentColdness(pos int) (r rank, ok bool) {
	g := &c.segs[pos]
	if g.id == 0 {
		return r, false
	}
	for k := range g.n {
		x, idle := c.coldness(pos*c.geo.segExtents + k)
		if !idle {
			return r, false
		}
		if r.before(x) {
			r = x
		}
	}
	return r, true
}
