package blocks

import (
	"slices"

	"meridian/wire"
)

// MaxNotices is how many evictions of followed blocks wait to be taken; beyond it they
// are only counted.
const MaxNotices = 1 << 16

// Notice says that a block which an owner follows was evicted. The owner follows it no
// more.
type Notice struct {
	Owner Owner
	NS    wire.Namespace
	Key   wire.Key
}

// follows are who wants to know when a block is evicted. The first owner's index is in
// the slot, which needs it for nothing else while it is published.
type follows struct {
	more    map[uint32][]uint32 // slot to the owners after the first
	notices []Notice
	told    uint64 // notices in all
	untold  uint64 // of them, those beyond MaxNotices
}

// Follow notes that an owner wants to know when published blocks are evicted, until
// Settle. absent is called with the index of each that is not here (any more).
func (c *Core) Follow(o Owner, ns wire.Namespace, keys []wire.Key, absent func(i int)) {
	oi, w := c.owner(o)
	nsi, ok := c.nsOf[ns]
	for i := range keys {
		id := none
		if ok {
			id = c.find(nsi, &keys[i])
		}
		switch {
		case w == nil:
		case id >= remoteBit:
			absent(i)
		default:
			c.follow(id, oi)
		}
	}
}

func (c *Core) follow(id, oi uint32) {
	s := c.slot(id)
	switch {
	case s.flags&flagFollowed == 0:
		s.flags |= flagFollowed
		s.own = oi
	case s.own == oi || slices.Contains(c.follows.more[id], oi):
	default:
		if c.follows.more == nil {
			c.follows.more = map[uint32][]uint32{}
		}
		c.follows.more[id] = append(c.follows.more[id], oi)
	}
}

// Settle ends what Follow began: blocks belong to no running request of the owner any
// more. Those that no other owner follows are lowered to ThinkComplete.
func (c *Core) Settle(o Owner, ns wire.Namespace, keys []wire.Key) {
	oi, w := c.owner(o)
	c.each(ns, keys, func(id uint32, s *slot) {
		if w != nil {
			c.unfollow(id, s, oi)
		}
		if s.flags&flagFollowed != 0 {
			return
		}
		s.flags &^= flagLive
		if s.tier > wire.ThinkComplete {
			c.setTier(id, s, wire.ThinkComplete)
		}
	})
}

func (c *Core) unfollow(id uint32, s *slot, oi uint32) {
	if s.flags&flagFollowed == 0 {
		return
	}
	more := c.follows.more[id]
	switch {
	case s.own != oi:
		more = slices.DeleteFunc(more, func(w uint32) bool { return w == oi })
	case len(more) > 0:
		s.own, more = more[0], more[1:]
	default:
		s.flags &^= flagFollowed
		return
	}
	if len(more) > 0 {
		c.follows.more[id] = more
	} else {
		delete(c.follows.more, id)
	}
}

// endFollow is the end of a block that is followed; evicted tells those who follow it.
func (c *Core) endFollow(id uint32, s *slot, evicted bool) {
	if s.flags&flagFollowed == 0 {
		return
	}
	s.flags &^= flagFollowed
	if evicted {
		c.notify(s.own, s)
		for _, oi := range c.follows.more[id] {
			c.notify(oi, s)
		}
	}
	delete(c.follows.more, id)
}

func (c *Core) notify(oi uint32, s *slot) {
	x := &c.follows
	x.told++
	if len(x.notices) >= MaxNotices {
		x.untold++
		return
	}
	o := Owner(uint64(c.owners.all[oi].gen)<<32 | uint64(oi))
	x.notices = append(x.notices, Notice{Owner: o, NS: c.ns[s.ns].id, Key: s.key})
}

// TakeNotices returns the notices since the last call, after those of dst.
func (c *Core) TakeNotices(dst []Notice) []Notice {
	dst = append(dst, c.follows.notices...)
	c.follows.notices = c.follows.notices[:0]
	return dst
}

// Follow is Core.Follow; absent is called under the store's lock.
func (s *Store) Follow(o Owner, ns wire.Namespace, keys []wire.Key, absent func(i int)) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Follow(o, ns, keys, absent)
}

// Settle is Core.Settle.
func (s *Store) Settle(o Owner, ns wire.Namespace, keys []wire.Key) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Settle(o, ns, keys)
}

// Notices has a token when TakeNotices has something. One goroutine may wait for it.
func (s *Store) Notices() <-chan struct{} { return s.notices }

// TakeNotices is Core.TakeNotices.
func (s *Store) TakeNotices(dst []Notice) []Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.TakeNotices(dst)
}
