// Package memstore is a block store in plain memory for the link's tests: the
// part of blocks.Store that the link uses, with counters that show leaks. It
// may import blocks and wire, and must never be used outside of tests.
package memstore

import (
	"crypto/rand"
	"sync"
	"time"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/wire"
)

// Store holds blocks for one agent incarnation.
type Store struct {
	agent [16]byte
	inc   uint64

	mu     sync.Mutex
	room   int // bytes that may be reserved or published; 0: no bound
	used   int
	owners blocks.Owner
	slots  []slot // slot 0 is never used
	byKey  map[name]uint32
	leases map[blocks.Lease]lease
}

type name struct {
	ns  wire.Namespace
	key wire.Key
}

type slot struct {
	owner   blocks.Owner // of a reservation
	name    name
	payload []byte
	head    wire.Header
	tier    wire.Tier
	att     wire.Attest
	gen     uint32
	pins    int
	state   state
}

type state uint8

const (
	free state = iota
	reserved
	published
	doomed // discarded, and pinned still
)

type lease struct {
	owner blocks.Owner
	slots []uint32
}

// New makes an empty store. room bounds its bytes; 0 is no bound.
func New(agent [16]byte, inc uint64, room int) *Store {
	return &Store{
		agent: agent, inc: inc, room: room, slots: make([]slot, 1),
		byKey: map[name]uint32{}, leases: map[blocks.Lease]lease{},
	}
}

// Add publishes a block.
func (s *Store) Add(ns wire.Namespace, key wire.Key, tier wire.Tier, body []byte) wire.Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.take(len(body))
	b := &s.slots[i]
	head, err := wire.Mint(tier, body)
	if err != nil {
		panic(err)
	}
	head.Put(b.payload)
	copy(b.payload[wire.HeaderLen:], body)
	b.name, b.head, b.tier, b.att, b.state = name{ns, key}, head, tier, wire.AttestProducer, published
	s.byKey[b.name] = i
	return s.ref(i)
}

// Damage flips a bit of a stored body.
func (s *Store) Damage(ns wire.Namespace, key wire.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[s.byKey[name{ns, key}]].payload[wire.HeaderLen] ^= 1
}

// Discard takes a block out; its slot may be used again.
func (s *Store) Discard(ns wire.Namespace, key wire.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := name{ns, key}
	i, ok := s.byKey[n]
	if !ok {
		return false
	}
	delete(s.byKey, n)
	s.slots[i].state = doomed
	s.reap(i)
	return true
}

// Counts tells what is held: published blocks, reservations, leases and pins.
func (s *Store) Counts() (blocks, reservations, leases, pins int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slots {
		switch s.slots[i].state {
		case reserved:
			reservations++
		case published:
			blocks++
		}
		pins += s.slots[i].pins
	}
	return blocks, reservations, len(s.leases), pins
}

// take finds or makes a free slot; its generation becomes odd.
func (s *Store) take(n int) uint32 {
	s.used += n
	for i := 1; i < len(s.slots); i++ {
		if b := &s.slots[i]; b.state == free {
			gen := b.gen
			*b = slot{payload: make([]byte, wire.HeaderLen+n), gen: gen + 2}
			return uint32(i)
		}
	}
	s.slots = append(s.slots, slot{payload: make([]byte, wire.HeaderLen+n), gen: 2})
	return uint32(len(s.slots) - 1)
}

func (s *Store) reap(i uint32) {
	if b := &s.slots[i]; b.state == doomed && b.pins == 0 {
		b.state = free
		s.used -= len(b.payload) - wire.HeaderLen
	}
}

func (s *Store) ref(i uint32) wire.Ref {
	return wire.Ref{Agent: s.agent, Inc: s.inc, Slot: i, Gen: s.slots[i].gen}
}

func (s *Store) view(i uint32, v *blocks.View) {
	b := &s.slots[i]
	*v = blocks.View{
		NS: b.name.ns, Key: b.name.key, Ref: s.ref(i), Seg: 1, Off: uint64(i), Head: b.head, Tier: b.tier, Att: b.att,
		Cap: uint32(len(b.payload) - wire.HeaderLen), Refs: b.pins,
	}
}

// NewOwnerFor implements link.Store.
func (s *Store) NewOwnerFor(quota.Holder, int) blocks.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners++
	return s.owners
}

