package blocks

import "meridian/wire"

// remote is what is known of a copy outside the arena. Only the daemon's own
// offloads make such records, at most RemoteBlocks of them.
type remote struct {
	key    wire.Key
	sum    wire.Sum
	h      [32]byte
	size   uint32
	slot   uint32 // the local copy, or none
	prev   uint32 // by age, oldest first
	next   uint32 // likewise, or in the list of free records
	fabric uint16
	ns     uint16
	tier   wire.Tier
	htier  wire.Tier
	att    wire.Attest
}

type remotes struct {
	all        []remote
	limit      int
	n          int
	head, tail uint32
	free       uint32
	labels     []string
}

func newRemotes(limit int) remotes {
	return remotes{limit: limit, head: none, tail: none, free: none}
}

func (r *remotes) loc(m *remote) Loc { return Loc{Fabric: r.labels[m.fabric], H: m.h} }

// label returns the number of a fabric's name; false when there are too many.
func (r *remotes) label(name string) (uint16, bool) {
	for i, l := range r.labels {
		if l == name {
			return uint16(i), true
		}
	}
	if len(r.labels) >= maxFabrics {
		return 0, false
	}
	r.labels = append(r.labels, name)
	return uint16(len(r.labels) - 1), true
}

func (r *remotes) unlink(i uint32) {
	m := &r.all[i]
	if m.prev == none {
		r.head = m.next
	} else {
		r.all[m.prev].next = m.next
	}
	if m.next == none {
		r.tail = m.prev
	} else {
		r.all[m.next].prev = m.prev
	}
}

func (r *remotes) link(i uint32) {
	m := &r.all[i]
	m.prev, m.next = r.tail, none
	if r.tail == none {
		r.head = i
	} else {
		r.all[r.tail].next = i
	}
	r.tail = i
}

// remember records where a published slot's copy lies. It reports false when
// that cannot be recorded.
func (c *Core) remember(id uint32, s *slot, l Loc) bool {
	r := &c.remotes
	label, ok := r.label(l.Fabric)
	if !ok || r.limit == 0 {
		return false
	}
	i := s.remote
	switch {
	case i != none:
		r.unlink(i)
	case r.n >= r.limit:
		c.forget(r.head)
		fallthrough
	default:
		if i = r.free; i != none {
			r.free = r.all[i].next
		} else {
			i = uint32(len(r.all))
			r.all = append(r.all, remote{})
		}
		r.n++
		c.ns[s.ns].uses++
	}
	r.all[i] = remote{
		key: s.key, sum: s.sum, h: l.H, size: s.size, slot: id, fabric: label, ns: s.ns,
		tier: s.tier, htier: s.htier, att: s.att,
	}
	r.link(i)
	s.remote = i
	return true
}

// forget drops a record, and the index's entry if it stood for the key.
func (c *Core) forget(i uint32) {
	r := &c.remotes
	m := &r.all[i]
	if m.slot != none {
		s := c.slot(m.slot)
		s.remote = none
		s.flags &^= flagMoved
	} else {
		tag := c.index.tag(m.ns, &m.key)
		c.index.remove(c.index.locate(tag, i|remoteBit))
	}
	c.ns[m.ns].uses--
	r.unlink(i)
	m.next, r.free = r.free, i
	r.n--
}

// Forget drops what is known of copies outside: the fabric no longer has them.
func (c *Core) Forget(ns wire.Namespace, keys []wire.Key) {
	nsi, ok := c.nsOf[ns]
	if !ok {
		return
	}
	for i := range keys {
		id := c.find(nsi, &keys[i])
		switch {
		case id == none:
		case id >= remoteBit:
			c.forget(id &^ remoteBit)
		case c.slot(id).remote != none:
			c.forget(c.slot(id).remote)
		}
	}
}

// moved takes note of a copy that was made, or was not.
func (c *Core) moved(m *Moved) {
	s := c.known(m.Slot)
	if s == nil || s.state != published || m.Gen != 0 && m.Gen != s.gen {
		c.n.movedStale++
		return
	}
	if m.Err != nil || m.Loc == (Loc{}) || !c.remember(m.Slot, s, m.Loc) {
		c.n.copiesFailed++
		return
	}
	c.n.copies++
	s.flags |= flagMoved
	if s.refs == 0 {
		c.dropOffloaded(m.Slot)
	}
}

// dropOffloaded frees an idle slot whose copy is acknowledged.
func (c *Core) dropOffloaded(id uint32) {
	s := c.slot(id)
	c.n.offloaded++
	c.n.offloadedBytes += uint64(s.size)
	c.unpublish(id, s)
	c.release(id, s)
}
