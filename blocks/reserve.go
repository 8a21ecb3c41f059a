package blocks

import (
	"errors"
	"slices"
	"time"

	"meridian/wire"
)

// group is the slots of one Reserve call: one owner, one deadline.
type group struct {
	slots slotList // reserved, writing, late and not yet acquired transient slots
	at    time.Duration
	owner uint32
	prev  uint32 // in the owner's list
	next  uint32 // likewise, or in the list of free records
	heap  int32
	acct  uint32 // the owner's account, charged for the slots until they leave
	think bool
}

type groups struct {
	all  []group
	free uint32
}

// Reserve takes a slot for each size (body bytes, 0 allowed), all or none, for
// ttl, and appends their views to dst. The tier decides what may be evicted:
// thinking blocks beyond ThinkFraction of the capacity never take the place of
// OutputCritical ones. A peer's reservation evicts nothing of a higher tier than
// its own and no other tenant's block, and lasts Shares.ReserveTime at most.
//
// Errors: INVALID, NS_UNKNOWN, TOO_LARGE, FullError, a *quota.Error above the
// share of the owner's holder, of all peers or of the tenant or within what is
// guaranteed to others, and, with grow, GrowError.
func (c *Core) Reserve(now time.Duration, o Owner, ns wire.Namespace, t wire.Tier, size []uint32, ttl time.Duration, grow bool, dst []View) ([]View, error) {
	c.expire(now)
	oi, w := c.owner(o)
	nsi, ok := c.nsOf[ns]
	switch {
	case w == nil:
		return dst, errOwner
	case ttl <= 0:
		return dst, errTTL
	case t > wire.OutputCritical:
		return dst, &wire.TierError{Got: uint8(t)}
	case !ok:
		return dst, errNS
	case len(size) == 0:
		return dst, nil
	}
	var need, each uint64
	for i, n := range size {
		if n > c.geo.maxBody {
			return dst, &wire.TooLargeError{Got: uint64(n), Limit: uint64(c.geo.maxBody)}
		}
		if i == 0 || n != size[i-1] {
			_, room := c.geo.class(n)
			each = stride(room)
		}
		need += each
	}
	may := reach{highest: wire.OutputCritical, grow: grow, foreign: true}
	if t != wire.OutputCritical && c.tierBytes[wire.ThinkActive]+c.thinkHeld+need > c.thinkMax {
		may.highest = wire.ThinkActive
	}
	if c.isPeer(w.acct) {
		may.highest, may.foreign = min(may.highest, t), false
		ttl = atMost(ttl, c.cfg.Shares.ReserveTime)
	}
	ti := c.ns[nsi].tenant
	if err := c.mayReserve(w.acct, ti, need); err != nil {
		return dst, err
	}
	ids, err := c.takeAll(ti, size, need, may)
	if err != nil {
		return dst, err
	}
	g := c.newGroup(oi, now+ttl, t == wire.ThinkActive)
	for i, id := range ids {
		s := c.slot(id)
		s.own, s.group, s.size = oi, g, size[i]
		c.setNS(s, nsi)
		s.tier, s.key = t, wire.Key{}
		c.chargeSlot(id, s, 1)
		c.append(&c.groups.all[g].slots, id)
		c.setGen(id, s, odd(s.gen))
		dst = slices.Grow(dst, 1)[:len(dst)+1]
		c.fill(&dst[len(dst)-1], id)
	}
	c.n.reserved += uint64(len(ids))
	return dst, nil
}

