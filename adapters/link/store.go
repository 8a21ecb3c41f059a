package link

import (
	"slices"
	"sync"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/wire"
)

var _ Store = (*blocks.Store)(nil)

// Store is what the link needs of *blocks.Store. Nothing here blocks but
// ReserveTier, which may have to make a segment.
type Store interface {
	NewOwnerFor(who quota.Holder, pid int) blocks.Owner
	Drop(o blocks.Owner)
	Lookup(ns wire.Namespace, chain []wire.Key, v []blocks.View) int
	Acquire(o blocks.Owner, v []blocks.View, ttl time.Duration, hold bool) (blocks.Lease, error)
	Renew(o blocks.Owner, l blocks.Lease, ttl time.Duration) error
	Release(o blocks.Owner, l blocks.Lease)
	Payload(v blocks.View) []byte
	Pulled(refs []wire.Ref)
	ReserveTier(o blocks.Owner, ns wire.Namespace, t wire.Tier, size []uint32, ttl time.Duration) ([]blocks.View, error)
	Room(v blocks.View) []byte
	Commit(o blocks.Owner, c []blocks.Commit)
	Abort(o blocks.Owner, slots []uint32)
}

// sessionStore is the store as one session sees it: bound to one owner.
type sessionStore struct {
	st     Store
	owner  blocks.Owner
	spaces *sessionNamespaces
	agent  [16]byte
	inc    uint64
	bridge *bridge // nil: what comes stays

	rooming sync.Mutex
	rooms   map[reservation]room // of reserved blocks that go on
	dropped bool                 // there are no rooms any more

	// Memory of Pin, Stat and Publish, which are called under the session's lock.
	v       []blocks.View
	at      []int
	refs    []wire.Ref
	look    look
	commits []blocks.Commit
	passes  []fabric.Passage
	seen    []core.Block
}

// newSessionStore makes an owner for a session. All sessions of a peer have one share.
// What the session opened ends with it.
func newSessionStore(st Store, spaces *sessionNamespaces, agent [16]byte, inc uint64) *sessionStore {
	return &sessionStore{st: st, owner: st.NewOwnerFor(spaces.peer, 0), spaces: spaces, agent: agent, inc: inc}
}

// account is who a peer's shares are counted for: what it proved, else where it
// comes from, since it can call itself what it likes.
func (id *identity) account() quota.Holder { return quota.Holder{Kind: quota.Peer, Name: id.who} }

// fill copies what a view tells to b.
func fill(b *core.Block, v *blocks.View) {
	switch {
	case v.Err != nil:
		b.Code = wire.CodeOf(v.Err)
	case v.Seg == 0:
		b.Code = wire.CodeAbsent // known, but its bytes are elsewhere
	default:
		b.NS, b.Key, b.Slot, b.Gen = v.NS, v.Key, v.Ref.Slot, v.Ref.Gen
		b.Head, b.Tier, b.Att = v.Head, v.Tier, v.Att
	}
}

// Stat looks keys up in runs of one namespace. References are pinned for the
// moment, which is the store's way to look at one.
func (s *sessionStore) Stat(b []core.Block) {
	var refs []core.Block
	var at []int
	for i := 0; i < len(b); {
		n := i + 1
		switch {
		case b[i].Code != wire.CodeOK:
		case b[i].Gen != 0:
			refs, at = append(refs, b[i]), append(at, i)
		default:
			for n < len(b) && b[n].Code == wire.CodeOK && b[n].Gen == 0 && b[n].NS == b[i].NS {
				n++
			}
			s.lookup(b[i:n])
		}
		i = n
	}
	if len(refs) == 0 {
		return
	}
	s.Unpin(s.Pin(refs, time.Second))
	for n, i := range at {
		b[i] = refs[n]
		b[i].Body = nil
	}
}

func (s *sessionStore) lookup(b []core.Block) {
	v := s.look.of(s.st, b)
	for i := range b {
		fill(&b[i], &v[i])
	}
	clear(v)
}

// look is the memory of one lookup.
type look struct {
	keys []wire.Key
	v    []blocks.View
}

// of is what the store knows of the keys of b, which are of one namespace, until the
// next call.
func (l *look) of(st Store, b []core.Block) []blocks.View {
	l.keys = l.keys[:0]
	for i := range b {
		l.keys = append(l.keys, b[i].Key)
	}
	l.v = slices.Grow(l.v[:0], len(b))[:len(b)]
	clear(l.v)
	st.Lookup(b[0].NS, l.keys, l.v)
	return l.v
}

