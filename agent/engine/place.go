package engine

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/internal/halfopen"
	"meridian/wire"
	"meridian/wire/link"
)

// place is what a connection has until it opens a namespace: one of its user's
// share. Connections that open nothing take no engine's place, and the oldest
// silent one of a user makes room for that user's next. The sessions of a group
// have one place together.
type place struct {
	first   *session
	group   atomic.Pointer[group] // once first has one
	conn    *halfopen.Conn
	share   *quota.Hold
	evicted atomic.Pointer[error]
}

// userHolder is the account of a user of the socket.
func userHolder(uid uint32) quota.Holder {
	return quota.Holder{Kind: quota.Source, Name: fmt.Sprintf("user %d", uid)}
}

// enter gives a connection of a user a place, or says why there is none.
func (s *Server) enter(ss *session) error {
	user := userHolder(ss.uid)
	now := time.Since(s.start)
	for range 2 {
		share, err := s.cfg.Quota.Take(quota.HalfOpen, 1, user)
		if err == nil {
			ss.place.share = share
			ss.place.conn = s.places.Enter(now, user.Name, ss.place.evict)
			return nil
		}
		if !s.places.MakeRoom(now, user.Name, err) {
			return err
		}
	}
	return fmt.Errorf("no place for a connection of %s: %w", user, wire.CodeTooMany)
}

// evict ends the connections of a place that makes room. It waits for nobody: their
// readers say why.
func (p *place) evict(why error) {
	p.share.Give()
	p.evicted.Store(&why)
	p.shutdown()
}

// shutdown makes the readers of all connections of the place see the end.
func (p *place) shutdown() {
	p.first.c.shutdown(unix.SHUT_RD)
	if g := p.group.Load(); g != nil {
		for _, m := range *g.members.Load() {
			m.c.shutdown(unix.SHUT_RD)
		}
	}
}

// leave gives the place back. It may be called again.
func (p *place) leave() {
	if p.conn != nil {
		p.conn.Leave()
	}
	p.share.Give()
}

// processAccount is that of the session's process, and whether it can be told from others.
func (s *session) processAccount() (quota.Holder, bool) {
	if s.pid > 0 {
		return quota.Holder{Kind: quota.Process, Name: strconv.Itoa(s.pid)}, true
	}
	fd, err := unix.GetsockoptInt(s.c.fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return quota.Holder{}, false
	}
	defer func() { _ = unix.Close(fd) }() // nothing was done with it
	n, ok := blocks.PidfdNumber(fd)
	return quota.Holder{Kind: quota.Process, Name: fmt.Sprintf("of pidfd %d", n)}, ok
}

// sharers are the accounts, besides the engine's own, that count what a session begins:
// of its process, and of its user where there are others.
func (s *session) sharers() (who []quota.Holder) {
	if p, ok := s.processAccount(); ok {
		who = append(who, p)
	}
	return append(who, s.users()...)
}

// users is the account of the session's user, where there are others.
func (s *session) users() []quota.Holder {
	if len(s.srv.uids) < 2 {
		return nil
	}
	return []quota.Holder{userHolder(s.uid)}
}

// takeSeat makes an engine of a group that opens its first namespace, by session s. It
// comes before the group has that namespace: whatever has one open is counted.
func (g *group) takeSeat(s *session) error {
	srv := g.srv
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if g.seated.Load() {
		return nil
	}
	if err := srv.full(); err != nil {
		return err
	}
	seat, err := srv.cfg.Quota.Take(quota.Engines, 1, append(s.sharers(), quota.Total)...)
	if err != nil {
		return &link.FrameError{Code: wire.CodeOf(err), Text: err.Error()}
	}
	g.seat = seat
	srv.seated++
	g.seated.Store(true)
	g.place.leave()
	return nil
}

// spoke says that a valid message has come.
func (s *session) spoke() {
	p := s.place
	if s.group != nil {
		p = s.group.place
	}
	p.conn.Spoke(time.Since(s.srv.start))
}

// seated says whether the session counts as one of an engine.
func (s *session) seated() bool { return s.group != nil && s.group.seated.Load() }

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
	why := s.place.evicted.Load()
	if why == nil && s.group != nil {
		why = s.group.place.evicted.Load()
	}
	if why != nil && !s.seated() {
		return &link.FrameError{Code: wire.CodeTooMany, Text: "this connection was silent for longest: " + (*why).Error()}
	}
	return err
}
