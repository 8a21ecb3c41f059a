package blocks

import (
	"time"

	"meridian/wire"
)

// Begin checks a commit against its reservation and marks the slot as being
// written by the driver; Finish must follow. On error the slot is freed, unless
// it is not (or no longer) the owner's reservation: STALE, or DEADLINE for one
// whose time ran out while the owner was writing.
func (c *Core) Begin(now time.Duration, o Owner, k *Commit) error {
	c.expire(now)
	oi, w := c.owner(o)
	if w == nil {
		return errOwner
	}
	s := c.known(k.Slot)
	if s == nil || s.own != oi || s.group == none || k.Gen != 0 && k.Gen != s.gen ||
		s.state != reserved && s.state != late {
		return errStale
	}
	if err := c.acceptable(k, s); err != nil {
		c.abandon(k.Slot, s)
		return err
	}
	c.toState(k.Slot, s, writing)
	return nil
}

func (c *Core) acceptable(k *Commit, s *slot) error {
	n := k.Len
	if k.Head != nil {
		n = k.Head.BodyLen
	}
	switch {
	case s.state == late:
		return errDeadline
	case k.NS != wire.Namespace{} && k.NS != c.ns[s.ns].id:
		return errWrongNS
	case k.Key == wire.Key{}:
		return errKey
	case k.Tier > wire.OutputCritical:
		return &wire.TierError{Got: uint8(k.Tier)}
	case k.Att > wire.AttestProducer:
		return errAttest
	case n > s.size:
		return &wire.TooLargeError{Got: uint64(n), Limit: uint64(s.size)}
	}
	return nil
}

// Finish publishes what Begin accepted, under the header h, or frees it: with
// failed when that is not nil, EXISTS when the key is published already,
// CANCELLED or DEADLINE when the reservation ended meanwhile. It sets k.Err.
func (c *Core) Finish(now time.Duration, k *Commit, h wire.Header, failed error) {
	c.expire(now)
	id := k.Slot
	s := c.slot(id)
	tag := c.index.tag(s.ns, &k.Key)
	there := c.findTag(tag, s.ns, &k.Key)
	switch {
	case s.flags&flagExpired != 0:
		k.Err = errDeadline
	case s.flags&flagCancel != 0:
		k.Err = errCancelled
	case failed != nil:
		k.Err = failed
		if wire.CodeOf(failed) == wire.CodeChecksum {
			c.n.checksumFailures++
		}
	default:
		k.Err = c.unique(k, s, there)
	}
	if k.Err == nil {
		k.Err = c.mayPin(k)
	}
	if k.Err != nil {
		c.leaveReservation(id, s)
		c.retire(id, s)
		if there < remoteBit && k.Err == errExists {
			c.pinCommit(now, k, there, true)
		}
		return
	}
	s.key, s.sum, s.size, s.htier = k.Key, h.Sum, h.BodyLen, h.Tier
	s.att, s.flags = k.Att, 0
	if k.Live {
		s.flags = flagLive
	}
	c.setGen(id, s, even(s.gen))
	c.n.commits++
	if k.Transient {
		c.keepTransient(id, s, k.Tier)
		return
	}
	c.leaveReservation(id, s)
	s.tier = k.Tier
	c.toState(id, s, published)
	c.account(id, s, 1)
	c.addToIndex(id, s, tag, there)
	if c.watched {
		c.news = append(c.news, Published{c.ns[s.ns].id, s.key})
	}
	c.use(id, s)
	if s.refs == 0 {
		c.idle(id, s)
	}
	c.pinCommit(now, k, id, false)
}

// mayPin refuses a commit whose pin cannot be.
func (c *Core) mayPin(k *Commit) error {
	if k.Pin.For <= 0 || k.Transient {
		return nil
	}
	switch _, w := c.owner(k.Pin.Owner); {
	case w == nil:
		return errOwner
	case w.npins >= MaxPins:
		return errPins
	}
	return nil
}

// pinCommit pins a block as its commit says. What a share refuses is k.Err.
func (c *Core) pinCommit(now time.Duration, k *Commit, id uint32, ask bool) {
	oi, w := c.owner(k.Pin.Owner)
	if k.Pin.For <= 0 || w == nil {
		return
	}
	if err := c.pinSlot(now, oi, k.Pin, id, ask); err != nil {
		k.Err = err
	}
}

// Commit is Begin and Finish for bytes that need no work in between; where Head
// is nil the header has no checksum. Only drivers without an arena want that.
func (c *Core) Commit(now time.Duration, o Owner, items []Commit) {
	c.warmKeys(items)
	for i := range items {
		k := &items[i]
		h := wire.Header{BodyLen: k.Len, Tier: k.Tier}
		if k.Head != nil {
			h = *k.Head
		}
		if k.Err = c.Begin(now, o, k); k.Err == nil {
			c.Finish(now, k, h, nil)
		}
	}
}

