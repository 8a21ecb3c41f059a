package client

import (
	"context"
	"time"

	"meridian/wire/link"
)

// Resume describes a generation request of which tokens were decoded already.
type Resume struct {
	Begin
	First   uint32  // position of Prompt's first token: 0, unless only the prompt's last tokens are here
	Decoded []int32 // in order
}

// Resume is Begin of a request that another daemon, or this one before its restart, has
// followed: budgets, phases and positions go on as if the daemon had seen all tokens. OnPhase
// gets where the request stands. It needs a group.
func (e *Engine) Resume(ctx context.Context, r Resume) (uint32, error) {
	if err := e.needGroup("resume"); err != nil {
		return 0, err
	}
	c, err := e.take(ctx, "resume")
	if err != nil {
		return 0, err
	}
	x := e.resuming(r)
	if err := simple(ctx, e, c, link.TypeResume, x); err != nil {
		return 0, err
	}
	return x.Req, nil
}

// ResumeAsync is Resume that does not wait for the daemon, as BeginAsync is.
func (e *Engine) ResumeAsync(r Resume) (req uint32, ended <-chan error, err error) {
	if err := e.needGroup("resume"); err != nil {
		return 0, nil, err
	}
	x := e.resuming(r)
	ended, err = async(e, "resume", link.TypeResume, x)
	return x.Req, ended, err
}

// resuming makes the message. Of what is too long the last tokens count.
func (e *Engine) resuming(r Resume) link.Resume {
	over := len(r.Prompt) + len(r.Decoded) - link.MaxPrompt
	if cut := min(max(over, 0), len(r.Prompt)); cut > 0 {
		r.First += uint32(cut)
		r.Prompt = r.Prompt[cut:]
	}
	if cut := len(r.Decoded) - link.MaxPrompt; cut > 0 {
		r.First += uint32(cut)
		r.Decoded = r.Decoded[cut:]
	}
	b := e.beginning(r.Begin)
	return link.Resume{Req: b.Req, ID: b.ID, Model: b.Model, SLOms: b.SLOms, First: r.First, Prompt: b.Prompt, Decoded: r.Decoded}
}

// Handoff ends a generation request, done, and keeps its prompt and output blocks from
// eviction until a peer has pulled each once, or for keep, which the daemon may shorten.
// It is idempotent. kept says for people how many blocks are kept, and why others are not.
// Finish with abort ends it early, where no peer is going to pull them.
// It needs a group.
func (e *Engine) Handoff(ctx context.Context, req uint32, keep time.Duration) (kept string, err error) {
	if err := e.needGroup("handoff"); err != nil {
		return "", err
	}
	c, err := e.take(ctx, "handoff")
	if err != nil {
		return "", err
	}
	if err := send(e, c, link.TypeHandoff, link.Handoff{Req: req, KeepMS: milliseconds(keep)}); err != nil {
		e.putBack(c)
		return "", err
	}
	if err := e.wait(ctx, c); err != nil {
		return "", err
	}
	defer e.putBack(c)
	return c.end.Text, ended("handoff", &c.end)
}

// HandoffAsync is Handoff that does not wait for the daemon, as BeginAsync is.
func (e *Engine) HandoffAsync(req uint32, keep time.Duration) (ended <-chan error, err error) {
	if err := e.needGroup("handoff"); err != nil {
		return nil, err
	}
	return async(e, "handoff", link.TypeHandoff, link.Handoff{Req: req, KeepMS: milliseconds(keep)})
}
