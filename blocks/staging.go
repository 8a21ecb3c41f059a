package blocks

import (
	"errors"
	"fmt"

	"meridian/blocks/internal/memfd"
	"meridian/blocks/quota"
	"meridian/wire"
)

// Staging makes the owner's ring, or makes it larger at its end, and returns it: at
// least least and at most most bytes, rounded up to pages, that the owner's engine
// and the daemon both write. It cannot be truncated, is all allocated, and stays
// where it is until Drop unmaps it. Its bytes can change at any time: nothing but
// Ingest may take them into the arena. A ring that has least already stays as it is.
//
// It counts for everybody named in who, and for all together
// (Config.StagingBytes). It gets at most half of what their limits leave, so that
// the next one finds some too, unless that is not least. Where Config.StagingBytes
// says that rings are part of the capacity, its bytes are taken out of the arena's.
// A *quota.Error, or another error that matches BUSY, where there is no room.
func (s *Store) Staging(o Owner, least, most int, who ...quota.Holder) ([]byte, error) {
	if least <= 0 || least > most {
		return nil, &ArgError{What: "staging size: not above zero, or less than the least"}
	}
	s.growing.Lock() // no segment is made for bytes that a ring takes
	defer s.growing.Unlock()
	s.mu.Lock()
	w := s.sessions[o]
	if s.closed || w == nil || w.gone {
		defer s.unlock()
		if s.closed {
			return nil, errClosed
		}
		return nil, errOwner
	}
	had := uint64(0)
	if w.ring != nil {
		had = uint64(len(w.ring.B))
	}
	low, high := memfd.WholePages(uint64(least)), memfd.WholePages(uint64(most))
	if low <= had {
		defer s.unlock()
		return w.ring.B, nil
	}
	c, err := s.claimStaging(o, low-had, high-had, append(who, quota.Total))
	if err != nil {
		s.unlock()
		return nil, err
	}
	w.busy++ // Drop leaves the ring mapped meanwhile
	s.unlock()

	m := w.ring
	if m == nil {
		m, err = memfd.NewGrowing("meridian-staging", c.n, high)
	} else {
		err = m.Grow(had + c.n)
	}

	s.mu.Lock()
	defer s.unlock()
	if err != nil {
		s.giveStaging(c)
	} else {
		w.ring, w.claims = m, append(w.claims, c)
	}
	if w.busy--; w.gone {
		err = errOwner
		if w.busy == 0 {
			s.endRing(w)
			s.settle(o, w)
		}
	}
	if err != nil {
		return nil, err
	}
	return m.B, nil
}

// StagingLeft is how many bytes of rings the limits leave to those named in who.
func (s *Store) StagingLeft(who ...quota.Holder) uint64 {
	return s.staging.Left(quota.StagingBytes, append(who, quota.Total)...)
}

// StagingFD returns a descriptor of the owner's ring, which the caller closes, and
// the bytes to map of it.
func (s *Store) StagingFD(o Owner) (fd int, size uint64, err error) {
	s.mu.Lock()
	defer s.unlock()
	w := s.sessions[o]
	if w == nil || w.ring == nil {
		return -1, 0, errOwner
	}
	fd, err = w.ring.Dup()
	return fd, uint64(len(w.ring.B)), err
}

// claim is bytes of a ring, counted and taken out of the arena's.
type claim struct {
	n    uint64
	hold *quota.Hold
}

// claimStaging takes half of what the limits leave, between low and high bytes, or
// where the arena cannot give as much low.
func (s *Store) claimStaging(o Owner, low, high uint64, who []quota.Holder) (claim, error) {
	left := s.staging.Left(quota.StagingBytes, who...)
	n := max(low, min(high, memfd.WholePages(left/2)))
	hold, err := s.staging.Take(quota.StagingBytes, n, who...)
	if err != nil {
		return claim{}, err
	}
	if !s.cfg.stagingOnTop {
		err = s.core.SetAside(o, n)
	}
	if err == nil {
		s.fitAhead()
		s.ahead.stir()
		return claim{n, hold}, nil
	}
	hold.Give()
	if n > low {
		return s.claimStaging(o, low, low, who)
	}
	if full, ok := errors.AsType[*quota.Error](err); ok { // what is FULL of the arena is BUSY of a ring
		return claim{}, fmt.Errorf("staging ring: %s: %w", full.Error(), wire.CodeBusy)
	}
	return claim{}, fmt.Errorf("staging ring: %w", err)
}

func (s *Store) giveStaging(c claim) {
	c.hold.Give()
	if !s.cfg.stagingOnTop {
		s.core.GiveAside(c.n)
	}
}

// endRing unmaps a session's ring and gives its bytes back.
func (s *Store) endRing(w *session) {
	if w.ring != nil {
		w.ring.Close()
		w.ring = nil
	}
	for _, c := range w.claims {
		s.giveStaging(c)
	}
	w.claims = nil
}

// limitStaging sets what everybody together, an engine and a tenant may have of
// staging rings.
func (s *Store) limitStaging() {
	total := s.cfg.StagingBytes
	s.staging.SetLimit(quota.StagingBytes, quota.All, total)
	for k, share := range map[quota.Kind]float64{quota.Engine: s.cfg.Shares.EngineStaging, quota.Tenant: s.cfg.Shares.TenantStaging} {
		if share > 0 && share < 1 {
			s.staging.SetLimit(quota.StagingBytes, k, quota.Share(total, share))
		} else {
			s.staging.NoLimit(quota.StagingBytes, k)
		}
	}
}
