package engine

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/wire"
)

// space is an open namespace.
type space struct {
	ns     wire.Namespace
	tenant [32]byte
	name   string // of the tenant
	body   uint32 // of a full block
}

// group is one engine: what its sessions have together. A session belongs to one
// group from HELLO to its end, and a group ends with its last session.
//
// The group has the namespaces and their numbers, the timed leases, the generation
// requests and the share of every quota. A session has its socket, its staging
// ring, its hold leases, its reservations and what it has in flight.
type group struct {
	srv     *Server
	account quota.Holder // whose share everything of the group counts against
	owner   blocks.Owner // of timed leases, and of blocks that were fetched for them
	life    *life

	members atomic.Pointer[[]*session] // changed under srv.mu, never in place
	seated  bool                       // it has opened a namespace, and counts as an engine; under srv.mu

	opening sync.Mutex              // one OPEN at a time
	open    atomic.Pointer[[]space] // by number; changed under opening, and only appended to
	closes  []func()                // end the group's use of its namespaces; under opening
}

func newGroup(srv *Server, account quota.Holder) *group {
	g := &group{srv: srv, account: account}
	g.members.Store(new([]*session))
	g.open.Store(new([]space))
	g.life = newLife(g)
	return g
}

// spaces are the namespaces that are open, by number. What the result shows does
// not change.
func (g *group) spaces() []space { return *g.open.Load() }

// alone makes the group of a session that has no other.
func (s *session) alone() {
	g := newGroup(s.srv, processAccount(s.pid))
	g.owner = s.owner
	s.srv.join(s, g)
}

// processAccount is the share of a process. Processes of other PID namespaces cannot
// be told apart, and have one share together.
func processAccount(pid int) quota.Holder {
	if pid == 0 {
		return quota.Holder{Kind: quota.Engine, Name: "in another PID namespace"}
	}
	return quota.Holder{Kind: quota.Engine, Name: "process " + strconv.Itoa(pid)}
}

// join makes a session a member.
func (s *Server) join(ss *session, g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	members := append(slices.Clone(*g.members.Load()), ss)
	g.members.Store(&members)
	s.groups[g] = struct{}{}
	ss.group = g
}

// leave takes a session out of its group, and ends the group with the last one.
// What the session had in flight has ended.
func (s *Server) leave(ss *session) {
	g := ss.group
	if g == nil {
		s.cfg.Store.Drop(ss.owner)
		return
	}
	s.mu.Lock()
	members := slices.DeleteFunc(slices.Clone(*g.members.Load()), func(m *session) bool { return m == ss })
	g.members.Store(&members)
	s.mu.Unlock()
	if len(members) > 0 {
		s.cfg.Store.Drop(ss.owner)
		return
	}
	g.end(ss.owner)
	st := g.life.stats()
	clear(st.Phases[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, g)
	if g.seated {
		s.seated--
	}
	s.gone.Add(&st)
}

// end gives back what the group has, and what its last session has.
func (g *group) end(last blocks.Owner) {
	g.life.close()
	g.srv.cfg.Store.Drop(last)
	if g.owner != last {
		g.srv.cfg.Store.Drop(g.owner)
	}
	g.opening.Lock()
	defer g.opening.Unlock()
	for _, done := range g.closes {
		done()
	}
	g.closes = nil
}

// flush writes out what waits for every session.
func (g *group) flush() {
	for _, m := range *g.members.Load() {
		m.flush()
	}
}
