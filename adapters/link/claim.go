package link

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"meridian/blocks/quota"
	"meridian/wire"
	proto "meridian/wire/link"
)

// instance is one run of one daemon.
type instance struct {
	agent [16]byte
	inc   uint64
}

func (id *identity) instance() instance { return instance{id.agent, id.inc} }

// same says whether two identities are of one peer: a session is its own only.
func (id *identity) same(o *identity) bool { return id.who == o.who && id.agent == o.agent }

// displaced is an instance whose sessions were dropped for those of another one
// of the same name. Incarnations are new at each start, so one that comes back
// shows that two daemons live.
type displaced struct {
	instance
	at time.Duration
}

// Duplicate is two live daemons that share a name or an agent id: most likely a
// state folder or a configuration was copied. The newer one of a name keeps it.
// An agent id may stand under several names, whose sessions have nothing to do
// with each other.
type Duplicate struct {
	Name, OtherName string   // of the later one, and of the one that was connected before
	Agent, Other    [16]byte // their ids
	Addr, OtherAddr string   // where they are
	Seen            int      // refusals of the later one; 0: both are connected
	last            time.Duration
}

// Text names both and what to do.
func (d *Duplicate) Text() string {
	switch {
	case d.Seen == 0:
		return fmt.Sprintf("two peers give agent id %x: %s at %s and %s at %s; each is served by its own name", d.Agent, d.OtherName, d.OtherAddr, d.Name, d.Addr)
	case d.Name == d.OtherName && d.Agent == d.Other:
		return fmt.Sprintf("two live daemons are named %s and have agent id %x: one at %s is connected, one at %s is refused", d.Name, d.Agent, d.OtherAddr, d.Addr)
	case d.Name == d.OtherName:
		return fmt.Sprintf("two live daemons are named %s: one at %s is connected, one at %s is refused", d.Name, d.OtherAddr, d.Addr)
	}
	return fmt.Sprintf("two live daemons have agent id %x: %s at %s is connected, %s at %s is refused", d.Agent, d.OtherName, d.OtherAddr, d.Name, d.Addr)
}

// claim decides whether a proven identity may have sessions now. Nothing has been
// changed when it may not. Otherwise it returns the sessions that must go: those
// of another instance with the same name. The caller holds n.mu.
func (n *Node) claim(id *identity, from string) ([]*session, error) {
	var older []*session
	for _, s := range n.sessions {
		switch {
		case s.peer.key() == id.key():
			if s.peer.instance() != id.instance() {
				older = append(older, s)
			}
		case s.peer.agent == id.agent:
			n.sharedID(id, from, &s.peer, s.addr)
		}
	}
	if len(older) == 0 {
		return nil, nil
	}
	past := n.past[id.key()]
	if slices.ContainsFunc(past, func(d displaced) bool { return d.instance == id.instance() }) {
		d := n.duplicate(id, from, &older[0].peer, older[0].addr)
		d.Seen++
		return nil, fmt.Errorf("%s: %w", d.Text(), wire.CodeIncarnation)
	}
	return older, nil
}

// displace remembers the instances of sessions that go for those of another one.
// The caller holds n.mu.
func (n *Node) displace(id *identity, older []*session) {
	for _, s := range older {
		if i := s.peer.instance(); i != id.instance() {
			n.remember(id.key(), i)
		}
	}
}

func (n *Node) remember(key string, i instance) {
	past := n.past[key]
	if slices.ContainsFunc(past, func(d displaced) bool { return d.instance == i }) {
		return
	}
	if len(past) == maxDisplaced {
		past = slices.Delete(past, 0, 1)
	}
	if past == nil && len(n.past) >= maxPast+len(n.peers()) {
		var oldest string
		for k, v := range n.past {
			if oldest == "" || v[len(v)-1].at < n.past[oldest][len(n.past[oldest])-1].at {
				oldest = k
			}
		}
		delete(n.past, oldest)
	}
	n.past[key] = append(past, displaced{i, n.cfg.Clock()})
}

// sharedID takes down that two names give one agent id. The caller holds n.mu.
func (n *Node) sharedID(a *identity, addr string, b *identity, other string) {
	if b.key() > a.key() {
		a, addr, b, other = b, other, a, addr
	}
	n.duplicate(a, addr, b, other)
}

