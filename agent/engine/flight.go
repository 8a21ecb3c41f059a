package engine

import (
	"context"
	"fmt"
	"time"

	"meridian/wire"
	"meridian/wire/link"
)

// busyRetryMS is the advice that goes with BUSY.
const busyRetryMS = 10

// flight is a request that is not answered by the reader itself.
type flight struct {
	req   uint64
	ctx   context.Context
	end   context.CancelFunc
	since time.Time
}

// launch runs f on a goroutine of its own, under the request's deadline. Beyond
// Limits.Reqs the request is answered BUSY and launch returns false. A number
// that is in flight already is a fault.
func (s *session) launch(req uint64, deadlineMS uint32, run func(*flight)) (bool, error) {
	d := min(time.Duration(deadlineMS)*time.Millisecond, link.MaxDeadline)
	s.fmu.Lock()
	if _, twice := s.flights[req]; twice {
		s.fmu.Unlock()
		return false, s.wrong(wire.CodeState, "a request number that is in flight")
	}
	if most := s.srv.cfg.Limits.Reqs; len(s.flights)+s.fetches >= most {
		s.fmu.Unlock()
		s.answerEnd(req, refusal(fmt.Errorf("%d requests of this session run, the limit is %d: %w", most, most, wire.CodeBusy)))
		return false, nil
	}
	fl := &flight{req: req, since: time.Now()}
	fl.ctx, fl.end = context.WithTimeout(s.ctx, d)
	s.flights[req] = fl
	s.fmu.Unlock()
	s.srv.flights.add(1)
	s.flown.Go(func() {
		defer s.srv.flights.add(-1)
		run(fl)
		fl.end()
		s.flush()
	})
	return true, nil
}

// land takes a flight out; after it a CANCEL finds nothing, so it comes right
// before the answer.
func (s *session) land(fl *flight) {
	s.fmu.Lock()
	delete(s.flights, fl.req)
	s.fmu.Unlock()
	s.offerSlot()
}

// cancelled tells a flight that its asker, or its session, gave up, from one
// whose time ran out.
func (fl *flight) cancelled() bool { return fl.ctx.Err() == context.Canceled }

// running reports whether a flight has that number.
func (s *session) running(req uint64) bool {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	return s.flights[req] != nil || s.loading(req) != nil
}

// cancel handles CANCEL. It is idempotent: the answer is the END of the request
// that it names, which has come already if that is not in flight.
func (s *session) cancel(f link.Frame) error {
	s.fmu.Lock()
	fl := s.flights[f.Req]
	s.fmu.Unlock()
	if fl != nil {
		fl.end()
	}
	if l := s.loading(f.Req); l != nil {
		s.endLoad(l, wire.CodeCancelled)
	}
	return nil
}
