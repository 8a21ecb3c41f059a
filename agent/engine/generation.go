package engine

import (
	"fmt"

	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// begin answers BEGIN. BUSY: as many requests run as the scheduler tracks.
// INVALID: the number is 0 or runs already.
func (s *session) begin(f link.Frame, p []byte) error {
	x := &s.in.begin
	if err := s.parse(x, p); err != nil {
		return err
	}
	var err error
	switch {
	case s.srv.draining.Load():
		err = errLeaving
	case x.Req == 0:
		err = fmt.Errorf("request number 0 means none: %w", wire.CodeInvalid)
	default:
		err = s.group.life.begin(x.Req, scheduler.Input{Model: x.Model, Tokens: x.Prompt})
	}
	s.answerEnd(f.Req, refusal(err))
	return nil
}

// resume answers RESUME, as BEGIN.
func (s *session) resume(f link.Frame, p []byte) error {
	x := &s.in.resume
	if err := s.parse(x, p); err != nil {
		return err
	}
	var err error
	switch {
	case s.srv.draining.Load():
		err = errLeaving
	case x.Req == 0:
		err = fmt.Errorf("request number 0 means none: %w", wire.CodeInvalid)
	default:
		err = s.group.life.begin(x.Req, scheduler.Input{Model: x.Model, Tokens: x.Prompt, First: x.First, Decoded: x.Decoded})
	}
	s.answerEnd(f.Req, refusal(err))
	return nil
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
