package blocks

import (
	"errors"
	"time"

	"meridian/wire"
)

// MaxPins is how many pins an owner may have: far more than blocks of a useful size
// fit its share.
const MaxPins = 1 << 20

// ErrPulled is the error of an item that PinKeys leaves alone, because a peer pulled
// the block while it was pinned in the same set.
var ErrPulled = errors.New("blocks: a peer has pulled the block")

// Pin keeps a block from eviction until a peer has pulled it once, or For has
// passed. Pins of one Set end together by Unpin: those of a generation request.
// Set 0 is of none. A block is pinned once in a set; pinning it again sets its
// time.
//
// A pin counts for the share of Owner's holder as a lease does. Where several pins
// are on a block, a pull ends the oldest.
type Pin struct {
	Owner Owner
	Set   uint64
	For   time.Duration // 0: no pin
}

// PinEnd is why a pin ended.
type PinEnd uint8

// The ends of a pin.
const (
	PinLapsed   PinEnd = iota // its time has passed
	PinPulled                 // a peer pulled the block
	PinUnpinned               // its set was unpinned
	PinDropped                // its owner is gone
	PinGone                   // the block was discarded, or its bytes were wrong

	PinEnds = 5
)

// String is the end's name as metric labels use it.
func (e PinEnd) String() string {
	return [PinEnds]string{"lapsed", "pulled", "unpinned", "dropped", "gone"}[e]
}

// pinBit marks a reference of the timers that is a pin.
const pinBit = 1 << 30

// pin is one block in one set. Links are indices of pins.all.
type pin struct {
	set          *pinSet
	slot         uint32
	at           time.Duration
	heap         int32
	older, newer uint32 // of the same slot
	prev, next   uint32 // of the same set; next also of the list of free records
}

// pinSet is the pins of one purpose of an owner.
type pinSet struct {
	owner      uint32
	acct       uint32
	num        uint64
	pins       uint32            // the first, or none
	pulled     map[uint32]uint32 // slots that a peer pulled, with the generation
	detached   bool              // found by its number no more
	prev, next *pinSet           // of the same owner
}

// pinKey finds the pin of a slot in a set.
type pinKey struct {
	set  *pinSet
	slot uint32
}

type pins struct {
	all   []pin
	free  uint32
	find  map[pinKey]uint32
	of    map[uint32][2]uint32 // slot to its oldest and its newest pin
	n     int
	bytes uint64
	ended [PinEnds]uint64
}

func newPins() pins {
	return pins{free: none, find: map[pinKey]uint32{}, of: map[uint32][2]uint32{}}
}

// PinKeys pins published blocks of a namespace and sets errs[i] of each: ABSENT,
// ErrPulled with fresh, a *quota.Error beyond the share of the owner's holder or of
// the tenant. It returns how many are pinned. As a whole it fails with INVALID or
// NS_UNKNOWN.
func (c *Core) PinKeys(now time.Duration, p Pin, ns wire.Namespace, keys []wire.Key, fresh bool, errs []error) (n int, err error) {
	c.expire(now)
	oi, w := c.owner(p.Owner)
	nsi, ok := c.nsOf[ns]
	switch {
	case w == nil:
		return 0, errOwner
	case !ok:
		return 0, errNS
	case p.For <= 0:
		return 0, errTTL
	}
	for i := range keys {
		id := c.find(nsi, &keys[i])
		switch {
		case id >= remoteBit:
			errs[i] = errAbsent
		case fresh && w.pinSets[p.Set].wasPulled(id, c.slot(id).gen):
			errs[i] = ErrPulled
		default:
			errs[i] = c.pinSlot(now, oi, p, id, true)
		}
		if errs[i] == nil {
			n++
		}
	}
	return n, nil
}

func (s *pinSet) wasPulled(id, gen uint32) bool {
	if s == nil {
		return false
	}
	g, ok := s.pulled[id]
	return ok && g == gen
}

