package scheduler

// blocks counts published blocks of a request. Prompt and output blocks are
// none of its business.
func (c *Core) blocks(k int32, s *slot, x *Input) {
	if c.batch == 0 || !x.Think && s.phase != ThinkDecode {
		return
	}
	n := min(x.Blocks, MaxBlocks-s.pending-s.offloaded)
	c.counts.add(atUncounted, uint64(x.Blocks-n))
	s.pending += n
	switch {
	case !s.exited:
	case s.phase == Complete:
		// Nothing follows that a remainder could wait for.
		c.flush(s)
		c.settle(s, n)
	default:
		c.offload(k, s)
	}
}

// offload emits whole batches and arms the timer for the remainder. After a
// batch the remainder is of younger blocks, so its wait begins anew.
func (c *Core) offload(k int32, s *slot) {
	if c.batch > 0 && s.pending >= c.batch {
		c.disarm(s)
		c.emitWhole(s)
	}
	if s.pending > 0 && !s.armed {
		c.arm(k, s)
	}
}

// flush emits all that has gone cold, the remainder too.
func (c *Core) flush(s *slot) {
	c.disarm(s)
	if !s.exited || s.pending == 0 {
		return
	}
	c.emitWhole(s)
	if s.pending > 0 {
		c.release(s, s.pending)
	}
}

// emitWhole emits the whole batches of a request.
func (c *Core) emitWhole(s *slot) {
	for s.pending >= c.batch {
		c.release(s, c.batch)
	}
}

// release emits one Offload of n blocks.
func (c *Core) release(s *slot, n uint32) {
	s.pending -= n
	s.offloaded += n
	c.counts.add(atOffloaded, uint64(n))
	c.emit(Event{Kind: Offload, ID: s.id, Used: s.used, Blocks: n})
}

// settle counts, once a request is complete, whether its n offloaded blocks may
// be read again.
func (c *Core) settle(s *slot, n uint32) {
	at := atDropped
	if s.model.keeps {
		at = atKept
	}
	c.counts.add(at, uint64(n))
}

// none is the end of a list.
const none int32 = -1

// list is a doubly linked list through slots.
type list struct{ head, tail int32 }

// arm puts a slot at the end of the timers.
func (c *Core) arm(k int32, s *slot) {
	s.due, s.armed = c.now+c.cfg.OffloadAfter, true
	s.prev, s.next = c.timers.tail, none
	if c.timers.tail == none {
		c.timers.head = k
	} else {
		c.slots[c.timers.tail].next = k
	}
	c.timers.tail = k
}

// disarm takes a slot out of the timers, if it is there.
func (c *Core) disarm(s *slot) {
	if !s.armed {
		return
	}
	s.armed = false
	if s.prev == none {
		c.timers.head = s.next
	} else {
		c.slots[s.prev].next = s.next
	}
	if s.next == none {
		c.timers.tail = s.prev
	} else {
		c.slots[s.next].prev = s.prev
	}
}
