package core

import (
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// A lease that TABLE of a PULL names is told to the peer while the bodies that it
// pins are still on their way. What the peer does to it then waits for END: the
// bytes under a transfer must not become another block's.

// renew sets how long a lease lives: from now, or from the END of the pull that
// still needs its pins.
func (s *Session) renew(lease Lease, ttl time.Duration) wire.Code {
	r := s.leased[lease]
	switch {
	case r == nil:
		return s.cfg.Store.Renew(lease, ttl)
	case r.keep == 0:
		return wire.CodeLeaseLost
	}
	r.keep = ttl
	return wire.CodeOK
}

// giveBack ends a lease: now, or with the pull that still needs its pins.
func (s *Session) giveBack(lease Lease) {
	if r := s.leased[lease]; r != nil {
		r.keep = 0
		return
	}
	s.cfg.Store.Unpin(lease)
}

// pulled tells the store which blocks of a pull that is over went out to their end,
// where that is what was asked for.
func (s *Session) pulled(r *request) {
	if r.typ != proto.TypePull || r.code != wire.CodeOK || s.dead {
		return
	}
	b := s.scratch.pulled[:0]
	for i := range r.out.items {
		if o := &r.out.items[i]; !o.skip && o.off == len(o.body) && r.blocks[i].Code == wire.CodeOK {
			b = append(b, r.blocks[i])
		}
	}
	if len(b) > 0 {
		s.cfg.Store.Pulled(b)
	}
	clear(b)
	s.scratch.pulled = b
}

// unpin ends the pins of a pull that is over; its lease goes on where that was
// asked for.
func (s *Session) unpin(r *request) {
	delete(s.leased, r.lease)
	switch {
	case r.lease == (Lease{}):
	case r.keep > 0 && r.code == wire.CodeOK && !s.dead:
		_ = s.cfg.Store.Renew(r.lease, r.keep) // a lease that has lapsed is told by its next RENEW
	default:
		s.cfg.Store.Unpin(r.lease)
	}
}
