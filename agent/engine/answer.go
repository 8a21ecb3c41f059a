package engine

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"meridian/internal/unixsend"
	"meridian/wire"
	"meridian/wire/link"
)

// segsAMap is how many segments one MAP announces: two descriptors each, within
// link.MaxSegs.
const segsAMap = link.MaxSegs / 2

// Refusals of a daemon that drains, and of a request that gives it no time.
var (
	errLeaving = fmt.Errorf("this daemon is leaving: %w", wire.CodeDraining)
	errNoOwner = fmt.Errorf("the block store has no owner left: %w", wire.CodeTooMany)
	errNoTime  = fmt.Errorf("deadline_ms is 0: %w", wire.CodeDeadline)
)

// refusal is the END of a request that err refuses: its text says what, how much
// and which limit. A bare code says no more than itself, as it must where a foreign
// tenant asks.
func refusal(err error) link.End {
	e := link.End{Code: wire.CodeOf(err)}
	if _, bare := err.(wire.Code); err != nil && !bare {
		e.Text = words(err)
	}
	if e.Code == wire.CodeBusy {
		e.RetryMS = busyRetryMS
	}
	return e
}

// words are the text of an error for somebody who is told its code too, with which most
// texts end.
func words(err error) string {
	return strings.TrimSuffix(err.Error(), ": "+wire.CodeOf(err).String())
}

// answerEnd appends END. The reader flushes when it has no more input; a flight
// calls flush itself.
func (s *session) answerEnd(req uint64, e link.End) {
	s.wmu.Lock()
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeEnd, Req: req}, e)
	s.wmu.Unlock()
}

// flush writes what answers have gathered.
func (s *session) flush() {
	s.wmu.Lock()
	s.flushLocked()
	s.wmu.Unlock()
}

func (s *session) flushLocked() { s.send(true) }

// broken marks the descriptor unusable and wakes the reader, which ends the
// session. An engine that has closed its socket with answers on their way is an
// ordinary end, which run logs; one that is there and does not read is not.
func (s *session) broken(err error) {
	s.dead = true
	if errors.Is(err, unixsend.ErrTimeout) {
		s.log.Warn("the engine does not read its answers", "within", s.c.patience)
	}
	s.c.shutdown(unix.SHUT_RDWR)
}

// announce sends MAP for the staging ring, where it is to be sent, and for those
// segments of ids that the engine has not got yet. wmu is held.
func (s *session) announce(ids []uint32, ring bool, req uint64) error {
	var m link.Map
	var fds []int
	send := func() error {
		if len(fds) == 0 {
			return nil
		}
		if len(s.out) > 0 && !s.dead { // not behind advice that may be begun
			s.sendRest(len(s.out))
		}
		b := link.AppendLocal(nil, s.plain, link.Frame{Type: link.TypeMap, Req: req}, m)
		var err error
		if !s.dead {
			if err = s.c.write(b, fds...); err != nil {
				s.broken(err)
			}
		}
		for _, fd := range fds {
			_ = unix.Close(fd) // ours alone; the engine has its own copy
		}
		m.Segs, fds = m.Segs[:0], fds[:0]
		return err
	}
	if ring {
		fd, size, err := s.srv.cfg.Store.StagingFD(s.owner)
		if err != nil {
			return err
		}
		s.ringSent = size
		m.Segs, fds = append(m.Segs, link.Seg{Size: size, Kind: link.SegStaging}), append(fds, fd)
	}
	for _, id := range ids {
		if _, ok := s.mapped[id]; ok {
			continue
		}
		for _, kind := range [...]uint8{link.SegBytes, link.SegGens} {
			fd, size, err := s.srv.cfg.Store.FD(id, kind == link.SegGens)
			if err != nil {
				_ = send() // closes what was gathered; bytes without their table are no harm
				return err
			}
			m.Segs = append(m.Segs, link.Seg{ID: id, Size: size, Kind: kind})
			fds = append(fds, fd)
		}
		s.mapped[id] = struct{}{}
		if len(m.Segs) >= 2*segsAMap-2 {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}

// goAway tells the engine that the daemon leaves in ms milliseconds.
func (s *session) goAway(ms uint32) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.greeted {
		s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeGoAway}, link.GoAway{MS: ms, Code: wire.CodeDraining, Text: "this daemon is leaving"})
		s.flushLocked()
	}
}