// warmKeys loads the index cells that Finish will look at, all at once.
func (c *Core) warmKeys(items []Commit) {
	for i := range items {
		if s := c.known(items[i].Slot); s != nil {
			c.sink += c.index.cells[c.index.tag(s.ns, &items[i].Key)&c.index.mask]
		}
	}
}

// unique reports EXISTS for a key that is there, which counts as a use of it.
func (c *Core) unique(k *Commit, s *slot, there uint32) error {
	if there < remoteBit {
		c.touch(there)
		c.n.exists++
		return errExists
	}
	if k.Transient {
		if _, ok := c.owners.all[s.own].private[privateKey{s.ns, k.Key}]; ok {
			c.n.exists++
			return errExists
		}
	}
	return nil
}

// account adds a published slot to its tier's numbers, or takes it off.
func (c *Core) account(id uint32, s *slot, by int) {
	c.tierCount[s.tier] += by
	n := uint64(c.extent(id).stride)
	if by < 0 {
		n = -n
	}
	c.tierBytes[s.tier] += n
}

// addToIndex makes a slot the index's answer for its key; there is what answers now:
// a remote record or none.
func (c *Core) addToIndex(id uint32, s *slot, tag, there uint32) {
	if there == none {
		c.index.insert(tag, id)
		return
	}
	c.index.cells[c.index.locate(tag, there)] = cell(tag, id)
	s.remote = there &^ remoteBit
	c.remotes.all[s.remote].slot = id
}

// removeFromIndex takes a slot out of the index; a copy outside is the answer from then on.
func (c *Core) removeFromIndex(id uint32, s *slot) {
	tag := c.index.tag(s.ns, &s.key)
	i := c.index.locate(tag, id)
	if s.remote == none {
		c.index.remove(i)
		return
	}
	c.remotes.all[s.remote].slot = none
	c.index.cells[i] = cell(tag, s.remote|remoteBit)
	s.remote = none
}

// keepTransient makes a slot readable for its owner alone, until its release or
// the reservation's deadline.
func (c *Core) keepTransient(id uint32, s *slot, t wire.Tier) {
	c.chargeSlot(id, s, -1)
	s.tier = t
	c.toState(id, s, transient)
	w := &c.owners.all[s.own]
	if w.private == nil {
		w.private = map[privateKey]uint32{}
	}
	w.private[privateKey{s.ns, s.key}] = id
}

// endTransient makes a transient slot unfindable.
func (c *Core) endTransient(id uint32, s *slot) {
	c.leaveReservation(id, s)
	p, k := c.owners.all[s.own].private, privateKey{s.ns, s.key}
	if got, ok := p[k]; ok && got == id {
		delete(p, k)
	}
}

// unpublish takes a published slot off every list and out of the index. Its pins
// have ended.
func (c *Core) unpublish(id uint32, s *slot) {
	c.endFollow(id, s, false)
	if s.refs == 0 {
		c.unidle(id, s)
	}
	c.removeFromIndex(id, s)
	c.account(id, s, -1)
}

// Retier lowers the tier of blocks; a higher tier is ignored. ThinkComplete also
// ends what Commit.Live said.
func (c *Core) Retier(ns wire.Namespace, keys []wire.Key, t wire.Tier) {
	c.each(ns, keys, func(id uint32, s *slot) {
		if t == wire.ThinkComplete {
			s.flags &^= flagLive
		}
		if t < s.tier {
			c.setTier(id, s, t)
		}
	})
}

func (c *Core) setTier(id uint32, s *slot, t wire.Tier) {
	idle := s.refs == 0
	if idle {
		c.unidle(id, s)
	}
	c.account(id, s, -1)
	s.tier = t
	c.account(id, s, 1)
	if idle {
		c.use(id, s)
		c.idle(id, s)
	}
}

// Discard removes blocks and what is known of copies outside, and returns how
// many slots it freed. A referenced block is no longer found; its slot is freed
// at its last release.
func (c *Core) Discard(ns wire.Namespace, keys []wire.Key) (freed int) {
	c.Forget(ns, keys)
	c.each(ns, keys, func(id uint32, s *slot) {
		c.unpinAll(id)
		if s.refs == 0 {
			freed++
		}
		c.unpublish(id, s)
		c.retire(id, s)
	})
	return freed
}

// each calls f for every key that has a published slot.
func (c *Core) each(ns wire.Namespace, keys []wire.Key, f func(id uint32, s *slot)) {
	nsi, ok := c.nsOf[ns]
	if !ok {
		return
	}
	for i := range keys {
		if id := c.find(nsi, &keys[i]); id < remoteBit {
			f(id, c.slot(id))
		}
	}
}
