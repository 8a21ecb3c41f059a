package link

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"sync/atomic"

	"meridian/wire"
)

// A call asks for each block which peers can take it, of up to thousands that are
// listed. So nothing walks the list: a session says by a flag whether it takes
// calls, a peer has its own sessions, and a node the peers that can be called.
//
//	session.takes   stored at the end of each visit to the core
//	Peer.sessions   replaced when a session begins or ends
//	Node.callable   replaced when the session changes that a peer's calls go over
//
// callable may still have a peer that cannot be called any more; its users look. A
// call itself asks the session under its lock.

// callable is the peers that can be called. It never changes but for what byTenant
// remembers.
type callable struct {
	peers    []*Peer
	byDigest map[[16]byte]*Peer                 // by the digest of the session
	byAgent  map[[16]byte][]*Peer               // by the id that the session proved; two peers may share one by mistake
	byTenant atomic.Pointer[map[string][]*Peer] // those that proved it, of the tenants that were asked for; each map never changes
}

// of are the peers that proved a tenant.
func (c *callable) of(tenant string) []*Peer {
	known := c.byTenant.Load()
	if known != nil {
		if peers, ok := (*known)[tenant]; ok {
			return peers
		}
	}
	proved := slices.DeleteFunc(slices.Clone(c.peers), func(p *Peer) bool { return !p.proved(tenant) })
	more := map[string][]*Peer{tenant: proved}
	if known != nil {
		maps.Copy(more, *known)
	}
	c.byTenant.CompareAndSwap(known, &more) // who loses works it out again next time
	return proved
}

// proved says whether the peer can be called for a tenant.
func (p *Peer) proved(tenant string) bool {
	s := p.use()
	return s != nil && s.peer.tenants.Has(tenant)
}

// use is the session that calls will most likely go over; nil where there is none.
func (p *Peer) use() *session {
	return p.choose(func(s *session) bool { return s.takes.Load() })
}

// choose takes the youngest session that this side dialled, or else the youngest that
// the peer did, of those that are good.
func (p *Peer) choose(good func(*session) bool) (best *session) {
	if p.closed.Load() {
		return nil
	}
	for _, s := range *p.sessions.Load() {
		if good(s) && (best == nil || s.dialled || !best.dialled) {
			best = s
		}
	}
	return best
}

// addSession and dropSession keep the peer's list of sessions, the oldest first. The
// caller holds n.mu.
func (p *Peer) addSession(s *session) {
	all := append(slices.Clone(*p.sessions.Load()), s)
	p.sessions.Store(&all)
}

func (p *Peer) dropSession(s *session) {
	rest := slices.DeleteFunc(slices.Clone(*p.sessions.Load()), func(o *session) bool { return o == s })
	p.sessions.Store(&rest)
}

// recount works out which peers can be called, where that changed for p; nil: for
// any.
func (n *Node) recount(p *Peer) {
	n.counting.Lock()
	defer n.counting.Unlock()
	if p != nil && p.use() == p.shown {
		return
	}
	c := &callable{byDigest: map[[16]byte]*Peer{}, byAgent: map[[16]byte][]*Peer{}}
	for _, p := range n.peers() {
		s := p.use()
		if p.shown = s; s != nil {
			c.peers = append(c.peers, p)
			c.byDigest[s.digest] = p
			c.byAgent[s.peer.agent] = append(c.byAgent[s.peer.agent], p)
		}
	}
	n.callable.Store(c)
}

// homeOf is a peer's place among those that a key may have its home at.
func homeOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// score orders peers for a key: by the finalizer of SplitMix64 (Steele, Lea, Flood,
// 2014) over both hashes.
func score(home uint64, key wire.Key) uint64 {
	x := home ^ binary.LittleEndian.Uint64(key[:])
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
