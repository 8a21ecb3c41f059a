package blocks

import (
	"strconv"
	"time"

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
	return s.newOwner(pid, func() Owner { return s.core.NewOwnerFor(who, pid > 0) })
}

// NewMember makes a session that works for the same holder as another one, with a
// process of its own. The sessions of a family renew and release each other's
// leases, until the one that has the lease is dropped. It returns 0 also where the
// other session is not there.
func (s *Store) NewMember(of Owner, pid int) Owner {
	return s.newOwner(pid, func() Owner { return s.core.NewMember(of, pid > 0) })
}

// SetProcess gives a session whose process could not be found by number that process:
// from now on it gets hold leases, which outlive Drop until the process has ended.
// The store closes p, at once where it returns false: the session is not there, or
// has a process.
func (s *Store) SetProcess(o Owner, p Process) bool {
	s.mu.Lock()
	w := s.sessions[o]
	took := !s.closed && w != nil && !w.gone && w.proc == nil
	if took {
		w.proc = p
		s.core.SetClient(o, w.client())
	}
	s.unlock()
	if !took {
		_ = p.Close() // it was polled, and nothing written
	}
	return took
}

func (s *Store) newOwner(pid int, made func() Owner) Owner {
	w := &session{pid: pid}
	if pid > 0 {
		if p, err := s.cfg.OpenProcess(pid); err == nil {
			w.proc = p
		}
	}
	s.mu.Lock()
	defer s.unlock()
	s.pollOrphans() // a process of another time may have had the number
	var o Owner
	if !s.closed {
		o = made()
	}
	if o == 0 {
		if w.proc != nil {
			_ = w.proc.Close() // a descriptor that only said "not yet"
		}
		return 0
	}
	s.sessions[o] = w
	if w.proc != nil {
		s.core.SetClient(o, w.client())
	}
	return o
}

// SetUser says for whose share (Shares.UserEnded) counts what the session's process
// holds when its sessions have ended.
func (s *Store) SetUser(o Owner, user quota.Holder) {
	s.mu.Lock()
	defer s.unlock()
	w := s.sessions[o]
	if w == nil || w.gone {
		return
	}
	if w.user = user; w.proc != nil {
		s.core.SetClient(o, w.client())
	}
}

// client is the process of a session for the core. By number where it has one here;
// else by the kernel's number of its descriptor, where that is one of the process.
func (w *session) client() Client {
	c := Client{User: w.user}
	if w.pid > 0 {
		c.Process = "process " + strconv.Itoa(w.pid)
	} else if p, ok := w.proc.(interface{ Number() (uint64, bool) }); ok {
		if n, ok := p.Number(); ok {
			c.Process = "process of pidfd " + strconv.FormatUint(n, 10)
		}
	}
	return c
}

// Drop ends a session once: reservations are aborted, leases released, the
// staging ring unmapped; holds of a process stay until it has ended (see Step). The
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
		s.endRing(w)
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
	s.endRing(w)
	if w.proc == nil {
		return nil
	}
	err := w.proc.Close()
	w.proc = nil
	return err
}
