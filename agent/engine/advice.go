package engine

import (
	"sync"
	"sync/atomic"

	"meridian/internal/invariants"
	"meridian/scheduler"
	"meridian/wire/link"
)

// Advice is a frame that nobody asked for: PHASE, PHASEAT, EVICTED. It never makes
// anybody wait. Its way:
//
//	1 advise  appends it to what waits for a session       whoever has news
//	2 push    sends at once, where nobody else sends       the same
//	          else the one who does sends it afterwards    holder of wmu
//	3 send    offers it to the socket, after all answers; a frame that is not
//	          begun is dropped and counted
//	4 sendLater sends the rest of one that is begun, when there is room
//
// Answers are waited for, Limits.SendTimeout at most, as the page says.

// adviceRoom is how many bytes of advice may wait for those who send: some hundred
// PHASEs. There is more only while a holder of wmu is not scheduled.
const adviceRoom = 64 << 10

// Advice counts frames that were dropped because a session's socket took no more,
// by type.
type Advice struct{ Phase, PhaseAt, Evicted uint64 }

// adviceCount is Advice while it grows.
type adviceCount struct{ phase, phaseAt, evicted atomic.Uint64 }

// advice is what waits for a session.
type advice struct {
	ready  atomic.Bool // our HELLO is out, or goes out before wmu is free
	wanted atomic.Bool // something waits, and whoever has wmu sends it
	full   atomic.Bool // the holder of wmu waits for room in the socket

	mu sync.Mutex
	frames
}

// frames is some frames of advice.
type frames struct {
	b    []byte
	ends []adviceEnd
}

// adviceEnd is where a frame ends.
type adviceEnd struct {
	at  int
	typ link.Type
}

// sendLock is a mutex whose Unlock sends the advice that came meanwhile.
type sendLock struct {
	sync.Mutex
	s *session
}

// Unlock leaves nothing behind: push has set wanted before it found the lock taken.
func (l *sendLock) Unlock() {
	l.Mutex.Unlock()
	for l.s.advice.wanted.Load() && l.TryLock() {
		l.s.send(false)
		l.Mutex.Unlock()
	}
}

// advise appends a frame of advice to what waits for a session. It waits for nobody.
func advise[M link.Message](s *session, t link.Type, m M) {
	a := &s.advice
	if !a.ready.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.full.Load() || len(a.b)+link.FrameLen+m.Length()+link.TrailerLen > adviceRoom {
		s.srv.dropped(t)
		return
	}
	a.b = link.AppendLocal(a.b, s.plain, link.Frame{Type: t}, m)
	a.ends = append(a.ends, adviceEnd{len(a.b), t})
}

// push sends what waits, without waiting.
func (s *session) push() {
	s.advice.wanted.Store(true)
	if s.wmu.TryLock() {
		s.wmu.Unlock()
	}
}

// phase tells all sessions of a group of an event, and pushes nothing.
func (g *group) phase(e *scheduler.Event) {
	for _, s := range *g.members.Load() {
		if s.grouped {
			advise(s, link.TypePhaseAt, link.PhaseAt{
				Req: uint32(e.ID), Kind: uint8(e.Kind), Reason: uint8(e.Reason), Used: e.Used, Pos: e.Pos, Inject: e.Inject,
			})
			continue
		}
		advise(s, link.TypePhase, link.Phase{Req: uint32(e.ID), Kind: uint8(e.Kind), Used: e.Used, Reason: uint8(e.Reason), Inject: e.Inject})
	}
}

// push sends what waits for each session.
func (g *group) push() {
	for _, s := range *g.members.Load() {
		s.push()
	}
}

// takeAdvice empties what waits, into memory of the holder of wmu.
func (s *session) takeAdvice() (b []byte, ends []adviceEnd) {
	a := &s.advice
	a.wanted.Store(false) // before the look: what comes after it sets it again
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.b) == 0 {
		return nil, nil
	}
	a.frames, s.spare = frames{s.spare.b[:0], s.spare.ends[:0]}, a.frames
	return s.spare.b, s.spare.ends
}

// send writes what answers have gathered, and then what waits of advice. Where the
// socket has no room it waits for answers, if it may, else leaves them in out. wmu is
// held.
func (s *session) send(wait bool) {
	b, ends := s.takeAdvice()
	must := len(s.out)
	switch {
	case must+len(b) == 0:
		return
	case s.dead:
		s.sent(must)
		return
	}
	s.out = append(s.out, b...)
	invariants.Overwrite(b)
	n, err := s.c.offer(s.out)
	if err != nil {
		s.broken(err)
		s.sent(len(s.out))
		return
	}
	keep := max(n, must) // where the frame ends of which the socket took a part
	start := must
	for _, e := range ends {
		end := must + e.at
		switch {
		case end <= n:
		case start < n:
			keep = end
		default:
			s.srv.dropped(e.typ)
		}
		start = end
	}
	s.out = s.out[:keep]
	if s.sent(n); n < must && wait {
		s.sendRest(must - n)
	} else if len(s.out) > 0 {
		s.sendLater()
	}
}

// sendRest waits until the socket has taken the first n bytes of out.
func (s *session) sendRest(n int) {
	s.advice.full.Store(true)
	err := s.c.write(s.out[:n])
	s.advice.full.Store(false)
	if err != nil {
		s.broken(err)
		n = len(s.out)
	}
	s.sent(n)
}

// sent takes the first n bytes out of out.
func (s *session) sent(n int) {
	left := copy(s.out, s.out[n:])
	invariants.Overwrite(s.out[left:])
	if s.out = s.out[:left]; left == 0 && cap(s.out) > 2*flushAt {
		s.out = nil
	}
}

// sendLater sees to what is in out although nobody waits for it: bytes of a frame that
// has begun. It is sent when the engine reads, or with the next answer, or never.
func (s *session) sendLater() {
	if s.finishing {
		return
	}
	s.finishing = true
	s.finisher.Go(func() {
		for s.c.writable() {
			s.wmu.Lock()
			s.send(false)
			if len(s.out) == 0 || s.dead {
				s.finishing = false
			}
			more := s.finishing
			s.wmu.Unlock()
			if !more {
				return
			}
		}
	})
}

// dropped counts a frame of advice that a socket did not take.
func (s *Server) dropped(t link.Type) {
	switch t {
	case link.TypePhase:
		s.advice.phase.Add(1)
	case link.TypePhaseAt:
		s.advice.phaseAt.Add(1)
	case link.TypeEvicted:
		s.advice.evicted.Add(1)
	}
}
