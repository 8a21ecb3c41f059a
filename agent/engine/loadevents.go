package engine

import (
	"meridian/wire"
	"meridian/wire/link"
)

// post adds what happened to a load, and sees to its step. add runs under loads.mu.
// It waits for nobody. Once the session ends, only what is in flight for it adds
// events, and so the goroutine that steps can still be started.
func (s *session) post(l *load, inFlight bool, add func(*loadEvents)) {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	if s.loads.by[l.req] != l || s.loads.closed && !inFlight {
		return
	}
	add(&l.ev)
	s.queue(l)
}

// queue makes a load ready to be stepped. loads.mu is held.
func (s *session) queue(l *load) {
	if l.busy || l.queued {
		return
	}
	l.queued = true
	s.loads.ready = append(s.loads.ready, l)
	if !s.loads.running {
		s.loads.running = true
		s.srv.flights.add(1)
		s.flown.Go(s.runLoads)
	}
}

// wake tells a load that an item was published here.
func (s *session) wake(l *load, i int32) {
	s.post(l, false, func(ev *loadEvents) { ev.woken = append(ev.woken, i) })
}

// endLoad ends a load early.
func (s *session) endLoad(l *load, code wire.Code) {
	s.post(l, false, func(ev *loadEvents) {
		if ev.over == wire.CodeOK || code == wire.CodeCancelled {
			ev.over = code
		}
	})
}

// rest ends a step. What happened meanwhile gets another one.
func (s *session) rest(l *load) {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	l.busy = false
	if !l.done && l.ev.any() {
		s.queue(l)
	}
}

// runLoads steps the loads that have events, until there are none.
func (s *session) runLoads() {
	defer s.srv.flights.add(-1)
	for {
		l, ev := s.nextLoad()
		if l == nil {
			s.flush()
			if s.stopLoads() {
				return
			}
			continue
		}
		l.step(&ev)
		if ev.slot && !l.fetch.running {
			s.offerSlot() // another one may use it
		}
		s.rest(l)
	}
}

// nextLoad takes a load that has events, with them.
func (s *session) nextLoad() (l *load, ev loadEvents) {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	if len(s.loads.ready) == 0 {
		return nil, ev
	}
	l = s.loads.ready[0]
	s.loads.ready[0] = nil
	s.loads.ready = s.loads.ready[1:]
	ev, l.ev = l.ev, loadEvents{}
	l.queued, l.busy = false, true
	return l, ev
}

// stopLoads ends the goroutine that steps, unless a load got ready meanwhile.
func (s *session) stopLoads() bool {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	if len(s.loads.ready) > 0 {
		return false
	}
	s.loads.ready, s.loads.running = nil, false
	return true
}

// endLoads ends the session's loads: because the daemon leaves, or because the session
// ends, which nobody hears of.
func (s *session) endLoads(code wire.Code) {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	if code == wire.CodeCancelled {
		s.loads.closed = true
	}
	for _, l := range s.loads.by {
		if l.ev.over == wire.CodeOK || code == wire.CodeCancelled {
			l.ev.over = code
		}
		s.queue(l)
	}
}

// loading reports whether a LOAD that is not over has that number.
func (s *session) loading(req uint64) *load {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	return s.loads.by[req]
}

// answerLoaded appends LOADED, and before it MAP where an item lies in a segment that
// the engine has not mapped. Where that fails nothing is granted.
func (s *session) answerLoaded(req uint64, lease [16]byte, first uint32, p []link.Place) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.announceFor(lease, p); err != nil {
		return err
	}
	s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypeLoaded, Req: req}, link.Loaded{Lease: lease, First: first, Items: p})
	if len(s.out) > flushAt {
		s.flushLocked()
	}
	return nil
}