// Pin acquires what is there.
func (s *sessionStore) Pin(b []core.Block, ttl time.Duration) core.Lease {
	v, at := s.v[:0], s.at[:0]
	for i := range b {
		if b[i].Code != wire.CodeOK {
			continue
		}
		w := blocks.View{NS: b[i].NS, Key: b[i].Key}
		if b[i].Gen != 0 {
			w.Ref = wire.Ref{Agent: s.agent, Inc: s.inc, Slot: b[i].Slot, Gen: b[i].Gen}
			w.Key = wire.Key{}
		}
		v, at = append(v, w), append(at, i)
	}
	s.v, s.at = v, at
	if len(v) == 0 {
		return core.Lease{}
	}
	defer clear(v)
	l, err := s.st.Acquire(s.owner, v, ttl, false)
	for n, i := range at {
		if err != nil && v[n].Err == nil {
			v[n].Err = err
		}
		fill(&b[i], &v[n])
		if b[i].Code != wire.CodeOK {
			continue
		}
		p := s.st.Payload(v[n])
		if p == nil {
			b[i].Code = wire.CodeAbsent // the store was closed
			continue
		}
		b[i].Body = p[wire.HeaderLen:]
	}
	return core.Lease(l)
}

func (s *sessionStore) Renew(l core.Lease, ttl time.Duration) wire.Code {
	return wire.CodeOf(s.st.Renew(s.owner, blocks.Lease(l), ttl))
}

func (s *sessionStore) Unpin(l core.Lease) {
	if l != (core.Lease{}) {
		s.st.Release(s.owner, blocks.Lease(l))
	}
}

func (s *sessionStore) Pulled(b []core.Block) {
	s.refs = s.refs[:0]
	for i := range b {
		s.refs = append(s.refs, wire.Ref{Agent: s.agent, Inc: s.inc, Slot: b[i].Slot, Gen: b[i].Gen})
	}
	s.st.Pulled(s.refs)
}

// Reserve asks for the whole batch first, and where that does not fit for one
// block after the other, so that a batch fails item by item.
func (s *sessionStore) Reserve(b []core.Block, ttl time.Duration) {
	for i := 0; i < len(b); {
		n := i + 1
		for n < len(b) && b[n].NS == b[i].NS && b[n].Tier == b[i].Tier {
			n++
		}
		s.reserve(b[i:n], ttl)
		i = n
	}
}

func (s *sessionStore) reserve(b []core.Block, ttl time.Duration) {
	s.refuseKnown(b)
	passes := s.admit(b)
	defer s.keep(b, passes)
	var at []int
	var size []uint32
	for i := range b {
		if b[i].Code == wire.CodeOK {
			at, size = append(at, i), append(size, b[i].Head.BodyLen)
		}
	}
	if len(at) == 0 {
		return
	}
	if v, err := s.st.ReserveTier(s.owner, b[0].NS, b[0].Tier, size, ttl); err == nil {
		for n, i := range at {
			s.reserved(&b[i], &v[n])
		}
		return
	}
	for n, i := range at {
		v, err := s.st.ReserveTier(s.owner, b[0].NS, b[0].Tier, size[n:n+1], ttl)
		if err != nil {
			b[i].Code = wire.CodeOf(err)
			continue
		}
		s.reserved(&b[i], &v[0])
	}
}

// Housed asks the gateway as admit does, for blocks that come in one flight.
func (s *sessionStore) Housed(b []core.Block) {
	passes := s.admit(b)
	for i := range b {
		if b[i].Code != wire.CodeOK {
			s.st.Abort(s.owner, []uint32{b[i].Slot})
		}
	}
	s.keep(b, passes)
}

// Stock asks for the whole batch, which is of one namespace and size, and not again
// for less. A probe is one push, with none to follow.
func (s *sessionStore) Stock(b []core.Block, ttl time.Duration) {
	if m, ok := s.spaces.n.Manifest(b[0].NS); !ok || m.Role == probeRole {
		for i := range b {
			b[i].Code = wire.CodeFull
		}
		return
	}
	size := make([]uint32, len(b))
	for i := range b {
		size[i] = b[i].Head.BodyLen
	}
	v, err := s.st.ReserveTier(s.owner, b[0].NS, b[0].Tier, size, ttl)
	for i := range b {
		if err != nil {
			b[i].Code = wire.CodeOf(err)
			continue
		}
		s.reserved(&b[i], &v[i])
	}
}

