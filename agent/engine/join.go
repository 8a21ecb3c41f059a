package engine

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"

	"meridian/blocks/quota"
	"meridian/wire"
	"meridian/wire/link"
)

// groupName tells groups apart: a session of another user is never of one's group.
type groupName struct {
	uid   uint32
	agent [16]byte
	inc   uint64
}

func (n groupName) String() string {
	return fmt.Sprintf("%x/%d of user %d", n.agent, n.inc, n.uid)
}

// offer is what a HELLO says of the group's secret.
type offer struct {
	asks   bool   // for a new one
	secret []byte // that the engine has; nil: none
}

// offerOf reads the element that carries the secret.
func offerOf(h *link.Hello) (o offer, err error) {
	seen := false
	for i := range h.Auth {
		e := &h.Auth[i]
		switch {
		case e.Type != link.AuthGroup:
			continue
		case seen:
			return o, fmt.Errorf("the group's secret is given twice: %w", wire.CodeAuth)
		case len(e.Value) == 0:
			o.asks = true
		case len(e.Value) == link.GroupSecret:
			o.secret = bytes.Clone(e.Value) // it aliases the message
		default:
			return o, fmt.Errorf("a group's secret of %d bytes, it has 0 or %d: %w", len(e.Value), link.GroupSecret, wire.CodeAuth)
		}
		seen = true
	}
	return o, nil
}

// joinNamed makes a session a member of the group that its HELLO names, and makes
// that group where it is the first. The result is the element that tells the engine
// a new secret.
func (s *session) joinNamed(h *link.Hello) ([]link.TLV, error) {
	if h.Agent == [16]byte{} || h.Inc == 0 {
		return nil, fmt.Errorf("a HELLO with feature GROUP needs an agent and an incarnation that are not zero: %w", wire.CodeAuth)
	}
	o, err := offerOf(h)
	if err != nil {
		return nil, err
	}
	srv, name := s.srv, groupName{s.uid, h.Agent, h.Inc}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	g := srv.named[name]
	if g == nil {
		return s.foundGroup(name, o)
	}
	members := *g.members.Load()
	switch most := srv.cfg.Limits.GroupSessions; {
	case o.asks:
		err = fmt.Errorf("engine %s runs already, a secret is made by its first session only: %w", name, wire.CodeAuth)
	case (g.secret == nil) != (o.secret == nil), subtle.ConstantTimeCompare(g.secret, o.secret) != 1:
		err = fmt.Errorf("engine %s runs already, and this is not its secret: %w", name, wire.CodeAuth)
	case len(members) >= most:
		err = fmt.Errorf("engine %s has %d sessions, the limit engine.max_group_sessions is %d: %w", name, len(members), most, wire.CodeTooMany)
	}
	if err != nil {
		return nil, err
	}
	if s.owner = srv.cfg.Store.NewMember(g.owner, s.pid); s.owner == 0 {
		return nil, errNoOwner
	}
	s.place.leave() // its group has one
	srv.addMember(s, g)
	return nil, nil
}

// foundGroup makes a group with s as its first member. srv.mu is held.
func (s *session) foundGroup(name groupName, o offer) (auth []link.TLV, err error) {
	srv := s.srv
	if err := srv.full(); err != nil {
		return nil, err
	}
	g := newGroup(srv, quota.Holder{Kind: quota.Engine, Name: name.String()})
	g.name, g.secret, g.place = name, o.secret, s.place
	if g.owner = srv.cfg.Store.NewOwnerFor(g.account, 0); g.owner == 0 {
		return nil, errNoOwner
	}
	if s.owner = srv.cfg.Store.NewMember(g.owner, s.pid); s.owner == 0 {
		srv.cfg.Store.Drop(g.owner)
		return nil, errNoOwner
	}
	if o.asks {
		g.secret = make([]byte, link.GroupSecret)
		_, _ = rand.Read(g.secret) // never fails
		auth = []link.TLV{{Type: link.AuthGroup, Value: g.secret}}
	}
	srv.named[name] = g
	srv.addMember(s, g)
	return auth, nil
}

// joinAlone makes the group of a session that shares nothing.
func (s *session) joinAlone() error {
	g := newGroup(s.srv, accountOf(s.pid))
	if s.owner = s.srv.cfg.Store.NewOwnerFor(g.account, s.pid); s.owner == 0 {
		return errNoOwner
	}
	g.owner, g.place = s.owner, s.place
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	if err := s.srv.full(); err != nil {
		s.srv.cfg.Store.Drop(s.owner)
		return err
	}
	s.srv.addMember(s, g)
	return nil
}

// addMember is the last step of joining. mu is held.
func (s *Server) addMember(ss *session, g *group) {
	members := append(slices.Clone(*g.members.Load()), ss)
	g.members.Store(&members)
	s.groups[g] = struct{}{}
	ss.group = g
	g.place.group.Store(g)
	if g.place.evicted.Load() != nil { // evict may have looked before this one was a member
		g.place.shutdown()
	}
}

// join makes the session a member of its group, as its HELLO says.
func (s *session) join(h *link.Hello) (auth []link.TLV, err error) {
	if h.Features&link.FeatureGroup != 0 {
		s.grouped = true
		auth, err = s.joinNamed(h)
	} else {
		err = s.joinAlone()
	}
	if err == nil {
		s.srv.cfg.Store.SetUser(s.owner, userHolder(s.uid))
		s.watchPeer()
	}
	var fe *link.FrameError
	if err != nil && !errors.As(err, &fe) {
		err = s.wrong(wire.CodeOf(err), words(err))
	}
	return auth, err
}

// dispatchGrouped handles a request of a type that only sessions with GROUP speak.
func (s *session) dispatchGrouped(f link.Frame, p []byte) error {
	switch f.Type {
	case link.TypePutAt:
		return s.putAt(f, p)
	case link.TypeReserve:
		return s.reserveRoom(f, p)
	case link.TypeFill:
		return s.fill(f, p)
	case link.TypeResume:
		return s.resume(f, p)
	case link.TypeHandoff:
		return s.handoff(f, p)
	case link.TypeLoad:
		return s.load(f, p)
	case link.TypeProcess:
		return s.process(f, p)
	case link.TypeLoaded, link.TypeReserved, link.TypePhaseAt, link.TypeEvicted:
		return s.wrong(wire.CodeState, f.Type.String()+" does not come from an engine")
	}
	return s.unsupported(f)
}
