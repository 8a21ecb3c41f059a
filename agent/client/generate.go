package client

import (
	"context"
	"strconv"
	"sync"
	"time"

	"meridian/wire"
	"meridian/wire/link"
)

// Begin describes a generation request.
type Begin struct {
	ID     string // for logs; at most link.MaxText bytes are sent
	Model  string // the served model's name
	Prompt []int32

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
	Used   uint32  // thinking tokens so far
	Reason uint8   // as in package scheduler
	Inject []int32 // ForceBudget
}

// Begin starts a generation request and returns its number, for Tokens, Finish
// and Block.Req. BUSY: the daemon follows as many as it will.
func (e *Engine) Begin(ctx context.Context, b Begin) (uint32, error) {
	c, err := e.take(ctx, "begin")
	if err != nil {
		return 0, err
	}
	id := e.lastReq.Add(1)
	if id == 0 { // wrapped: 0 means none
		id = e.lastReq.Add(1)
	}
	if n := len(b.Prompt); n > link.MaxPrompt {
		b.Prompt = b.Prompt[n-link.MaxPrompt:] // the last markers decide
	}
	ms := func(d time.Duration) uint32 { return uint32(max(0, min(d.Milliseconds(), 1<<32-1))) }
	err = simple(ctx, e, c, link.TypeBegin, link.Begin{
		Req: id, ID: b.ID, Model: b.Model, Prompt: b.Prompt,
		SLOms: [3]uint32{ms(b.FirstAnswer), ms(b.ThinkPace), ms(b.OutputPace)},
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// Tokens reports one step in columns: tok holds n[i] decoded tokens of req[i],
// one request after the other. There is no answer; advice comes to OnPhase. At
// most link.MaxRows requests and link.MaxTokens tokens.
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
	e.out = link.AppendLocal(e.out, e.plain, link.Frame{Type: link.TypeTokens}, link.Tokens{Req: req, N: n, Tok: tok})
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
	x := link.Finish{Req: req}
	if abort {
		x.Reason = link.FinishAbort
	}
	return simple(ctx, e, c, link.TypeFinish, x)
}

// maxPhases bounds the advice that waits for the callback: some for each of as
// many requests as a daemon follows.
const maxPhases = 64 << 10

// phases carries advice from the reader to the callback, which may take its time
// and call the Engine.
type phases struct {
	mu    sync.Mutex
	queue []Phase
	more  chan struct{} // nil: nobody wants advice
	quit  chan struct{}
	ended chan struct{}
	once  sync.Once
}

func (p *phases) start(f func(Phase)) {
	p.more, p.quit, p.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go p.run(f)
}

func (p *phases) run(f func(Phase)) {
	defer close(p.ended)
	for {
		p.mu.Lock()
		now := p.queue
		p.queue = nil
		p.mu.Unlock()
		for _, x := range now {
			f(x)
		}
		if len(now) > 0 {
			continue
		}
		select {
		case <-p.more:
		case <-p.quit:
			return
		}
	}
}

func (p *phases) stop() {
	if p.more == nil {
		return
	}
	p.once.Do(func() { close(p.quit) })
	<-p.ended
}

// phase handles PHASE. A callback that is hopelessly late ends the connection:
// advice must not be lost silently.
func (e *Engine) phase(b []byte) error {
	x, err := link.Parse[link.Phase](b)
	if err != nil || e.phases.more == nil {
		return err
	}
	p := &e.phases
	p.mu.Lock()
	full := len(p.queue) >= maxPhases
	if !full {
		p.queue = append(p.queue, Phase{Req: x.Req, Kind: PhaseKind(x.Kind), Used: x.Used, Reason: x.Reason, Inject: x.Inject})
	}
	p.mu.Unlock()
	if full {
		return protocolError(wire.CodeTooMany, "OnPhase does not keep up")
	}
	select {
	case p.more <- struct{}{}:
	default:
	}
	return nil
}
