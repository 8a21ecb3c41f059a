package client

import (
	"sync"

	"meridian/wire"
	"meridian/wire/link"
)

// Evicted is a block of a running request that the daemon evicted.
type Evicted struct {
	Req uint32 // of Begin
	NS  NS
	Key wire.Key
}

// maxAdvised bounds the advice that waits for the callbacks: some for each of as
// many requests as a daemon follows.
const maxAdvised = 64 << 10

// advice carries what the daemon says unasked from the reader to the callbacks, which
// may take their time and call the Engine.
type advice struct {
	onPhase   func(Phase)
	onEvicted func([]Evicted)

	mu    sync.Mutex
	queue []advised
	more  chan struct{} // nil: nobody wants advice
	quit  chan struct{}
	ended chan struct{}
	once  sync.Once
}

// advised is a Phase, or some blocks that were evicted.
type advised struct {
	phase   Phase
	evicted []Evicted
}

func (a *advice) start(o Options) {
	if o.OnPhase == nil && o.OnEvicted == nil {
		return
	}
	a.onPhase, a.onEvicted = o.OnPhase, o.OnEvicted
	a.more, a.quit, a.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go a.run()
}

func (a *advice) run() {
	defer close(a.ended)
	for {
		a.mu.Lock()
		now := a.queue
		a.queue = nil
		a.mu.Unlock()
		for _, x := range now {
			if x.evicted != nil {
				a.onEvicted(x.evicted)
			} else {
				a.onPhase(x.phase)
			}
		}
		if len(now) > 0 {
			continue
		}
		select {
		case <-a.more:
		case <-a.quit:
			return
		}
	}
}

func (a *advice) stop() {
	if a.more == nil {
		return
	}
	a.once.Do(func() { close(a.quit) })
	<-a.ended
}

// add queues x. A callback that is hopelessly late ends the connection: advice must
// not be lost silently.
func (a *advice) add(x advised) error {
	a.mu.Lock()
	full := len(a.queue) >= maxAdvised
	if !full {
		a.queue = append(a.queue, x)
	}
	a.mu.Unlock()
	if full {
		return protocolError(wire.CodeTooMany, "OnPhase or OnEvicted does not keep up")
	}
	select {
	case a.more <- struct{}{}:
	default:
	}
	return nil
}

// phase handles PHASE.
func (e *Engine) phase(b []byte) error {
	x, err := link.Parse[link.Phase](b)
	if err != nil || e.advice.onPhase == nil {
		return err
	}
	return e.advice.add(advised{phase: Phase{Req: x.Req, Kind: PhaseKind(x.Kind), Used: x.Used, Reason: x.Reason, Inject: x.Inject}})
}

// phaseAt handles PHASEAT.
func (e *Engine) phaseAt(b []byte) error {
	x, err := link.Parse[link.PhaseAt](b)
	if err != nil || e.advice.onPhase == nil {
		return err
	}
	return e.advice.add(advised{phase: Phase{Req: x.Req, Kind: PhaseKind(x.Kind), Used: x.Used, Reason: x.Reason, Pos: x.Pos, Inject: x.Inject}})
}

// evicted handles EVICTED.
func (e *Engine) evicted(b []byte) error {
	x, err := link.Parse[link.Evicted](b)
	if err != nil || e.advice.onEvicted == nil || len(x.Items) == 0 {
		return err
	}
	list := make([]Evicted, len(x.Items))
	for i, v := range x.Items {
		list[i] = Evicted{Req: v.Req, NS: NS(v.NS), Key: v.Key}
	}
	return e.advice.add(advised{evicted: list})
}