// pinSlot pins a published slot for a live owner. Without ask the bytes were the
// owner's a moment ago, as a reservation, and no share is looked at.
func (c *Core) pinSlot(now time.Duration, oi uint32, p Pin, id uint32, ask bool) error {
	w := &c.owners.all[oi]
	s := w.pinSets[p.Set]
	if k, ok := c.pins.find[pinKey{s, id}]; ok && s != nil {
		r := &c.pins.all[k]
		r.at = now + p.For
		c.timers.h[r.heap].at = r.at
		c.timers.fix(c, int(r.heap))
		return nil
	}
	if w.npins >= MaxPins {
		return errPins
	}
	if ask {
		err := c.mayLease(w.acct, id, 0)
		c.forgetAsked([]uint32{id})
		if err != nil {
			return err
		}
	}
	if s == nil {
		s = c.newPinSet(oi, p.Set)
	}
	delete(s.pulled, id)
	c.addPin(now+p.For, s, id)
	size := uint64(c.extent(id).stride)
	c.holdFor(s.acct, id)
	c.charge(s.acct, size)
	w.npins++
	c.pins.n++
	c.pins.bytes += size
	return nil
}

func (c *Core) newPinSet(oi uint32, num uint64) *pinSet {
	w := &c.owners.all[oi]
	s := &pinSet{owner: oi, acct: w.acct, num: num, pins: none, next: w.allSets}
	if w.allSets != nil {
		w.allSets.prev = s
	}
	w.allSets = s
	if w.pinSets == nil {
		w.pinSets = map[uint64]*pinSet{}
	}
	w.pinSets[num] = s
	return s
}

// addPin makes the record of a pin, the newest of its slot.
func (c *Core) addPin(at time.Duration, s *pinSet, id uint32) {
	x := &c.pins
	k := x.free
	if k == none {
		k = uint32(len(x.all))
		x.all = append(x.all, pin{})
	} else {
		x.free = x.all[k].next
	}
	x.all[k] = pin{set: s, slot: id, at: at, older: none, newer: none, prev: none, next: s.pins}
	if s.pins != none {
		x.all[s.pins].prev = k
	}
	s.pins = k
	x.find[pinKey{s, id}] = k
	ends, ok := x.of[id]
	if ok {
		x.all[ends[1]].newer, x.all[k].older = k, ends[1]
		ends[1] = k
	} else {
		ends = [2]uint32{k, k}
		c.slot(id).flags |= flagPinned
	}
	x.of[id] = ends
	c.timers.push(c, timer{at: at, ref: k | pinBit})
}

// endPin gives a pin's reference back.
func (c *Core) endPin(k uint32, why PinEnd) {
	x := &c.pins
	r := x.all[k]
	s, id := r.set, r.slot
	if r.heap >= 0 {
		c.timers.remove(c, int(r.heap))
	}
	c.unlinkPin(k)
	delete(x.find, pinKey{s, id})
	if why == PinPulled && s.num != 0 && !s.detached {
		if s.pulled == nil {
			s.pulled = map[uint32]uint32{}
		}
		s.pulled[id] = c.slot(id).gen
	}
	x.all[k] = pin{next: x.free}
	x.free = k
	size := uint64(c.extent(id).stride)
	c.owners.all[s.owner].npins--
	x.n--
	x.bytes -= size
	x.ended[why]++
	c.charge(s.acct, -size)
	c.unpinFor(s.acct, id)
	if s.pins == none && len(s.pulled) == 0 {
		c.endPinSet(s)
	}
}

// unlinkPin takes a pin out of the lists of its slot and its set.
func (c *Core) unlinkPin(k uint32) {
	x := &c.pins
	r := &x.all[k]
	ends := x.of[r.slot]
	if r.older == none {
		ends[0] = r.newer
	} else {
		x.all[r.older].newer = r.newer
	}
	if r.newer == none {
		ends[1] = r.older
	} else {
		x.all[r.newer].older = r.older
	}
	if ends[0] == none {
		delete(x.of, r.slot)
		c.slot(r.slot).flags &^= flagPinned
	} else {
		x.of[r.slot] = ends
	}
	if r.prev == none {
		r.set.pins = r.next
	} else {
		x.all[r.prev].next = r.next
	}
	if r.next != none {
		x.all[r.next].prev = r.prev
	}
}

