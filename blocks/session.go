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
// (Config.Shares), together with the holder's other sessions. With pid above 0 it is of
// that process, and gets no hold leases before SetProcess. It returns 0, which every call refuses, when MaxOwners exist or
// the store is closed.
func (s *Store) NewOwnerFor(who quota.Holder, pid int) Owner {
	return s.newOwner(pid, func() Owner { return s.core.NewOwnerFor(who, false) })
}

// NewMember makes a session that works for the same holder as another one, with a
// process of its own. The sessions of a family renew and release each other's
// leases, until the one that has the lease is dropped. It returns 0 also where the
// other session is not there.
func (s *Store) NewMember(of Owner, pid int) Owner {
	return s.newOwner(pid, func() Owner { return s.core.NewMember(of, false) })
}

// SetProcess gives a session its process: from now on it gets hold leases, which outlive
// Drop until the process has ended, and never outlive that, whoever goes on with the
// session. The store closes p, at once where it returns false: the session is not there, or
// has, or had, a process.
func (s *Store) SetProcess(o Owner, p Process) bool {
	s.mu.Lock()
	w := s.sessions[o]
	took := !s.closed && w != nil && !w.gone && w.proc == nil && !w.ended
	if took {
		s.pollProcesses() // one of another time may have had the number
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
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return 0
	}
	o := made()
	if o != 0 {
		s.sessions[o] = &session{pid: pid}
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

// client is the process of a session for the core: by the kernel's number of its
// descriptor, where that is one of the process, since no other will have it; else by
// its number here, if it has one.
func (w *session) client() Client {
	if p, ok := w.proc.(interface{ Number() (uint64, bool) }); ok {
		if n, ok := p.Number(); ok {
			return Client{"process of pidfd " + strconv.FormatUint(n, 10), w.user}
		}
	}
	if w.pid > 0 {
		return Client{"process " + strconv.Itoa(w.pid), w.user}
	}
	return Client{User: w.user}
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
		s.pollProcesses()
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

// pollProcesses releases the holds of those whose process has ended. It reports whether
// there are any left.
func (s *Store) pollProcesses() (holds bool) {
	for o, w := range s.sessions {
		if !w.gone && w.proc != nil && s.core.Holds(o) && !s.processEnded(o, w) {
			holds = true
		}
	}
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
	return holds || len(left) > 0
}

// processEnded looks whether the process of a session that goes on has ended: somebody
// else has its socket, as a child that was forked. Its hold leases end then.
func (s *Store) processEnded(o Owner, w *session) bool {
	if !w.ended && w.proc != nil && w.proc.Gone() {
		s.core.EndHolds(o)
		w.ended = true
		_ = w.proc.Close() // a descriptor that only said "not yet"
		w.proc = nil
	}
	return w.ended
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
