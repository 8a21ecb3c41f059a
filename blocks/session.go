package blocks

import (
	"time"

	"meridian/blocks/internal/memfd"
	"meridian/blocks/quota"
)

// orphanPoll is how often Step wants to look whether a vanished engine's process has ended.
const orphanPoll = time.Second

// NewOwner makes a session of the daemon's own, or of an engine process that has
// no share; see NewOwnerFor.
func (s *Store) NewOwner(pid int) Owner { return s.NewOwnerFor(quota.Total, pid) }

// NewOwnerFor makes a session that works for a holder and counts against its share
// (Config.Shares), together with the holder's other sessions. With pid above 0 its hold leases outlive Drop until
// that process has ended; if the process cannot be watched, the session gets no
// hold leases. It returns 0, which every call refuses, when MaxOwners exist or
// the store is closed.
func (s *Store) NewOwnerFor(who quota.Holder, pid int) Owner {
	w := &session{pid: pid}
	if pid > 0 {
		if p, err := s.cfg.OpenProcess(pid); err == nil {
			w.proc = p
		}
	}
	s.mu.Lock()
	defer s.unlock()
	var o Owner
	if !s.closed {
		o = s.core.NewOwnerFor(who, pid > 0)
	}
	if o == 0 {
		if w.proc != nil {
			_ = w.proc.Close() // a descriptor that only said "not yet"
		}
		return 0
	}
	s.sessions[o] = w
	return o
}

// Drop ends a session once: reservations are aborted, leases released, staging
// rings unmapped; holds of a process stay until it has ended (see Step). The
// owner's own goroutines must have stopped writing to rooms; the store's copies
// in flight are waited for where they are, and publish nothing.
func (s *Store) Drop(o Owner) {
	s.mu.Lock()
	defer s.unlock()
	w := s.sessions[o]
	if w == nil || w.gone {
		return
	}
	w.gone = true
	if s.core.Drop(o) {
		s.orphans = append(s.orphans, o)
		s.pollOrphans()
	}
	if w.busy == 0 {
		s.endRings(w)
	}
	s.settle(o, w)
}

// settle forgets a dropped session that has nothing left.
func (s *Store) settle(o Owner, w *session) {
	if !w.gone || w.busy > 0 {
		return
	}
	for _, p := range s.orphans {
		if p == o {
			return
		}
	}
	_ = s.endSession(o, w)
}

// pollOrphans releases the holds of those whose process has ended.
func (s *Store) pollOrphans() {
	left := s.orphans[:0]
	for _, o := range s.orphans {
		w := s.sessions[o]
		if w.proc != nil && !w.proc.Gone() {
			left = append(left, o)
			continue
		}
		s.core.Gone(o)
		if w.busy == 0 {
			_ = s.endSession(o, w)
		}
	}
	s.orphans = left
}

func (s *Store) endSession(o Owner, w *session) error {
	delete(s.sessions, o)
	s.endRings(w)
	if w.proc == nil {
		return nil
	}
	err := w.proc.Close()
	w.proc = nil
	return err
}

func (s *Store) endRings(w *session) {
	for _, m := range w.rings {
		s.giveStaging(uint64(len(m.B)))
		m.Close()
	}
	w.rings = nil
}

// Staging is StagingUpTo for a ring of n bytes or none.
func (s *Store) Staging(o Owner, n int) (fd int, b []byte, err error) {
	return s.StagingUpTo(o, n, n)
}

// StagingUpTo makes a ring of at most n and at least least bytes, rounded up to pages,
// that the owner's engine and the daemon both write: sealed against truncation, all
// allocated. It is part of the capacity where Config.StagingBytes says so, and gets at most half of what
// Config.StagingBytes leaves, so that the next engine finds some too. The caller
// sends fd and closes it. b is unmapped at Drop. Its bytes can change at any time:
// nothing but Ingest may take them into the arena. A *quota.Error (BUSY) where not
// even least is left.
func (s *Store) StagingUpTo(o Owner, n, least int) (fd int, b []byte, err error) {
	if n <= 0 || least <= 0 || least > n {
		return -1, nil, &ArgError{What: "staging size: not above zero, or less than the least"}
	}
	size, err := s.claimStaging(o, memfd.WholePages(uint64(n)), memfd.WholePages(uint64(least)))
	if err != nil {
		return -1, nil, err
	}
	m, err := memfd.New("meridian-staging", size, memfd.Shared)
	s.mu.Lock()
	defer s.unlock()
	w := s.sessions[o]
	if err == nil && (s.closed || w == nil || w.gone) {
		m.Close()
		err = errOwner
	}
	if err != nil {
		s.giveStaging(size)
		return -1, nil, err
	}
	w.rings = append(w.rings, m)
	fd, m.FD = m.FD, -1
	return fd, m.B, nil
}

// claimStaging counts a ring before it is made, so that racing calls cannot pass
// the cap, and takes its bytes out of the arena's.
func (s *Store) claimStaging(o Owner, size, least uint64) (uint64, error) {
	s.growing.Lock() // no segment is made for bytes that a ring takes
	defer s.growing.Unlock()
	s.mu.Lock()
	defer s.unlock()
	switch {
	case s.closed:
		return 0, errClosed
	case s.sessions[o] == nil || s.sessions[o].gone:
		return 0, errOwner
	}
	left := s.cfg.StagingBytes - min(s.staging, s.cfg.StagingBytes)
	size = max(least, min(size, memfd.WholePages(left/2)))
	if size > left || !s.cfg.stagingOnTop && !s.core.SetAside(size) {
		s.stagingRefused++
		return 0, &quota.Error{
			Rule: stagingRule, Holder: quota.Total, InUse: s.staging, Want: size, Limit: s.cfg.StagingBytes,
		}
	}
	s.staging += size
	return size, nil
}

// giveStaging gives a ring's bytes back to the arena.
func (s *Store) giveStaging(size uint64) {
	s.staging -= size
	if !s.cfg.stagingOnTop {
		s.core.GiveAside(size)
	}
}

// stagingRule is the limit Config.StagingBytes.
var stagingRule = quota.Rule{Resource: quota.StagingBytes, Kind: quota.All}
