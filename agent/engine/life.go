package engine

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// blockID names a block of any namespace.
type blockID struct {
	ns  wire.Namespace
	key wire.Key
}

// request is what a group knows of a generation request's blocks.
type request struct {
	think  []blockID // not yet offloaded, oldest first
	rest   []blockID // prompt and output
	exited bool      // thinking is over: its blocks are ThinkComplete
	over   bool      // completed: all blocks are ThinkComplete
}

// life drives a group's scheduler core and applies the life table of blocks. It
// is called by readers, by flights that put, and by the timer; mu serialises
// them. mu comes before a session's wmu.
type life struct {
	g    *group
	core atomic.Pointer[scheduler.Core] // made by the first BEGIN

	mu     sync.Mutex
	ready  scheduler.Ready
	in     []scheduler.Input
	reqs   map[uint32]*request
	held   map[blockID]int // by how many running requests as prompt or output
	blocks int             // in all requests
	lower  []blockID       // to be lowered to ThinkComplete by flushLower
	keys   []wire.Key
	timer  *time.Timer
	armed  scheduler.Time
	closed bool
}

func newLife(g *group) *life {
	return &life{g: g, reqs: make(map[uint32]*request), held: make(map[blockID]int), armed: scheduler.Never}
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

// begin starts request id.
func (l *life) begin(id uint32, model string, prompt []int32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core.Load() == nil {
		l.core.Store(scheduler.New(l.g.srv.schedulerConfig()))
	}
	_, had := l.reqs[id]
	if !had {
		l.reqs[id] = &request{}
	}
	l.step(scheduler.Input{Kind: scheduler.Arrive, ID: scheduler.ID(id), Model: model, Tokens: prompt})
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

// finish ends request id. It is idempotent, for an id that never was as well.
func (l *life) finish(id uint32, kind scheduler.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core.Load() == nil {
		return
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
	l.complete(r)
	l.blocks -= len(r.think) + len(r.rest)
	delete(l.reqs, id)
}

// complete marks a request's blocks for ThinkComplete, except those that another
// running request of the group uses as well.
func (l *life) complete(r *request) {
	if r.over {
		return
	}
	l.exit(r)
	r.over = true
	for _, id := range r.rest {
		if l.held[id]--; l.held[id] <= 0 {
			delete(l.held, id)
			l.lower = append(l.lower, id)
		}
	}
}

func (l *life) exit(r *request) {
	if !r.exited {
		r.exited = true
		l.lower = append(l.lower, r.think...)
	}
}

// flushLower lowers what was marked, a call of the store for each run of one
// namespace.
func (l *life) flushLower() {
	l.runs(l.lower, func(ns wire.Namespace, keys []wire.Key) {
		l.g.srv.cfg.Store.Retier(ns, keys, wire.ThinkComplete)
	})
	l.lower = l.lower[:0]
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

// place is the tier that an item is published in, and whether its request runs.
func (l *life) place(it *link.PutItem) (wire.Tier, bool) {
	if it.Req == 0 {
		return it.Tier, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reqs[it.Req]
	switch {
	case r == nil || r.over || l.blocks >= l.g.srv.cfg.Limits.Blocks:
		return wire.ThinkComplete, false
	case it.Tier == wire.ThinkActive && r.exited:
		return wire.ThinkComplete, true
	}
	return it.Tier, true
}

// tierOf is place for the grouping of reservations.
func (l *life) tierOf(it *link.PutItem) wire.Tier {
	t, _ := l.place(it)
	return t
}

// track gives the items that are in the store now, new or not, to their requests.
// A request may have gone on since place was asked: what it no longer needs is
// lowered here.
func (l *life) track(j *copyJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range j.items {
		it := &j.items[i]
		if it.Req == 0 || it.Tier == wire.ThinkComplete || j.status[i] != wire.CodeOK && j.status[i] != wire.CodeExists {
			continue
		}
		id := blockID{j.spaces[it.NS].ns, it.Key}
		r := l.reqs[it.Req]
		if r == nil || r.over || l.blocks >= l.g.srv.cfg.Limits.Blocks {
			if l.held[id] == 0 && j.status[i] == wire.CodeOK {
				l.lower = append(l.lower, id)
			}
			continue
		}
		l.blocks++
		if it.Tier == wire.ThinkActive {
			r.think = append(r.think, id)
			if r.exited {
				l.lower = append(l.lower, id)
			}
			l.step(scheduler.Input{Kind: scheduler.KV, ID: scheduler.ID(it.Req), Blocks: 1, Think: true})
			continue
		}
		r.rest = append(r.rest, id)
		l.held[id]++
	}
	if l.core.Load() != nil {
		_ = l.events() // a block cannot be refused
	}
	l.flushLower()
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
			l.offload(r, int(e.Blocks))
		case scheduler.ExitThink:
			if r != nil {
				l.exit(r)
			}
		case scheduler.Completed:
			if r != nil {
				l.complete(r)
			}
		case scheduler.Reaped:
			l.forget(uint32(e.ID))
		}
		if e.Kind != scheduler.Refused && e.Kind != scheduler.Offload {
			l.advise(e)
		}
		if o := l.g.srv.cfg.Observer; o != nil {
			o.Phase(*e)
		}
	}
	l.flushLower()
	l.arm(l.ready.Next)
	return code
}

// offload names the next n think blocks to the host.
func (l *life) offload(r *request, n int) {
	if r == nil {
		return
	}
	n = min(n, len(r.think))
	l.runs(r.think[:n], l.g.srv.cfg.Host.Offload)
	r.think = slices.Delete(r.think, 0, n)
	l.blocks -= n
}

// advise appends PHASE to what every session is sent.
func (l *life) advise(e *scheduler.Event) {
	p := link.Phase{Req: uint32(e.ID), Kind: uint8(e.Kind), Used: e.Used, Reason: uint8(e.Reason), Inject: e.Inject}
	for _, s := range *l.g.members.Load() {
		s.wmu.Lock()
		s.out = link.AppendLocal(s.out, s.plain, link.Frame{Type: link.TypePhase}, p)
		s.wmu.Unlock()
	}
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
	l.g.flush()
}
