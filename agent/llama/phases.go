package llama

import (
	"sync"
	"time"

	"meridian/scheduler"
)

// phases is the node's own scheduler core. The node owns the batch, so what it
// decides must be known before the next call of llama-server: the daemon's router
// hears the same tokens, for the tiers of blocks, and its advice comes later.
type phases struct {
	origin time.Time

	mu    sync.Mutex
	core  *scheduler.Core
	ready scheduler.Ready
	next  scheduler.ID
}

func newPhases(models *scheduler.Models, max uint32, rules *scheduler.Rules) *phases {
	return &phases{origin: time.Now(), core: scheduler.New(scheduler.Config{
		Models: models, MaxThink: max, Signals: rules, MaxRequests: MaxSlots + waitingPerNode,
		ReapAfter: scheduler.Never / 2, // each request ends by Abort or Done
	})}
}

// step gives the core one input and returns what follows from it. No event of
// this core has a cause in another request: it offloads nothing and reaps
// nothing.
func (p *phases) step(in scheduler.Input) []scheduler.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.core.Step(scheduler.Time(time.Since(p.origin)), []scheduler.Input{in})
	p.core.Ready(&p.ready)
	return append([]scheduler.Event(nil), p.ready.Events...)
}

// end forgets a request.
func (p *phases) end(id scheduler.ID) {
	p.step(scheduler.Input{Kind: scheduler.Abort, ID: id})
}

// begin starts a request.
func (p *phases) begin(model string, prompt []int32) scheduler.ID {
	p.mu.Lock()
	p.next++
	id := p.next
	p.mu.Unlock()
	p.step(scheduler.Input{Kind: scheduler.Arrive, ID: id, Model: model, Tokens: prompt})
	return id
}
