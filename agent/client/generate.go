package client

import (
	"context"
	"strconv"
	"time"

	"meridian/wire"
	"meridian/wire/link"
)

// Begin describes a generation request.
type Begin struct {
	ID     string  // for logs; at most link.MaxText bytes are sent
	Model  string  // the served model's name
	Prompt []int32 // of more than link.MaxPrompt tokens the last are sent

	// Req is the request's number, where the engine chooses it: the numbers of a group
	// are those of all its sessions together. 0: the client counts.
	Req uint32

	FirstAnswer, ThinkPace, OutputPace time.Duration // what the request was promised; 0: nothing
}

// PhaseKind is the kind of a Phase. Others than these may come; they are to be
// ignored.
type PhaseKind uint8

// The kinds of Phase.
const (
	EnterThink  PhaseKind = 1 // thinking starts
	ExitThink   PhaseKind = 2 // thinking has ended; Used counts its tokens
	ForceBudget PhaseKind = 3 // Inject should be appended, so that thinking ends
	Completed   PhaseKind = 4
	Reaped      PhaseKind = 6 // the request was silent for too long and is forgotten
	CannotForce PhaseKind = 8 // thinking should end, and the model has no marker for it
)

var phaseNames = map[PhaseKind]string{
	EnterThink: "enter-think", ExitThink: "exit-think", ForceBudget: "force-budget",
	Completed: "completed", Reaped: "reaped", CannotForce: "cannot-force",
}

// String is the kind's name, or its number.
func (k PhaseKind) String() string {
	if s, ok := phaseNames[k]; ok {
		return s
	}
	return "phase " + strconv.Itoa(int(k))
}

// Phase is the daemon's advice about one request.
type Phase struct {
	Req    uint32
	Kind   PhaseKind
	Used   uint32 // thinking tokens so far
	Reason uint8  // as in package scheduler
	// Pos is, in a group, the position of the first token that the phase applies to,
	// in the request's tokens with the prompt's first as 0. ForceBudget, Completed: of
	// the next token.
	Pos    uint32
	Inject []int32 // ForceBudget
}

// Begin starts a generation request and returns its number, for Tokens, Finish
// and Block.Req. BUSY: the daemon follows as many as it will.
func (e *Engine) Begin(ctx context.Context, b Begin) (uint32, error) {
	if e.grouped && len(b.Prompt) > link.MaxPrompt { // RESUME says where a cut prompt begins
		return e.Resume(ctx, Resume{Begin: b})
	}
	if e.grouped && len(b.Prompt) > link.MaxPrompt { // so that positions count from the prompt's begin
		return e.Resume(ctx, Resume{Begin: b})
	}
	c, err := e.take(ctx, "begin")
	if err != nil {
		return 0, err
	}
	x := e.beginning(b)
	if err := simple(ctx, e, c, link.TypeBegin, x); err != nil {
		return 0, err
	}
	return x.Req, nil
}

// BeginAsync is Begin that does not wait for the daemon, for an engine's step. The
// number may be used at once. The channel gets the error that Begin would have
// returned; nobody has to look. BUSY at once: more waits for the daemon than may.
func (e *Engine) BeginAsync(b Begin) (req uint32, ended <-chan error, err error) {
	if e.grouped && len(b.Prompt) > link.MaxPrompt {
		return e.ResumeAsync(Resume{Begin: b})
	}
	x := e.beginning(b)
	ended, err = async(e, "begin", link.TypeBegin, x)
	return x.Req, ended, err
}

// beginning makes the message.
func (e *Engine) beginning(b Begin) link.Begin {
	id := b.Req
	if id == 0 {
		id = e.nextNumber()
	}
	if n := len(b.Prompt); n > link.MaxPrompt {
		b.Prompt = b.Prompt[n-link.MaxPrompt:] // the last markers decide
	}
	return link.Begin{
		Req: id, ID: b.ID, Model: b.Model, Prompt: b.Prompt,
		SLOms: [3]uint32{milliseconds(b.FirstAnswer), milliseconds(b.ThinkPace), milliseconds(b.OutputPace)},
	}
}

func milliseconds(d time.Duration) uint32 { return uint32(max(0, min(d.Milliseconds(), 1<<32-1))) }

// nextNumber is that of a generation request.
func (e *Engine) nextNumber() uint32 {
	id := e.lastReq.Add(1)
	if id == 0 { // wrapped: 0 means none
		id = e.lastReq.Add(1)
	}
	return id
}

// Tokens reports one step in columns: tok holds n[i] decoded tokens of req[i],
// one request after the other. There is no answer; advice comes to OnPhase. At
// most link.MaxRows requests and link.MaxTokens tokens. It never waits for the
// daemon: what the socket does not take is kept, some steps long, and dropped beyond
// that; see Dropped.
func (e *Engine) Tokens(req []uint32, n []uint8, tok []int32) error {
	sum := 0
	for _, v := range n {
		sum += int(v)
	}
	if len(req) != len(n) || sum != len(tok) || len(req) > link.MaxRows || len(tok) > link.MaxTokens {
		return &RequestError{Op: "tokens", Code: wire.CodeInvalid, Text: "the columns do not fit one another, or are too long"}
	}
	e.wmu.Lock()
	defer e.wmu.Unlock()
	if e.err != nil {
		return e.err
	}
	x := link.Tokens{Req: req, N: n, Tok: tok}
	if len(e.out) > 0 && len(e.out)+link.FrameLen+x.Length()+link.TrailerLen > maxAdvice {
		e.flush() // there may be room by now
	}
	if len(e.out) > 0 && len(e.out)+link.FrameLen+x.Length()+link.TrailerLen > maxAdvice {
		e.dropped.Add(1)
		return nil
	}
	e.out = link.AppendLocal(e.out, e.plain, link.Frame{Type: link.TypeTokens}, x)
	e.flush()
	return nil
}

// Finish ends a generation request, done or aborted. It is idempotent, and for a
// request that never was no error.
func (e *Engine) Finish(ctx context.Context, req uint32, abort bool) error {
	c, err := e.take(ctx, "finish")
	if err != nil {
		return err
	}
	return simple(ctx, e, c, link.TypeFinish, finish(req, abort))
}

// FinishAsync is Finish that does not wait for the daemon, as BeginAsync is.
func (e *Engine) FinishAsync(req uint32, abort bool) (ended <-chan error, err error) {
	return async(e, "finish", link.TypeFinish, finish(req, abort))
}

func finish(req uint32, abort bool) link.Finish {
	if abort {
		return link.Finish{Req: req, Reason: link.FinishAbort}
	}
	return link.Finish{Req: req}
}
