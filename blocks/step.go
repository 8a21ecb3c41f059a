package blocks

import (
	"time"
)

// Step takes in what happened outside and says what is due. The lists of r are
// its own; they are overwritten by appending to their first element on.
func (c *Core) Step(now time.Duration, in Input, r *Ready) {
	c.expire(now)
	c.freeUp(min(in.Free, c.cfg.Capacity))
	r.Evicted = append(r.Evicted[:0], c.evicted...)
	r.Lapsed = append(r.Lapsed[:0], c.lapsed...)
	r.Aged = append(r.Aged[:0], c.aged...)
	c.evicted, c.lapsed, c.aged = c.evicted[:0], c.lapsed[:0], c.aged[:0]
	r.Next = 0
	if len(c.timers.h) > 0 {
		r.Next = c.timers.h[0].at
	}
}

// Loose keeps slots out of use while something outside may still touch them: it
// adds a reference to each that is not free, and quiet takes them away again.
// From then on a reservation among them counts as never written to, so that its
// deadline alone can free it. quiet may be called more than once.
func (c *Core) Loose(slots []uint32) (quiet func()) {
	var held []uint32
	for _, id := range slots {
		if s := c.known(id); s != nil && s.state != free {
			c.pin(id)
			held = append(held, id)
		}
	}
	c.otherPins += len(held)
	return func() {
		c.otherPins -= len(held)
		for _, id := range held {
			s := c.slot(id)
			c.unpin(id)
			if s.refs > 0 {
				continue
			}
			s.flags &^= flagRoomed
			if s.state == late {
				c.abandon(id, s)
			}
		}
		held = nil
	}
}

// Borrow pins the block that v names, for the driver's own reading, and fills v.
func (c *Core) Borrow(o Owner, v *View) error {
	oi, w := c.owner(o)
	if w == nil {
		return errOwner
	}
	id := c.resolve(oi, v)
	if id == none {
		return v.Err
	}
	c.borrow(id)
	c.fill(v, id)
	return nil
}

func (c *Core) borrow(id uint32) {
	c.pin(id)
	c.otherPins++
}

// GiveBack ends Borrow. bad says that the bytes did not match the checksum: the
// block is found by nobody any more, and readers that still map it see an odd
// generation.
func (c *Core) GiveBack(id uint32, bad bool) {
	if bad {
		c.condemn(id)
	}
	c.otherPins--
	c.unpin(id)
}

// condemn takes a referenced block whose bytes are wrong out of service.
func (c *Core) condemn(id uint32) {
	s := c.slot(id)
	switch s.state {
	case published:
		c.unpinAll(id)
		c.unpublish(id, s)
	case transient:
		c.endTransient(id, s)
	default:
		return // condemned already
	}
	c.n.checksumFailures++
	c.toState(id, s, doomed)
	c.setGen(id, s, odd(s.gen))
}