// takeAll takes a free slot a size, or none at all.
func (c *Core) takeAll(ti uint16, size []uint32, need uint64, may reach) ([]uint32, error) {
	ids := c.scratch[:0]
	var err error
	if !c.fits(ti, size, may) {
		err = errNoRoom // known before anything is evicted for it
		size = nil
	}
	for i, n := range size {
		var id uint32
		if id, err = c.takeOne(c.poolLike(ti, size, i, n), may); err != nil {
			break
		}
		ids = append(ids, id)
	}
	c.scratch = ids
	if err == nil {
		return ids, nil
	}
	for i := len(ids) - 1; i >= 0; i-- {
		c.release(ids[i], c.slot(ids[i]))
	}
	if errors.Is(err, errNoRoom) {
		c.n.full++
		err = &FullError{Need: need, Free: c.freeBytes() + c.evictable(may.highest)}
	}
	return nil, err
}

// fits reports whether a call can be met. With one size class the answer is
// exact; with several, or where extents would change their class, it may be yes
// for a call that is then refused after all.
func (c *Core) fits(ti uint16, size []uint32, may reach) bool {
	for i, n := range size {
		c.pools[c.poolLike(ti, size, i, n)].need++
	}
	ok := true
	for i, n := range size {
		if i > 0 && n == size[i-1] {
			continue
		}
		pi := c.poolOf(ti, n)
		p := &c.pools[pi]
		if p.need == 0 {
			continue
		}
		have := p.nfree
		if have < p.need {
			c.warmVictims(p, may.highest, p.need-have)
		}
		for t := range may.highest + 1 {
			have += p.idle[t].n()
		}
		ok = ok && (have >= p.need || have+c.elsewhere(pi, may) >= p.need)
		p.need = 0
	}
	return ok
}

// poolLike is poolOf for the i-th of sizes, which is mostly the one before.
func (c *Core) poolLike(ti uint16, size []uint32, i int, n uint32) int32 {
	if i > 0 && n == size[i-1] {
		return c.lastPool
	}
	c.lastPool = c.poolOf(ti, n)
	return c.lastPool
}

// maxWarm bounds how many blocks are looked at ahead of their eviction.
const maxWarm = 256

// warmVictims loads the slots and the index cells of the next n blocks to be
// evicted, so that their misses overlap.
func (c *Core) warmVictims(p *pool, highest wire.Tier, n int) {
	n = min(n, maxWarm)
	for t := range highest + 1 {
		for _, l := range [...]*slotList{&p.idle[t].fresh, &p.idle[t].kept} {
			for id := l.head; id != none && n > 0; n-- {
				s := c.slot(id)
				c.sink += c.index.cells[c.index.tag(s.ns, &s.key)&c.index.mask]
				id = s.next
			}
		}
	}
}

// elsewhere is how many slots a pool could get from outside itself.
func (c *Core) elsewhere(pi int32, may reach) (slots int) {
	p := &c.pools[pi]
	extents := 0
	if may.grow {
		extents = c.room()
	}
	for pos := range c.segs {
		if !c.reaches(may, pos, p.tenant) {
			continue
		}
		g := &c.segs[pos]
		for k := range g.n {
			i := pos*c.geo.segExtents + k
			if r, idle := c.coldness(i); idle && r.tier <= may.highest && c.ext[i].pool != pi {
				extents++
			}
		}
	}
	for _, q := range c.tenants[p.tenant].used {
		if c.fitsUp(p, &c.pools[q]) {
			slots += c.pools[q].nfree
			for t := range may.highest + 1 {
				slots += c.pools[q].idle[t].n()
			}
		}
	}
	return slots + extents*int(p.per)
}

// fitsUp reports whether blocks of p may lie in slots of q, a larger class.
func (c *Core) fitsUp(p, q *pool) bool { return q.room > p.room && q.room/maxMisfit <= p.room }

// evictable is the bytes of idle blocks up to a tier.
func (c *Core) evictable(highest wire.Tier) (n uint64) {
	for t := range highest + 1 {
		n += c.idleBytes[t]
	}
	return n
}

