package engine

import (
	"errors"
	"fmt"
	"slices"

	"meridian/blocks/quota"
	"meridian/wire"
	"meridian/wire/link"
)

// open answers OPEN. The tenant's segments are announced before OPENED, so that an
// engine can acquire as soon as it has that.
func (s *session) open(f link.Frame, p []byte) error {
	var x link.Open
	if err := s.parse(&x, p); err != nil {
		return err
	}
	if s.srv.draining.Load() {
		s.answerEnd(f.Req, refusal(errLeaving))
		return nil
	}
	num, err := s.openManifest(x.Manifest)
	if _, over := errors.AsType[*link.FrameError](err); over {
		return err
	}
	answer, end := link.Opened{NS: num, Status: wire.CodeOf(err)}, refusal(err)
	var ge *wire.GeometryError
	if errors.As(err, &ge) {
		answer.Field, answer.Ours, answer.Theirs = ge.Field, ge.Ours, ge.Theirs
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err == nil {
		ring := !s.asks && s.ringSent < uint64(len(s.ring))
		end = s.unmapped(s.announce(s.srv.cfg.Store.Segments(s.group.spaces()[num].tenant), ring, 0))
		answer.Status = end.Code
	} else {
		s.log.Info("namespace refused", "err", err)
	}
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeOpened, Req: f.Req}, answer)
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeEnd, Req: f.Req}, end)
	return nil
}

// openManifest returns the group's number of a manifest's namespace. A *link.FrameError
// ends the session: as many engines as may be have opened one.
func (s *session) openManifest(b []byte) (uint16, error) {
	m, err := wire.ParseManifest(b)
	if err != nil {
		return 0, err
	}
	// Before anything else is looked at: of a tenant that may not be here the engine
	// learns nothing but that.
	if !(*s.srv.tenants.Load())[m.Tenant] {
		return 0, fmt.Errorf("the manifest's tenant is not in security.tenants: %w", wire.CodeNSUnknown)
	}
	g := s.group
	g.opening.Lock()
	defer g.opening.Unlock()
	spaces := g.spaces()
	if i := slices.IndexFunc(spaces, func(sp space) bool { return sp.ns == m.Namespace() }); i >= 0 {
		return uint16(i), s.stageEarly(spaces)
	}
	if most := s.srv.cfg.Limits.Namespaces; len(spaces) >= most {
		return 0, fmt.Errorf("%d namespaces are open, the limit of an engine is %d: %w", len(spaces), most, wire.CodeTooMany)
	}
	hold, err := s.srv.cfg.Quota.Take(quota.Namespaces, 1, s.sharers()...)
	if err != nil {
		return 0, err
	}
	ns, closed, err := s.srv.cfg.Host.OpenNamespace(g.account, m)
	if err != nil {
		hold.Give()
		return 0, err
	}
	done := func() { closed(); hold.Give() }
	spaces = append(slices.Clip(spaces), space{ns: ns, tenant: m.TenantID(), name: m.Tenant, body: m.BlockBytes, tokens: m.BlockTokens})
	if err = s.stageEarly(spaces); err == nil {
		err = g.takeSeat(s)
	}
	if err != nil {
		done()
		return 0, err
	}
	g.closes = append(g.closes, done)
	g.open.Store(&spaces)
	return uint16(len(spaces) - 1), nil
}

// stageEarly makes the ring of an engine that does not ask for it, and so gets it
// with the first namespace.
func (s *session) stageEarly(spaces []space) error {
	if s.asks {
		return nil
	}
	return s.stage(0, spaces)
}

// ringsOfAGroup is what part of the bytes that are left for staging rings one of a
// group's rings gets beyond what it needs: an engine may have a session for each of
// eight ranks, and another engine may come.
const ringsOfAGroup = 16

// stage sees to a staging ring that holds size bytes and a full block of each
// namespace, as far as the limit allows: it makes one, or makes the one that is
// there larger. Where it cannot, nothing has changed.
func (s *session) stage(size uint64, spaces []space) error {
	limit := s.srv.cfg.Limits.StagingBytes
	if size > uint64(limit) {
		return fmt.Errorf("a staging ring of %d bytes, the limit engine.staging_bytes is %d: %w", size, limit, wire.CodeTooLarge)
	}
	least := max(int(size), 1)
	who := append([]quota.Holder{s.group.account}, s.users()...)
	for i := range spaces {
		least = max(least, int(min(uint64(spaces[i].body), uint64(limit))))
		if h := (quota.Holder{Kind: quota.Tenant, Name: spaces[i].name}); !slices.Contains(who, h) {
			who = append(who, h)
		}
	}
	if least <= len(s.ring) {
		return nil
	}
	most := limit
	if s.grouped { // the others will want rings too
		most = max(least, min(limit, int(s.srv.cfg.Store.StagingLeft(who...)/ringsOfAGroup)))
	}
	b, err := s.srv.cfg.Store.Staging(s.owner, least, most, who...)
	if err != nil {
		return err
	}
	s.ring = b
	return nil
}

// remap answers a MAP request: with the staging ring where the engine asks for it,
// else with everything again, for an engine that lost it.
func (s *session) remap(f link.Frame, p []byte) error {
	var x link.Map
	if err := s.parse(&x, p); err != nil {
		return err
	}
	if s.asks && len(x.Segs) == 1 && x.Segs[0].Kind == link.SegStaging {
		s.answerRing(f.Req, x.Segs[0].Size)
		return nil
	}
	if len(x.Segs) > 0 {
		return s.wrong(wire.CodeState, "an engine announces no segments")
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	clear(s.mapped)
	err := s.announce(nil, s.ring != nil, f.Req)
	spaces := s.group.spaces()
	for i := 0; i < len(spaces) && err == nil; i++ {
		err = s.announce(s.srv.cfg.Store.Segments(spaces[i].tenant), false, f.Req)
	}
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeEnd, Req: f.Req}, s.unmapped(err))
	return nil
}

// answerRing answers the request for a ring of at least size bytes.
func (s *session) answerRing(req, size uint64) {
	var err error
	switch {
	case s.srv.draining.Load():
		err = errLeaving
	case len(s.group.spaces()) == 0:
		err = fmt.Errorf("a staging ring needs an open namespace: %w", wire.CodeState)
	default:
		err = s.stage(size, s.group.spaces())
	}
	if err != nil {
		s.answerEnd(req, refusal(err))
		return
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeEnd, Req: req}, s.unmapped(s.announce(nil, true, req)))
}

// unmapped is the END of a request whose descriptors may not have been sent.
func (s *session) unmapped(err error) link.End {
	if err == nil {
		return link.End{}
	}
	s.log.Warn("segments cannot be announced", "err", err)
	return link.End{Code: wire.CodeInternal, Text: "memory cannot be handed to the engine"}
}