// duplicate takes down that two daemons share something. The caller holds n.mu.
func (n *Node) duplicate(id *identity, from string, other *identity, otherAddr string) *Duplicate {
	now := n.cfg.Clock()
	i := slices.IndexFunc(n.twins, func(d *Duplicate) bool { return d.Name == id.name && d.OtherName == other.name && d.Agent == id.agent })
	if i < 0 {
		if len(n.twins) == maxDuplicates {
			n.twins = slices.Delete(n.twins, 0, 1)
		}
		n.twins = append(n.twins, &Duplicate{Name: id.name, OtherName: other.name, Agent: id.agent})
		i = len(n.twins) - 1
	}
	d := n.twins[i]
	d.Other, d.Addr, d.OtherAddr, d.last = other.agent, from, otherAddr, now
	return d
}

// Duplicates are those of the last minute, and those that are connected.
func (n *Node) Duplicates() []Duplicate {
	n.mu.Lock()
	defer n.mu.Unlock()
	first := map[[16]byte]*session{}
	for _, s := range n.sessions {
		switch o := first[s.peer.agent]; {
		case o == nil:
			first[s.peer.agent] = s
		case o.peer.key() != s.peer.key():
			n.sharedID(&s.peer, s.addr, &o.peer, o.addr)
		}
	}
	var out []Duplicate
	for _, d := range n.twins {
		if n.cfg.Clock()-d.last < newsFor {
			out = append(out, *d)
		}
	}
	slices.SortFunc(out, func(a, b Duplicate) int {
		return cmp.Or(cmp.Compare(a.OtherName, b.OtherName), cmp.Compare(a.Name, b.Name), bytes.Compare(a.Agent[:], b.Agent[:]))
	})
	return out
}

// admit finds the session that a proven lane belongs to, or begins one. All of it
// is decided before anything changes.
func (n *Node) admit(h *hello, p *Peer, id identity, m *proto.Hello) (*session, error) {
	n.mu.Lock()
	s := n.sessions[m.Session]
	fail := func(err error) (*session, error) {
		n.mu.Unlock()
		return nil, err
	}
	switch {
	case n.closed || n.draining:
		return fail(fmt.Errorf("this agent is leaving: %w", wire.CodeDraining))
	case s != nil && (s.dialled || !s.peer.same(&id) || s.peer.inc != id.inc):
		return fail(fmt.Errorf("the session is another peer's: %w", wire.CodeAuth))
	case s == nil && m.Lane != 0:
		return fail(fmt.Errorf("the session is gone: %w", wire.CodeState))
	case s != nil && s.leaves():
		return fail(fmt.Errorf("the session is to end: %w", wire.CodeDraining))
	}
	if err := n.still(h, p, &id); err != nil {
		return fail(err)
	}
	older, err := n.claim(&id, h.addr)
	if err != nil {
		return fail(err)
	}
	if s == nil {
		share, spare, err := n.roomFor(&id, older)
		if err != nil {
			return fail(err)
		}
		if spare != nil {
			older = append(older, spare)
		}
		s = n.newSession(p, m.Session, id, h.via, h.addr, false, m)
		s.share = share
		n.sessions[s.id] = s
		p.addSession(s)
	}
	n.displace(&id, older)
	n.mu.Unlock()
	n.replace(&id, older)
	return s, nil
}

// replace drops sessions that make room for a peer's new one.
func (n *Node) replace(id *identity, older []*session) {
	for _, s := range older {
		code := wire.CodeTooMany
		if s.peer.instance() != id.instance() {
			code = wire.CodeIncarnation
			n.cfg.Log.Info("link peer restarted", "peer", id.name, "was", s.peer.inc, "is", id.inc)
			n.cfg.Observer.PeerState(id.name, StateConnecting, code)
		}
		s.drop(code)
	}
}

// roomFor takes a peer's share for one more accepted session, in exchange for those of
// the older ones. Where it has all that it may have, one that has lost its lane 0 and only
// lingers goes for it too, and the caller drops it. Where that is not enough all keep what
// they have. Peers on no list are counted together too, by where they come from. The
// caller holds n.mu.
func (n *Node) roomFor(id *identity, older []*session) (share *quota.Hold, spare *session, err error) {
	for _, s := range n.sessions {
		if s.dialled || s.peer.key() != id.key() || s.peer.instance() != id.instance() {
			continue
		}
		s.mu.Lock()
		if s.lingers && s.core.Lane(0) == nil {
			spare = s
		}
		s.mu.Unlock()
	}
	who := []quota.Holder{{Kind: quota.Peer, Name: id.key()}}
	if !id.listed {
		who = append(who, quota.Holder{Kind: quota.Source, Name: id.who})
	}
	var old []*quota.Hold
	for _, s := range older {
		old = append(old, s.share)
	}
	if share, err = n.cfg.Quota.Exchange(old, quota.Sessions, 1, who...); err == nil || spare == nil {
		return share, nil, err
	}
	share, err = n.cfg.Quota.Exchange(append(old, spare.share), quota.Sessions, 1, who...)
	return share, spare, err
}