// endPinSet forgets a set that has no pins. It may be called again.
func (c *Core) endPinSet(s *pinSet) {
	w := &c.owners.all[s.owner]
	if !s.detached {
		s.detached = true
		delete(w.pinSets, s.num)
	}
	switch {
	case s.prev != nil:
		s.prev.next = s.next
	case w.allSets == s:
		w.allSets = s.next
	default:
		return // done already
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next, s.pulled = nil, nil, nil
}

// unpinSet ends the pins of a set, and the set.
func (c *Core) unpinSet(s *pinSet, why PinEnd) {
	for s.pins != none {
		c.endPin(s.pins, why)
	}
	c.endPinSet(s)
}

// Unpin ends the pins of a set. One that is not there is left alone.
func (c *Core) Unpin(o Owner, set uint64) {
	if _, w := c.owner(o); w != nil && w.pinSets[set] != nil {
		c.unpinSet(w.pinSets[set], PinUnpinned)
	}
}

// UnpinDetached ends the pins of the sets with a number that were detached. It looks at
// every set of the owner.
func (c *Core) UnpinDetached(o Owner, set uint64) {
	_, w := c.owner(o)
	if w == nil {
		return
	}
	for s := w.allSets; s != nil; {
		next := s.next
		if s.detached && s.num == set {
			c.unpinSet(s, PinUnpinned)
		}
		s = next
	}
}

// Detach lets the pins of a set go on by themselves: Unpin finds them no more, and
// the set's number is free.
func (c *Core) Detach(o Owner, set uint64) {
	_, w := c.owner(o)
	if w == nil || w.pinSets[set] == nil {
		return
	}
	s := w.pinSets[set]
	s.detached, s.pulled = true, nil
	delete(w.pinSets, set)
	if s.pins == none {
		c.endPinSet(s)
	}
}

// Pulled takes note that a peer has read blocks to their end. A reference that
// names no pinned block is left alone.
func (c *Core) Pulled(refs []wire.Ref) {
	for i := range refs {
		s := c.known(refs[i].Slot)
		if s != nil && s.gen == refs[i].Gen && s.flags&flagPinned != 0 {
			c.endPin(c.pins.of[refs[i].Slot][0], PinPulled)
		}
	}
}

// unpinAll ends every pin of a block that nobody will find any more.
func (c *Core) unpinAll(id uint32) {
	for c.slot(id).flags&flagPinned != 0 {
		c.endPin(c.pins.of[id][0], PinGone)
	}
}

// pinned is how many pins are on a slot.
func (c *Core) pinned(id uint32) (n int) {
	if c.slot(id).flags&flagPinned == 0 {
		return 0
	}
	for k := c.pins.of[id][0]; k != none; k = c.pins.all[k].newer {
		n++
	}
	return n
}

// PinKeys is Core.PinKeys.
func (s *Store) PinKeys(p Pin, ns wire.Namespace, keys []wire.Key, fresh bool, errs []error) (int, error) {
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return 0, errClosed
	}
	return s.core.PinKeys(s.cfg.Clock(), p, ns, keys, fresh, errs)
}

// Unpin ends the pins of a set; see Core.Unpin.
func (s *Store) Unpin(o Owner, set uint64) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Unpin(o, set)
}

// UnpinDetached ends the pins of a set that was detached; see Core.UnpinDetached.
func (s *Store) UnpinDetached(o Owner, set uint64) {
	s.mu.Lock()
	defer s.unlock()
	s.core.UnpinDetached(o, set)
}

// Detach lets the pins of a set go on by themselves; see Core.Detach.
func (s *Store) Detach(o Owner, set uint64) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Detach(o, set)
}

// Pulled is told by a fabric that a peer has read blocks to their end; see
// Core.Pulled.
func (s *Store) Pulled(refs []wire.Ref) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Pulled(refs)
}
