package demo

import (
	"context"
	"fmt"
	"io"

	"meridian/agent/client"
	"meridian/wire"
)

// Prefill is the engine stand-in of the prefill node: in and out are its
// conversation with the demo.
func Prefill(ctx context.Context, in io.Reader, out io.Writer) error {
	return runStandIn(ctx, "prefill-engine", in, out, (*standIn).prefill)
}

// prefill makes sure that every block of the prompt is stored, and keeps a
// lease on them until the decode side has them.
func (s *standIn) prefill(ctx context.Context, j job) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := s.eng.Begin(ctx, client.Begin{ID: fmt.Sprint(j.n), Model: modelName, Prompt: []int32{anyToken}})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	l, err := s.eng.Acquire(ctx, s.space, j.prompt, client.AcquireOptions{Renew: true})
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	n := hits(l)
	s.count(func(c *summary) { c.Requests++; c.Lookups += len(j.prompt); c.Hits += n })
	if err := s.read(l, n); err != nil {
		return err
	}
	if n < len(j.prompt) {
		if err := s.store(ctx, j.prompt[n:], wire.OutputCritical, req); err != nil {
			return err
		}
		// All of it under one lease now: nothing of it may be evicted before the
		// hand-off.
		whole, err := s.eng.Acquire(ctx, s.space, j.prompt, client.AcquireOptions{Renew: true})
		l.Release()
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		if l = whole; hits(l) < len(j.prompt) {
			return fmt.Errorf("block %d of %d that was just stored: %w", hits(l), len(j.prompt), l.Blocks[hits(l)].Err)
		}
	}
	s.keep(j.n, l)
	if err := s.eng.Finish(ctx, req, false); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	return nil
}
