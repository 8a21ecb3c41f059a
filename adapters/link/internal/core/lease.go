package core

import (
	"time"

	"meridian/wire"
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
