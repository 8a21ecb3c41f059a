package blocks

import (
	"bytes"
	"errors"
	"time"

	"meridian/wire"
)

// Ingest takes a body from memory that another process can write (a staging
// ring, a window) into the reserved slot c.Slot, in one pass of copy and hash,
// and publishes it. Whatever the other process does meanwhile, what is published
// is what was hashed. With c.Head set, the copied bytes must match it
// (CHECKSUM), and its header is kept; else a header is minted from c.Tier.
//
// The error is also c.Err: see Core.Begin and Core.Finish. Ingest calls of one
// owner may run at the same time; a session that is dropped meanwhile keeps its
// ring mapped until they end.
func (s *Store) Ingest(o Owner, from []byte, c *Commit) error {
	s.mu.Lock()
	room, w, err := s.beginIngest(o, from, c)
	if err != nil {
		c.Err = err
		s.unlock()
		return err
	}
	s.enter()
	w.busy++
	s.unlock()

	h, failed := seal(room, s.copySum(room[wire.HeaderLen:], from), c)

	s.mu.Lock()
	s.core.Finish(s.cfg.Clock(), c, h, failed)
	s.leave()
	if w.busy--; w.busy == 0 && w.gone {
		s.endRing(w)
		s.settle(o, w)
	}
	s.unlock()
	return c.Err
}

// seal writes the header of a body that v is proof of in front of it: the one that
// the commit claims, or one that is minted. The proof must be of the slot's own
// bytes, and must match what is claimed.
func seal(room []byte, v wire.Verified, c *Commit) (wire.Header, error) {
	h := wire.Header{BodyLen: uint32(v.Len()), Tier: c.Tier, Sum: v.Sum()}
	if !v.Of(room[wire.HeaderLen:]) {
		return h, wire.CodeChecksum
	}
	if c.Head != nil {
		h = *c.Head
	}
	if err := h.Match(v); err != nil {
		return h, err
	}
	h.Put(room)
	return h, nil
}

func (s *Store) beginIngest(o Owner, from []byte, c *Commit) (room []byte, w *session, err error) {
	w = s.sessions[o]
	switch {
	case s.closed:
		return nil, nil, errClosed
	case w == nil || w.gone:
		return nil, nil, errOwner
	case uint64(len(from)) > uint64(s.core.geo.maxBody):
		s.core.Abort(o, []uint32{c.Slot})
		return nil, nil, &wire.TooLargeError{Got: uint64(len(from)), Limit: uint64(s.core.geo.maxBody)}
	case c.Head != nil && uint64(c.Head.BodyLen) != uint64(len(from)):
		s.core.Abort(o, []uint32{c.Slot})
		return nil, nil, errBodyLen
	}
	c.Len = uint32(len(from))
	if err := s.core.Begin(s.cfg.Clock(), o, c); err != nil {
		return nil, nil, err
	}
	var v View
	s.core.fill(&v, c.Slot)
	return s.arena.slotBytes(&v, c.Len), w, nil
}

// Commit publishes slots whose bytes the daemon wrote itself, through Room or
// from a fabric. Nothing is believed: bytes without Proof of exactly their memory
// are hashed here. Where Head is set they must match it (CHECKSUM); where it is
// nil, a header of Len bytes is minted. The store writes the header in either
// case. Items succeed or fail one by one, in order.
func (s *Store) Commit(o Owner, items []Commit) {
	s.mu.Lock()
	if s.closed {
		for i := range items {
			items[i].Err = errClosed
		}
		s.mu.Unlock()
		return
	}
	now := s.cfg.Clock()
	var v View
	for i := range items {
		c := &items[i]
		if c.Err = s.core.Begin(now, o, c); c.Err == nil {
			n := c.Len
			if c.Head != nil {
				n = c.Head.BodyLen
			}
			s.core.fill(&v, c.Slot)
			c.room = s.arena.slotBytes(&v, n)
		}
	}
	s.enter()
	s.unlock()

	for i := range items {
		c := &items[i]
		if c.Err != nil {
			continue
		}
		v := c.Proof
		if body := c.room[wire.HeaderLen:]; !v.Of(body) {
			v = wire.Hash(body)
		}
		c.sealed, c.failed = seal(c.room, v, c)
	}

	s.mu.Lock()
	now = s.cfg.Clock()
	s.core.warmKeys(items)
	for i := range items {
		if c := &items[i]; c.Err == nil {
			s.core.Finish(now, c, c.sealed, c.failed)
			c.room, c.failed = nil, nil
		}
	}
	s.leave()
	s.unlock()
}