// Drop implements link.Store.
func (s *Store) Drop(o blocks.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l, x := range s.leases {
		if x.owner == o {
			s.release(l)
		}
	}
	for i := range s.slots {
		if b := &s.slots[i]; b.state == reserved && b.owner == o {
			b.state = doomed
			s.reap(uint32(i))
		}
	}
}

// Lookup implements link.Store.
func (s *Store) Lookup(ns wire.Namespace, chain []wire.Key, v []blocks.View) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	hits, leading := 0, true
	for n, k := range chain {
		i, ok := s.byKey[name{ns, k}]
		if !ok {
			v[n] = blocks.View{NS: ns, Key: k, Err: wire.CodeAbsent}
			leading = false
			continue
		}
		s.view(i, &v[n])
		if leading {
			hits++
		}
	}
	return hits
}

// Acquire implements link.Store.
func (s *Store) Acquire(o blocks.Owner, v []blocks.View, _ time.Duration, _ bool) (blocks.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := lease{owner: o}
	for n := range v {
		i, ok := s.byKey[name{v[n].NS, v[n].Key}]
		code := wire.CodeAbsent
		if r := v[n].Ref; r.Gen != 0 {
			i, code = r.Slot, wire.CodeStale
			ok = int(i) < len(s.slots) && r == s.ref(i) && s.slots[i].state == published && s.slots[i].name.ns == v[n].NS
		}
		if !ok {
			v[n].Err = code
			continue
		}
		s.slots[i].pins++
		l.slots = append(l.slots, i)
		s.view(i, &v[n])
	}
	if l.slots == nil {
		return blocks.Lease{}, nil
	}
	var id blocks.Lease
	_, _ = rand.Read(id[:])
	s.leases[id] = l
	return id, nil
}

// Renew implements link.Store. Leases here do not lapse.
func (s *Store) Renew(o blocks.Owner, l blocks.Lease, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.leases[l]; !ok || x.owner != o {
		return wire.CodeLeaseLost
	}
	return nil
}

// Release implements link.Store.
func (s *Store) Release(o blocks.Owner, l blocks.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l].owner == o {
		s.release(l)
	}
}

func (s *Store) release(l blocks.Lease) {
	for _, i := range s.leases[l].slots {
		s.slots[i].pins--
		s.reap(i)
	}
	delete(s.leases, l)
}

// Payload implements link.Store.
func (s *Store) Payload(v blocks.View) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[v.Off].payload
}

// ReserveTier implements link.Store.
func (s *Store) ReserveTier(o blocks.Owner, ns wire.Namespace, _ wire.Tier, size []uint32, _ time.Duration) ([]blocks.View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	need := 0
	for _, n := range size {
		need += int(n)
	}
	if s.room > 0 && s.used+need > s.room {
		return nil, &blocks.FullError{Need: uint64(need), Free: uint64(s.room - s.used)}
	}
	v := make([]blocks.View, len(size))
	for n := range size {
		i := s.take(int(size[n]))
		b := &s.slots[i]
		b.state, b.owner, b.name.ns = reserved, o, ns
		s.view(i, &v[n])
	}
	return v, nil
}

// Room implements link.Store.
func (s *Store) Room(v blocks.View) []byte { return s.Payload(v) }

// Commit implements link.Store.
func (s *Store) Commit(o blocks.Owner, c []blocks.Commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range c {
		x := &c[n]
		b := &s.slots[x.Slot]
		if b.state != reserved || b.owner != o {
			x.Err = wire.CodeInvalid
			continue
		}
		b.name.key = x.Key
		if _, ok := s.byKey[b.name]; ok {
			x.Err = wire.CodeExists
			b.state = doomed
			s.reap(x.Slot)
			continue
		}
		b.head, b.tier, b.att, b.state = *x.Head, x.Tier, x.Att, published
		b.gen += 2
		b.head.Put(b.payload)
		s.byKey[b.name] = x.Slot
		x.Err = nil
	}
}

// Abort implements link.Store.
func (s *Store) Abort(o blocks.Owner, slots []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range slots {
		if b := &s.slots[i]; b.state == reserved && b.owner == o {
			b.state = doomed
			s.reap(i)
		}
	}
}

// Pulled takes no note: nothing is evicted here.
func (s *Store) Pulled([]wire.Ref) {}
