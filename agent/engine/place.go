package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks/quota"
	"meridian/internal/halfopen"
	"meridian/wire"
	"meridian/wire/link"
)

// place is what a connection has until it opens a namespace: one of its user's
// share. Connections that open nothing take no session's place, and the oldest
// silent one of a user makes room for that user's next.
type place struct {
	conn    *halfopen.Conn
	share   *quota.Hold
	evicted atomic.Pointer[error]
	seated  atomic.Bool // it has opened a namespace, and counts as a session of an engine
}

// enter gives a connection of a user a place, or says why there is none.
func (s *Server) enter(ss *session, uid uint32) error {
	user := quota.Holder{Kind: quota.Source, Name: fmt.Sprintf("user %d", uid)}
	now := time.Since(s.start)
	for range 2 {
		share, err := s.cfg.Quota.Take(quota.HalfOpen, 1, user)
		if err == nil {
			ss.place.share = share
			ss.place.conn = s.places.Enter(now, user.Name, ss.evict)
			return nil
		}
		if !s.places.MakeRoom(now, user.Name, err) {
			return err
		}
	}
	return fmt.Errorf("no place for a connection of %s: %w", user, wire.CodeTooMany)
}

// evict ends a connection that makes room. It waits for nobody: the reader says
// why.
func (s *session) evict(why error) {
	s.place.share.Give()
	s.place.evicted.Store(&why)
	s.c.shutdown(unix.SHUT_RD)
}

// seat makes an engine of a group that opens its first namespace.
func (g *group) seat() error {
	srv := g.srv
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if g.seated {
		return nil
	}
	if err := srv.full(); err != nil {
		return err
	}
	srv.seated++
	g.seated = true
	for _, m := range *g.members.Load() {
		m.place.seated.Store(true)
		m.leavePlace()
	}
	return nil
}

func (s *session) leavePlace() {
	if s.place.conn != nil {
		s.place.conn.Leave()
	}
	s.place.share.Give()
}

// full says whether as many engines have opened a namespace as may. The caller
// holds mu.
func (s *Server) full() error {
	if s.seated < s.cfg.Limits.Sessions {
		return nil
	}
	return &link.FrameError{Code: wire.CodeTooMany, Text: fmt.Sprintf("%d engines are connected, the limit engine.max_sessions is %d", s.seated, s.cfg.Limits.Sessions)}
}

// outcome is why a session ends: as err says, unless it made room for another one.
func (s *session) outcome(err error) error {
	if why := s.place.evicted.Load(); why != nil && !s.place.seated.Load() {
		return &link.FrameError{Code: wire.CodeTooMany, Text: "this connection was silent for longest: " + (*why).Error()}
	}
	return err
}
