package engine

import (
	"cmp"
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
	body   uint32 // of a full block, in bytes
	tokens uint32 // of a full block
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
	name    groupName   // zero: of a session that shares nothing
	secret  []byte      // nil: none
	place   *place      // of its first session, until the group is seated
	seat    *quota.Hold // of the engines that the process, and the user, may have; under srv.mu
	parking parking

	members atomic.Pointer[[]*session] // changed under srv.mu, never in place
	seated  atomic.Bool                // it has opened a namespace, and counts as an engine; changed under srv.mu

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

// accountOf is the share of an engine that is of no group: the share of a process. Processes of other PID namespaces cannot
// be told apart, and have one share together.
func accountOf(pid int) quota.Holder {
	if pid == 0 {
		return quota.Holder{Kind: quota.Engine, Name: "in another PID namespace"}
	}
	return quota.Holder{Kind: quota.Engine, Name: "process " + strconv.Itoa(pid)}
}

// leave takes a session out of its group, and ends the group with the last one.
// What the session had in flight has ended.
func (s *Server) leave(ss *session) {
	g := ss.group
	if g == nil {
		ss.place.leave()
		return
	}
	s.mu.Lock()
	members := slices.DeleteFunc(slices.Clone(*g.members.Load()), func(m *session) bool { return m == ss })
	g.members.Store(&members)
	last := len(members) == 0
	if last && s.named[g.name] == g {
		delete(s.named, g.name) // who comes now makes a group of its own
	}
	s.mu.Unlock()
	if !last {
		s.cfg.Store.Drop(ss.owner)
		return
	}
	g.end(ss.owner)
	s.forget(g)
}

// end gives back what the last session of a group has, and what all had together.
func (g *group) end(last blocks.Owner) {
	g.place.leave()
	g.life.close()
	g.srv.cfg.Store.Drop(last)
	g.srv.cfg.Store.Drop(g.owner)
	g.opening.Lock()
	defer g.opening.Unlock()
	for _, done := range g.closes {
		done()
	}
	g.closes = nil
}

// forget takes a group that has ended out, with its counts.
func (s *Server) forget(g *group) {
	st := g.life.stats()
	clear(st.Phases[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, g)
	g.seat.Give()
	if g.seated.Load() {
		s.seated--
	}
	s.gone.Add(&st)
}

// Usage is what one engine has.
type Usage struct {
	Name       string // agent and incarnation of a group, or the process
	Sessions   int
	Namespaces int
	Requests   uint64 // generation requests that are followed
}

// Engines says what each engine has that is connected now, by name.
func (s *Server) Engines() []Usage {
	s.mu.Lock()
	all := make([]Usage, 0, len(s.groups))
	for g := range s.groups {
		st := g.life.stats()
		all = append(all, Usage{g.account.Name, len(*g.members.Load()), len(g.spaces()), st.Tracked()})
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b Usage) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
