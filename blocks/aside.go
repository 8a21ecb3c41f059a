package blocks

// What is set aside is memory of the daemon that counts against the capacity and
// is not the arena's: the engines' staging rings.

// kept is the part of the capacity that segments may not take.
func (c *Core) kept() uint64 { return max(c.aside, c.cfg.Ahead) }

// maxExtents is how many extents may have memory now.
func (c *Core) maxExtents() int {
	return min(c.geo.extents, int((c.cfg.Capacity-min(c.kept(), c.cfg.Capacity))/c.geo.extent))
}

// SetAside takes n bytes of the capacity for other memory. Where segments have
// them, the coldest segments of which all blocks are idle are emptied and
// returned. It reports whether the bytes were there to be had; if not, nothing has
// changed.
func (c *Core) SetAside(n uint64) bool {
	busy := uint64(0) // bytes of segments that must stay
	for pos := range c.segs {
		if _, idle := c.segmentColdness(pos); !idle {
			busy += uint64(c.segs[pos].n) * c.geo.extent
		}
	}
	if n > c.cfg.Capacity-c.aside-busy {
		return false
	}
	c.aside += n
	for uint64(c.extents)*c.geo.extent > c.cfg.Capacity-c.aside {
		c.dropColdest()
	}
	return true
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
