package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// life drives a group's scheduler core and applies the life table of blocks. It
// is called by readers, by flights that put, and by the timer; mu serialises
// them. mu comes before a session's wmu.
type life struct {
	g    *group
	core atomic.Pointer[scheduler.Core] // made by the first BEGIN

	mu      sync.Mutex
	ready   scheduler.Ready
	in      []scheduler.Input
	reqs    map[uint32]*request
	used    map[blockID]use // by running requests
	sets    uint64          // of pins, given to requests
	handed  []handed        // requests that were handed off, oldest first
	blocks  int             // in all requests
	lower   []blockID       // to be lowered to ThinkComplete by flushLower
	settled []blockID       // likewise, and of no running request any more
	fresh   []blockID       // that track has added
	gone    []blockID       // that were evicted before the store knew that somebody follows them
	cold    []blockID       // that are offloaded
	told    []link.EvictedItem
	keys    []wire.Key
	timer   *time.Timer
	armed   scheduler.Time
	closed  bool
}

func newLife(g *group) *life {
	return &life{g: g, reqs: make(map[uint32]*request), used: make(map[blockID]use), armed: scheduler.Never}
}

// stats may be called from any goroutine.
func (l *life) stats() scheduler.Stats {
	if c := l.core.Load(); c != nil {
		return c.Stats()
	}
	return scheduler.Stats{}
}

// close aborts what still runs, so that no block outlives its request as
// OutputCritical.
func (l *life) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	for id := range l.reqs {
		l.step(scheduler.Input{Kind: scheduler.Abort, ID: scheduler.ID(id)})
		l.forget(id)
	}
	l.flushLower()
}

// step gives the core one input; events must follow.
func (l *life) step(in scheduler.Input) {
	l.in = append(l.in[:0], in)
	l.core.Load().Step(l.g.srv.now(), l.in)
	clear(l.in) // it may hold a prompt
}

// begin starts request id, as in says.
func (l *life) begin(id uint32, in scheduler.Input) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core.Load() == nil {
		l.core.Store(scheduler.New(l.g.srv.schedulerConfig()))
	}
	_, had := l.reqs[id]
	if !had {
		l.sets++
		l.reqs[id] = &request{pins: l.sets}
		l.reused(id)
	}
	in.Kind, in.ID = scheduler.Arrive, scheduler.ID(id)
	l.step(in)
	switch code := l.events(); {
	case code == wire.CodeOK:
		return nil
	case had:
		return fmt.Errorf("request number %d runs already: %w", id, code)
	default:
		delete(l.reqs, id)
		most := l.g.srv.cfg.Scheduler.MaxRequests
		if most < 1 {
			most = scheduler.DefaultMaxRequests
		}
		return fmt.Errorf("the scheduler follows %d requests of this engine, its limit is %d: %w", most, most, code)
	}
}

// tokens gives the core one step of many requests.
func (l *life) tokens(x *link.Tokens) {
	l.mu.Lock()
	defer l.mu.Unlock()
	core := l.core.Load()
	if core == nil {
		return
	}
	l.in = l.in[:0]
	at := 0
	for i, id := range x.Req {
		n := int(x.N[i])
		l.in = append(l.in, scheduler.Input{Kind: scheduler.Tokens, ID: scheduler.ID(id), Tokens: x.Tok[at : at+n : at+n]})
		at += n
	}
	core.Step(l.g.srv.now(), l.in)
	_ = l.events() // TOKENS has no answer
}

// finish ends request id. It is idempotent, for an id that never was as well. One that
// is aborted after it was handed off keeps nothing any more.
func (l *life) finish(id uint32, kind scheduler.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core.Load() == nil {
		return
	}
	if kind == scheduler.Abort && l.reqs[id] == nil {
		l.unkeep(id)
	}
	l.step(scheduler.Input{Kind: kind, ID: scheduler.ID(id)})
	_ = l.events() // nothing of finish can be refused
	l.forget(id)
	l.flushLower()
}

// forget drops an entry after completing it.
func (l *life) forget(id uint32) {
	r := l.reqs[id]
	if r == nil {
		return
	}
	l.complete(id, r)
	l.blocks -= len(r.think) + len(r.rest)
	delete(l.reqs, id)
	l.g.srv.cfg.Store.Unpin(l.g.owner, r.pins)
}

// flushLower lowers what was marked, a call of the store for each run of one
// namespace.
func (l *life) flushLower() {
	l.runs(l.lower, func(ns wire.Namespace, keys []wire.Key) {
		l.g.srv.cfg.Store.Retier(ns, keys, wire.ThinkComplete)
	})
	l.lower = l.lower[:0]
	l.runs(l.settled, func(ns wire.Namespace, keys []wire.Key) {
		l.g.srv.cfg.Store.Settle(l.g.owner, ns, keys)
	})
	l.settled = l.settled[:0]
}

// runs calls f for each run of one namespace. keys is reused.
func (l *life) runs(ids []blockID, f func(ns wire.Namespace, keys []wire.Key)) {
	for i := 0; i < len(ids); {
		ns := ids[i].ns
		l.keys = l.keys[:0]
		for i < len(ids) && ids[i].ns == ns {
			l.keys = append(l.keys, ids[i].key)
			i++
		}
		f(ns, l.keys)
	}
}

// events applies what follows from the inputs, and arms the timer. The code is
// that of a refused arrival.
func (l *life) events() wire.Code {
	code := wire.CodeOK
	l.core.Load().Ready(&l.ready)
	for i := range l.ready.Events {
		e := &l.ready.Events[i]
		r := l.reqs[uint32(e.ID)]
		switch e.Kind {
		case scheduler.Refused:
			code = wire.CodeBusy
			if e.Reason == scheduler.Duplicate {
				code = wire.CodeInvalid
			}
		case scheduler.Offload:
			l.offload(uint32(e.ID), r, int(e.Blocks))
		case scheduler.ExitThink:
			if r != nil {
				l.exit(r, e.Pos)
			}
		case scheduler.Completed:
			if r != nil {
				l.complete(uint32(e.ID), r)
			}
		case scheduler.Reaped:
			l.forget(uint32(e.ID))
		}
		if e.Kind != scheduler.Refused && e.Kind != scheduler.Offload {
			l.g.phase(e)
		}
		if o := l.g.srv.cfg.Observer; o != nil {
			o.Phase(*e)
		}
	}
	l.flushLower()
	if len(l.ready.Events) > 0 {
		l.g.push()
	}
	l.arm(l.ready.Next)
	return code
}

// arm makes tick run at next, unless it runs before then anyway: most inputs only
// move the time at which a request would be given up.
func (l *life) arm(next scheduler.Time) {
	if next >= l.armed || l.closed {
		return
	}
	l.armed = next
	d := max(time.Duration(next-l.g.srv.now()), 0)
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.tick)
		return
	}
	l.timer.Reset(d)
}

func (l *life) tick() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.armed = scheduler.Never
	l.core.Load().Tick(l.g.srv.now())
	_ = l.events() // nobody asked
	l.mu.Unlock()
}