func (c *Core) newGroup(oi uint32, at time.Duration, think bool) uint32 {
	gs := &c.groups
	g := gs.free
	if g == none {
		g = uint32(len(gs.all))
		gs.all = append(gs.all, group{})
	} else {
		gs.free = gs.all[g].next
	}
	w := &c.owners.all[oi]
	gs.all[g] = group{slots: emptyList(), at: at, owner: oi, prev: none, next: w.groups, acct: w.acct, think: think}
	if w.groups != none {
		gs.all[w.groups].prev = g
	}
	w.groups = g
	c.timers.push(c, timer{at: at, ref: g | groupBit})
	return g
}

// leaveReservation takes a slot out of its reservation; the last one ends it.
func (c *Core) leaveReservation(id uint32, s *slot) {
	if s.group == none {
		return
	}
	gi := s.group
	g := &c.groups.all[gi]
	if s.state != transient {
		c.chargeSlot(id, s, -1)
	}
	s.group = none
	c.unlink(&g.slots, id)
	if g.slots.n > 0 {
		return
	}
	if g.heap >= 0 {
		c.timers.remove(c, int(g.heap))
	}
	if g.prev == none {
		c.owners.all[g.owner].groups = g.next
	} else {
		c.groups.all[g.prev].next = g.next
	}
	if g.next != none {
		c.groups.all[g.next].prev = g.prev
	}
	g.next, c.groups.free = c.groups.free, gi
}

// abandon ends a slot that was reserved and not published.
func (c *Core) abandon(id uint32, s *slot) {
	c.leaveReservation(id, s)
	if s.state == transient {
		if s.refs > 0 { // acquired: its release frees it
			return
		}
		c.endTransient(id, s)
	}
	c.retire(id, s)
}

// expireGroup ends a reservation whose deadline passed. A slot whose room was
// handed out stays out of use until its owner lets go: it may still be written.
func (c *Core) expireGroup(gi uint32) {
	c.timers.remove(c, int(c.groups.all[gi].heap))
	for id := c.groups.all[gi].slots.head; id != none; {
		s, this := c.slot(id), id
		id = s.next
		if s.state != transient {
			c.n.reservationsExpired++
		}
		switch {
		case s.state == writing:
			s.flags |= flagExpired
			c.leaveReservation(this, s)
		case s.state == reserved && s.flags&flagRoomed != 0:
			c.toState(this, s, late)
		default:
			c.abandon(this, s)
		}
	}
}

// dropGroup ends a reservation whose owner is gone.
func (c *Core) dropGroup(gi uint32) {
	for id := c.groups.all[gi].slots.head; id != none; {
		s, this := c.slot(id), id
		id = s.next
		c.abort(this, s)
	}
}

func (c *Core) abort(id uint32, s *slot) {
	c.n.reservationsAborted++
	if s.state == writing {
		s.flags |= flagCancel
		c.leaveReservation(id, s)
		return
	}
	c.abandon(id, s)
}

// Abort gives reservations back. Slots that are not the owner's reservations,
// or no longer, are left alone, so that it may be called in every state.
func (c *Core) Abort(o Owner, slots []uint32) {
	oi, w := c.owner(o)
	if w == nil {
		return
	}
	for _, id := range slots {
		if s := c.known(id); s != nil && s.own == oi && s.group != none && s.state != free {
			c.abort(id, s)
		}
	}
}

// AbortRefs is Abort of reservations by their references: of a slot that has become
// another reservation's since nothing is given back.
func (c *Core) AbortRefs(o Owner, refs []wire.Ref) {
	for _, r := range refs {
		if s := c.known(r.Slot); s != nil && s.gen == r.Gen {
			c.Abort(o, []uint32{r.Slot})
		}
	}
}

// Room marks that the owner writes into a reservation's slot by itself; it
// reports whether v still is one. From then on only the owner's Commit, Abort
// or Drop frees the slot, whatever its deadline.
func (c *Core) Room(v View) bool {
	s := c.known(v.Ref.Slot)
	if s == nil || s.state != reserved || s.gen != v.Ref.Gen {
		return false
	}
	s.flags |= flagRoomed
	return true
}