// Acquire pins blocks and fills their views; see Core.Acquire. With
// Config.VerifyAlways it also hashes each, after the store's lock was given back: a
// mismatch is that item's Err (CHECKSUM), and the block is found by nobody any more.
// For a peer's owner it never hashes: the peer checks what arrives, and the
// caller that serves it holds a session's lock.
func (s *Store) Acquire(o Owner, v []View, ttl time.Duration, hold bool) (Lease, error) {
	s.mu.Lock()
	if err := s.mayAcquire(o, hold); err != nil {
		s.mu.Unlock()
		return Lease{}, err
	}
	l, err := s.core.Acquire(s.cfg.Clock(), o, v, ttl, hold)
	if !s.cfg.VerifyAlways || l == (Lease{}) || s.core.worksForPeer(o) {
		s.unlock()
		return l, err
	}
	for i := range v {
		if v[i].Err == nil {
			s.core.borrow(v[i].Ref.Slot)
		}
	}
	s.unlock()
	return s.verifyLease(o, l, v), nil
}

func (s *Store) mayAcquire(o Owner, hold bool) error {
	if s.closed {
		return errClosed
	}
	w := s.sessions[o]
	switch {
	case !hold || w == nil:
	case s.processEnded(o, w):
		return errEnded
	case w.pid > 0 && w.proc == nil:
		return errUnwatched
	}
	return nil
}

// verifyLease hashes what a lease was granted for. Pins of its own keep the
// slots from reuse if the lease lapses meanwhile.
func (s *Store) verifyLease(o Owner, l Lease, v []View) Lease {
	good := false
	for i := range v {
		if v[i].Err != nil {
			continue
		}
		slot := v[i].Ref.Slot
		if v[i].Err = s.rehash(&v[i]); v[i].Err == nil {
			good = true
			s.mu.Lock()
			s.core.GiveBack(slot, false)
			s.unlock()
			continue
		}
		s.mu.Lock()
		s.core.refuse(o, l, slot)
		s.core.GiveBack(slot, errors.Is(v[i].Err, wire.CodeChecksum))
		s.unlock()
	}
	if !good {
		s.Release(o, l)
		return Lease{}
	}
	return l
}

// Verify hashes a stored payload again. v names it by NS and Ref, or by NS and
// Key. A mismatch is a *wire.ChecksumError: the block is then found by nobody
// any more, its generation is odd for readers that still map it, and its slot
// is reused only after the last of them lets go.
func (s *Store) Verify(v View) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	if err := s.core.Borrow(s.self, &v); err != nil {
		s.mu.Unlock()
		return err
	}
	s.unlock()
	err := s.rehash(&v)
	s.mu.Lock()
	s.core.GiveBack(v.Ref.Slot, errors.Is(err, wire.CodeChecksum))
	s.unlock()
	return err
}

// rehash compares a pinned slot's bytes, header included, with what the core
// knows of it.
func (s *Store) rehash(v *View) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	p := s.arena.slotBytes(v, v.Head.BodyLen)
	s.verified++
	s.enter()
	s.mu.Unlock()
	got := wire.SumOf(p[wire.HeaderLen:])
	var head [wire.HeaderLen]byte
	v.Head.Append(head[:0])
	same := bytes.Equal(head[:], p[:wire.HeaderLen])
	s.mu.Lock()
	s.leave()
	s.mu.Unlock()
	if got == v.Head.Sum && same {
		return nil
	}
	if got == v.Head.Sum { // the header's own copy is what was hit
		copy(got[:], p[wire.HeaderLen-len(got):])
	}
	return &wire.ChecksumError{Want: v.Head.Sum, Got: got}
}
