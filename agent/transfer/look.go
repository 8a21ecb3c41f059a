package transfer

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/wire"
)

// A peer that asks for a block which is not here gets what other fabrics have, where the
// routes for what it brings allow to go there. The block is loaded into the arena, as for
// an engine, and checked; then the peer's own fabric answers from there.
//
// The fabric's peer that asks is never asked, and a question that a daemon has passed on
// is not passed on again: so no two daemons wait for each other.
//
// What is loaded counts for the asker's share of the arena (quota.peer_arena_share) as long
// as it comes, with what it pushes, and moves away no block above ThinkComplete.
const (
	looksAtATime = 16 // of all peers
	looksOfPeer  = 4
	lookOwners   = 256 // askers with a share of their own; the others have one together
)

// looks are the questions of peers that are being passed on.
type looks struct {
	mu  sync.Mutex
	all int
	of  map[string]int          // by registry name of the peer
	own map[string]blocks.Owner // by the peer's name

	asked, found atomic.Uint64 // blocks
}

// Looks implements fabric.Gateway.
func (m *Mover) Looks(by fabric.Hop) bool { return m.cfg.Routes.Bridges(by.Fabric) && by.Hops == 0 }

// Look implements fabric.Gateway.
func (m *Mover) Look(ctx context.Context, by fabric.Hop, ns wire.Namespace, keys []wire.Key) {
	if !m.Looks(by) || len(keys) == 0 {
		return
	}
	among := m.among(by, ns)
	if len(among) == 0 {
		return
	}
	l := &m.looks
	owner := m.lookOwner(by)
	if owner == 0 || !l.begin(by.Name()) {
		m.cfg.Observer.Refused(wire.CodeBusy)
		return
	}
	defer l.end(by.Name())
	ctx, cancel := context.WithTimeout(fabric.WithHops(fabric.WithClass(ctx, fabric.ClassSoon), 1), m.cfg.LookWithin)
	defer cancel()
	errs := m.Fetch(ctx, Job{NS: ns, Keys: keys, Among: among, For: owner})
	l.asked.Add(uint64(len(keys)))
	for _, err := range errs {
		if err == nil {
			l.found.Add(1)
		}
		m.cfg.Observer.Looked(by.Fabric, wire.CodeOf(err))
	}
}

// lookOwner is who a peer's questions count for: the holder that its pushes count for. One
// that was made stays, since a pull may end late.
func (m *Mover) lookOwner(by fabric.Hop) blocks.Owner {
	name := cmp.Or(by.Peer, by.Fabric)
	l := &m.looks
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own == nil {
		l.own = map[string]blocks.Owner{}
	}
	if _, known := l.own[name]; !known && len(l.own) >= lookOwners {
		name = "" // of no peer
	}
	o, known := l.own[name]
	if !known || o == 0 {
		o = m.cfg.Store.NewOwnerFor(quota.Holder{Kind: quota.Peer, Name: cmp.Or(name, "others")}, 0)
		l.own[name] = o
	}
	return o
}

// among are the holders that may be asked for a peer.
func (m *Mover) among(by fabric.Hop, ns wire.Namespace) (out []string) {
	allowed := m.cfg.Routes.Lookups(by, ns)
	all, _ := m.holders(ns)
	for _, h := range all {
		of := family(h.name)
		if h.name == by.Name() || h.name == by.Fabric { // the whole fabric has what the asker has
			continue
		}
		if allowed[h.name] || allowed[of] {
			out = append(out, h.name)
		}
	}
	return out
}

// scope names a set of holders: loads over different ones are not shared.
func (j *Job) scope() string {
	switch {
	case j.Alone:
		return j.First
	case j.First != "":
		return "first " + j.First
	}
	return strings.Join(j.Among, " ")
}

func (l *looks) begin(who string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= looksAtATime || l.of[who] >= looksOfPeer {
		return false
	}
	if l.of == nil {
		l.of = map[string]int{}
	}
	l.all++
	l.of[who]++
	return true
}

func (l *looks) end(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[who]--; l.of[who] == 0 {
		delete(l.of, who)
	}
}
