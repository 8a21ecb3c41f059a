package engine

import (
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
	var e link.End
	switch {
	case s.srv.draining.Load():
		e.Code = wire.CodeDraining
	case x.Req == 0:
		e.Code, e.Text = wire.CodeInvalid, "request number 0 means none"
	default:
		e.Code = s.life.begin(x.Req, x.Model, x.Prompt)
	}
	if e.Code == wire.CodeBusy {
		e.RetryMS = busyRetryMS
	}
	s.answerEnd(f.Req, e)
	return nil
}

// tokens handles TOKENS, which has no answer but PHASE.
func (s *session) tokens(p []byte) error {
	x := &s.in.tokens
	if err := s.parse(x, p); err != nil {
		return err
	}
	s.life.tokens(x)
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
	s.life.finish(x.Req, kind)
	s.answerEnd(f.Req, link.End{})
	return nil
}