// refuseKnown marks what is published already.
func (s *sessionStore) refuseKnown(b []core.Block) {
	var l look // the session's lock is not held
	v := l.of(s.st, b)
	for i := range b {
		if b[i].Code == wire.CodeOK && v[i].Err == nil && v[i].Seg != 0 {
			b[i].Code, b[i].Slot, b[i].Gen = wire.CodeExists, v[i].Ref.Slot, v[i].Ref.Gen
		}
	}
}

func (s *sessionStore) reserved(b *core.Block, v *blocks.View) {
	room := s.st.Room(*v)
	if room == nil {
		b.Code = wire.CodeInternal // the store was closed, or the owner dropped
		return
	}
	b.Slot, b.Gen = v.Ref.Slot, v.Ref.Gen
	b.Body = room[wire.HeaderLen:][:b.Head.BodyLen]
}

// Publish commits. The slot's generation changes with it, so the reference that
// the pusher gets is looked up afterwards. A block of a probe is for its pusher to
// pull back, and for nobody else: it is gone afterwards, and has no reference.
func (s *sessionStore) Publish(b []core.Block) {
	c, passes, probe := s.commits[:0], s.passes[:0], false
	for i := range b {
		if i == 0 || b[i].NS != b[i-1].NS {
			m, _ := s.spaces.n.Manifest(b[i].NS)
			probe = m.Role == probeRole
		}
		if b[i].Code != wire.CodeOK {
			continue
		}
		pass, err := s.admitted(&b[i]), error(nil)
		if pass == nil { // it came in one flight
			pass, err = s.bridge.bring(&b[i], probe)
		}
		if err != nil {
			s.st.Abort(s.owner, []uint32{b[i].Slot})
			b[i].Code = wire.CodeOf(err)
			continue
		}
		passes = append(passes, pass)
		c = append(c, blocks.Commit{
			Transient: probe,
			Slot:      b[i].Slot, Gen: b[i].Gen, NS: b[i].NS, Key: b[i].Key, Tier: b[i].Tier, Head: &b[i].Head, Att: b[i].Att, Proof: b[i].Proof,
		})
	}
	s.commits, s.passes = c, passes
	s.passOn(b)
	if len(c) == 0 {
		return
	}
	defer clear(c)
	defer clear(passes)
	s.st.Commit(s.owner, c)
	seen := s.seen[:0]
	for i := range c {
		code := wire.CodeOf(c[i].Err)
		if code == wire.CodeExists { // it came meanwhile
			code = wire.CodeOK
		}
		seen = append(seen, core.Block{NS: c[i].NS, Key: c[i].Key, Code: code})
	}
	s.seen = seen
	s.Stat(seen)
	n := 0
	for i := range b {
		if b[i].Code != wire.CodeOK {
			continue
		}
		if b[i].Code = wire.CodeOf(c[n].Err); b[i].Code == wire.CodeOK || b[i].Code == wire.CodeExists {
			b[i].Slot, b[i].Gen = seen[n].Slot, seen[n].Gen
		}
		n++
	}
	for i, pass := range passes {
		pass.End(c[i].Err)
	}
}

// passOn has blocks go on that were here already. A twin of one that is to be published
// goes on with it.
func (s *sessionStore) passOn(b []core.Block) {
	for i := range b {
		if b[i].Code != wire.CodeExists {
			continue
		}
		m, _ := s.spaces.n.Manifest(b[i].NS)
		if pass, err := s.bridge.bring(&b[i], m.Role == probeRole); err == nil {
			pass.End(wire.CodeExists)
		}
	}
}

// Abort frees reserved slots.
func (s *sessionStore) Abort(b []core.Block) {
	slots := make([]uint32, 0, len(b))
	for i := range b {
		if b[i].Code == wire.CodeOK {
			slots = append(slots, b[i].Slot)
		}
	}
	if len(slots) > 0 {
		s.st.Abort(s.owner, slots)
	}
	for i := range b {
		if b[i].Code != wire.CodeOK {
			continue
		}
		if pass := s.admitted(&b[i]); pass != nil {
			pass.End(wire.CodeCancelled)
		}
	}
}

// Drop frees all that the session held.
func (s *sessionStore) Drop() {
	s.st.Drop(s.owner)
	s.spaces.close()
	s.rooming.Lock()
	rooms := s.rooms
	s.rooms, s.dropped = nil, true
	s.rooming.Unlock()
	for _, r := range rooms {
		r.pass.End(wire.CodeCancelled)
	}
}
