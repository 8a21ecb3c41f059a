package engine

import (
	"fmt"

	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// begin answers BEGIN.
func (s *session) begin(f link.Frame, p []byte) error {
	x := &s.in.begin
	if err := s.parse(x, p); err != nil {
		return err
	}
	s.arrive(f, x.Req, scheduler.Input{Model: x.Model, Tokens: x.Prompt})
	return nil
}

// resume answers RESUME, as BEGIN.
func (s *session) resume(f link.Frame, p []byte) error {
	x := &s.in.resume
	if err := s.parse(x, p); err != nil {
		return err
	}
	s.arrive(f, x.Req, scheduler.Input{Model: x.Model, Tokens: x.Prompt, First: x.First, Decoded: x.Decoded})
	return nil
}

// arrive starts a request and sends END. BUSY: as many requests run as the scheduler
// tracks. INVALID: the number is 0 or runs already.
func (s *session) arrive(f link.Frame, req uint32, in scheduler.Input) {
	var err error
	switch {
	case s.srv.draining.Load():
		err = errLeaving
	case req == 0:
		err = fmt.Errorf("request number 0 means none: %w", wire.CodeInvalid)
	default:
		err = s.group.life.begin(req, in)
	}
	if err == nil && !s.srv.schedulerConfig().Models.Known(in.Model) {
		s.srv.tellUnknown(in.Model)
	}
	s.answerEnd(f.Req, refusal(err))
}

// tokens handles TOKENS, which has no answer but PHASE.
func (s *session) tokens(p []byte) error {
	x := &s.in.tokens
	if err := s.parse(x, p); err != nil {
		return err
	}
	s.group.life.tokens(x)
	return nil
}

// finish answers FINISH.
func (s *session) finish(f link.Frame, p []byte) error {
	var x link.Finish
	if err := s.parse(&x, p); err != nil {
		return err
	}
	kind := scheduler.Done
	if x.Reason == link.FinishAbort {
		kind = scheduler.Abort
	}
	s.group.life.finish(x.Req, kind)
	s.answerEnd(f.Req, link.End{})
	return nil
}
