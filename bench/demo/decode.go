package demo

import (
	"context"
	"fmt"
	"io"

	"meridian/agent/client"
	"meridian/wire"
)

// Decode is the engine stand-in of the decode node.
func Decode(ctx context.Context, in io.Reader, out io.Writer) error {
	return runStandIn(ctx, "decode-engine", in, out, (*standIn).decode)
}

// decode reads the prompt's blocks, no matter who has them, and decodes: a reasoning
// request thinks, and its think blocks go cold when it stops.
func (s *standIn) decode(ctx context.Context, j job) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	prompt := []int32{anyToken, anyToken + 1}
	if len(j.think) > 0 && j.tagInPrompt {
		prompt = append(prompt, thinkStart)
	}
	req, err := s.eng.Begin(ctx, client.Begin{ID: fmt.Sprint(j.n), Model: modelName, Prompt: prompt})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	l, err := s.eng.Acquire(ctx, s.space, j.prompt, client.AcquireOptions{Fetch: true, Renew: true, Deadline: requestTimeout})
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	defer l.Release()
	if n := hits(l); n < len(j.prompt) {
		s.judge.absent(s.ns, j.prompt[n])
		return fmt.Errorf("block %d of %d, which the prefill engine holds a lease on: %w", n, len(j.prompt), l.Blocks[n].Err)
	}
	if err := s.readBatches(ctx, j.prompt); err != nil {
		return err
	}
	s.count(func(c *summary) { c.Requests++; c.Lookups += len(j.prompt) })
	if len(j.think) > 0 {
		if err := s.thinkAloud(ctx, j, req); err != nil {
			return err
		}
	}
	if err := s.step(req, anyToken, anyToken+1, endOfText); err != nil {
		return err
	}
	return s.eng.Finish(ctx, req, false)
}

// thinkAloud streams the thinking, a block at a time, and ends it. A request
// that is resumed later asks for its think blocks again, wherever they are.
func (s *standIn) thinkAloud(ctx context.Context, j job, req uint32) error {
	s.count(func(c *summary) { c.Reasoned++ })
	if !j.tagInPrompt {
		if err := s.step(req, thinkStart); err != nil {
			return err
		}
	}
	thought := make([]int32, tokensABlock)
	for i := range thought {
		thought[i] = anyToken + int32(i)
	}
	for k := range j.think {
		if err := s.step(req, thought...); err != nil {
			return err
		}
		if err := s.store(ctx, j.think[k:k+1], wire.ThinkActive, req); err != nil {
			return err
		}
	}
	if err := s.step(req, thinkEnd); err != nil {
		return err
	}
	// Cold blocks may leave from here on, and the node that takes them may
	// evict them first of all: the judge must not call that a loss.
	for _, k := range j.think {
		s.judge.mayLose(s.ns, k)
	}
	if !j.resumes {
		return nil
	}
	l, err := s.eng.Acquire(ctx, s.space, j.think, client.AcquireOptions{Fetch: true, Deadline: requestTimeout})
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	defer l.Release()
	n := hits(l)
	s.count(func(c *summary) { c.ReadAgain += n })
	return s.read(l, n)
}

func (s *standIn) step(req uint32, tokens ...int32) error {
	if err := s.eng.Tokens([]uint32{req}, []uint8{uint8(len(tokens))}, tokens); err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	return nil
}
