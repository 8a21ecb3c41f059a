package engine

import (
	"errors"

	"meridian/wire"
	"meridian/wire/link"
)

// open answers OPEN. The staging ring and the tenant's segments are announced
// before OPENED, so that an engine can put and acquire as soon as it has that.
func (s *session) open(f link.Frame, p []byte) error {
	var x link.Open
	if err := s.parse(&x, p); err != nil {
		return err
	}
	if s.srv.draining.Load() {
		s.answerEnd(f.Req, link.End{Code: wire.CodeDraining})
		return nil
	}
	num, err := s.openManifest(x.Manifest)
	if err == nil {
		if err := s.seat(); err != nil {
			return err
		}
	}
	answer := link.Opened{NS: num, Status: wire.CodeOf(err)}
	var ge *wire.GeometryError
	if errors.As(err, &ge) {
		answer.Field, answer.Ours, answer.Theirs = ge.Field, ge.Ours, ge.Theirs
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err == nil {
		if err := s.announce(s.srv.cfg.Store.Segments(s.spaces[num].tenant), 0); err != nil {
			s.log.Warn("segments cannot be announced", "err", err)
			answer.Status = wire.CodeInternal
		}
	} else {
		s.log.Info("namespace refused", "err", err)
	}
	s.out = link.AppendMessage(s.out, link.Frame{Type: link.TypeOpened, Req: f.Req}, answer)
	s.out = link.AppendMessage(s.out, link.Frame{Type: link.TypeEnd, Req: f.Req}, link.End{Code: answer.Status})
	return nil
}

// openManifest returns the session's number of a manifest's namespace.
func (s *session) openManifest(b []byte) (uint16, error) {
	m, err := wire.ParseManifest(b)
	if err != nil {
		return 0, err
	}
	// Before anything else is said: a tenant that may not be here learns nothing.
	if !s.srv.tenants[m.Tenant] {
		return 0, wire.CodeNSUnknown
	}
	for i := range s.spaces {
		if s.spaces[i].ns == m.Namespace() {
			return uint16(i), nil
		}
	}
	if len(s.spaces) >= s.srv.cfg.Limits.Namespaces {
		return 0, wire.CodeTooMany
	}
	ns, done, err := s.srv.cfg.Host.OpenNamespace(s.holder(), m)
	if err != nil {
		return 0, err
	}
	if s.ring == nil {
		fd, b, err := s.srv.cfg.Store.StagingUpTo(s.owner, s.srv.cfg.Limits.StagingBytes, leastRing(&m, s.srv.cfg.Limits.StagingBytes))
		if err != nil {
			done()
			return 0, err
		}
		s.ring = b
		s.wmu.Lock()
		s.ringFD = fd
		s.wmu.Unlock()
	}
	s.closes = append(s.closes, done)
	s.spaces = append(s.spaces, space{ns: ns, tenant: m.TenantID(), body: m.BlockBytes})
	return uint16(len(s.spaces) - 1), nil
}

// ringPage is the least that a ring is asked for.
const ringPage = 4096

// leastRing is the smallest ring that is of use: one block, where the limit allows.
func leastRing(m *wire.Manifest, limit int) int {
	return min(max(int(min(m.BlockBytes, 1<<30)), ringPage), limit)
}

// remap answers a MAP request: everything again, for an engine that lost it.
func (s *session) remap(f link.Frame, p []byte) error {
	var x link.Map
	if err := s.parse(&x, p); err != nil {
		return err
	}
	if len(x.Segs) > 0 {
		return s.wrong(wire.CodeState, "an engine announces no segments")
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	clear(s.mapped)
	s.rung = false
	code := wire.CodeOK
	for i := range s.spaces {
		if err := s.announce(s.srv.cfg.Store.Segments(s.spaces[i].tenant), f.Req); err != nil {
			s.log.Warn("segments cannot be announced", "err", err)
			code = wire.CodeInternal
			break
		}
	}
	s.out = link.AppendMessage(s.out, link.Frame{Type: link.TypeEnd, Req: f.Req}, link.End{Code: code})
	return nil
}
