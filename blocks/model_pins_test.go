package blocks

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/wire"
)

// mSet is a set of pins, the oldest first.
type mSet struct {
	owner    Owner
	num      uint64
	pins     []*mPin
	pulled   []mPulled
	detached bool
}

type mPin struct {
	b  *mBlock
	at time.Duration
}

type mPulled struct{ slot, gen uint32 }

// setOf finds a set by its number.
func (m *model) setOf(o Owner, num uint64) *mSet {
	for _, s := range m.sets {
		if s.owner == o && s.num == num && !s.detached {
			return s
		}
	}
	return nil
}

// pinsOf are the pins of a block with their sets, the oldest first.
func (m *model) pinsOf(b *mBlock) (pins []*mPin, sets []*mSet) {
	for _, p := range m.pinned {
		for _, s := range m.sets {
			if p.b == b && slices.Contains(s.pins, p) {
				pins, sets = append(pins, p), append(sets, s)
			}
		}
	}
	return pins, sets
}

func (m *model) endPin(s *mSet, p *mPin, pulled bool) {
	is := func(x *mPin) bool { return x == p }
	s.pins, m.pinned = slices.DeleteFunc(s.pins, is), slices.DeleteFunc(m.pinned, is)
	if pulled && s.num != 0 && !s.detached {
		s.pulled = append(slices.DeleteFunc(s.pulled, func(x mPulled) bool { return x.slot == p.b.id }), mPulled{p.b.id, p.b.gen})
	}
	if len(s.pins)+len(s.pulled) == 0 {
		m.endSet(s)
	}
	m.unpin(p.b)
}

// endSet ends the pins of a set, the newest first.
func (m *model) endSet(s *mSet) {
	m.sets = slices.DeleteFunc(m.sets, func(x *mSet) bool { return x == s })
	for i := len(s.pins) - 1; i >= 0; i-- {
		p := s.pins[i]
		m.pinned = slices.DeleteFunc(m.pinned, func(x *mPin) bool { return x == p })
		m.unpin(p.b)
	}
	s.pins = nil
}

// unpinBlock ends the pins of a block that will be found no more.
func (m *model) unpinBlock(b *mBlock) {
	pins, sets := m.pinsOf(b)
	for i := range pins {
		m.endPin(sets[i], pins[i], false)
	}
}

// opPin pins two keys.
func (m *model) opPin(o op) error {
	m.now++
	m.expire()
	owner, k, num := m.owners[o[1]%4], m.key(o), uint64(o[1]>>2)%3
	keys := []wire.Key{k.key, {1, (k.key[1] + 1) % 24}}
	fresh := o[1]&64 != 0
	ttl := time.Duration(1+o[3])*4*time.Millisecond + time.Duration(m.tick+1)*time.Nanosecond
	m.tick++
	errs := make([]error, len(keys))
	want, refused := make([]*mBlock, len(keys)), 0
	for i, key := range keys {
		want[i] = m.blocks[mKey{k.ns, key}]
	}
	if want[0] != nil && want[1] != nil {
		keys, want, errs = keys[:1], want[:1], errs[:1] // no two deadlines are the same
	}
	n, err := m.c.PinKeys(m.now, Pin{Owner: owner, Set: num, For: ttl}, mNS(k.ns), keys, fresh, errs)
	if err != nil {
		return err
	}
	for i, b := range want {
		s := m.setOf(owner, num)
		has := -1
		if s != nil && b != nil {
			has = slices.IndexFunc(s.pins, func(p *mPin) bool { return p.b == b })
		}
		switch {
		case b == nil:
			refused++
			if err := wantErr("PinKeys", errs[i], wire.CodeAbsent); err != nil {
				return err
			}
		case fresh && s != nil && slices.Contains(s.pulled, mPulled{b.id, b.gen}):
			if refused++; !errors.Is(errs[i], ErrPulled) {
				return fmt.Errorf("PinKeys of a block that was pulled: %w", errs[i])
			}
		case has >= 0:
			if s.pins[has].at = m.now + ttl; errs[i] != nil {
				return errs[i]
			}
		case m.beyondShares(owner, []*mBlock{b})[0]:
			refused++
			if err := wantShare("PinKeys", errs[i]); err != nil {
				return err
			}
		case errs[i] != nil:
			return errs[i]
		default:
			if s == nil {
				s = &mSet{owner: owner, num: num}
				m.sets = append(m.sets, s)
			}
			p := &mPin{b, m.now + ttl}
			s.pins, m.pinned = append(s.pins, p), append(m.pinned, p)
			s.pulled = slices.DeleteFunc(s.pulled, func(x mPulled) bool { return x.slot == b.id })
			b.refs++
		}
	}
	if n != len(keys)-refused {
		return fmt.Errorf("PinKeys: %d, want %d", n, len(keys)-refused)
	}
	return nil
}

func (m *model) opPulled(o op) error {
	b := m.blocks[m.key(o)]
	if b == nil {
		return nil
	}
	m.c.Pulled([]wire.Ref{{Slot: b.id, Gen: b.gen + 2}, {Slot: 1 << 30}, {Slot: b.id, Gen: b.gen}})
	if pins, sets := m.pinsOf(b); len(pins) > 0 {
		m.endPin(sets[0], pins[0], true)
	}
	return nil
}

func (m *model) opUnpin(o op) error {
	owner, num := m.owners[o[1]%4], uint64(o[2])%3
	s := m.setOf(owner, num)
	if o[3]%2 == 0 {
		m.c.Detach(owner, num)
		if s != nil {
			if s.detached, s.pulled = true, nil; len(s.pins) == 0 {
				m.endSet(s)
			}
		}
		return nil
	}
	m.c.Unpin(owner, num)
	m.c.Unpin(owner, num)
	if s != nil {
		m.endSet(s)
	}
	return nil
}

// dropPins ends the sets of an owner, the newest first.
func (m *model) dropPins(o Owner) {
	for i := len(m.sets) - 1; i >= 0; i-- {
		if m.sets[i].owner == o {
			m.endSet(m.sets[i])
		}
	}
}

func (m *model) pinBytes(has func(Owner) bool) (n uint64) {
	for _, s := range m.sets {
		if has(s.owner) {
			for _, p := range s.pins {
				n += m.stride(p.b)
			}
		}
	}
	return n
}
