package transfer

import (
	"context"
	"slices"
	"sync"

	"meridian/fabric"
)

// Loads of one asker and class are served first come first served: five loads of
// eight blocks each end at five times, and not all at the last. They stand in a
// queue. At each holder the first one that has something to pull there pulls; the
// others get what it leaves idle: lanes, while it has nothing more to start, and
// bytes, while what runs is small.
//
//	Turn   a request's place in the queue, taken in the order in which requests came
//	hungry a load that could start a pull at a holder, or may once the holder answers

// turnsID names a queue.
type turnsID struct {
	asker uint64
	class fabric.Class
}

// askers are the queues of all askers.
type askers struct {
	mu  sync.Mutex
	all map[turnsID]*turns
}

// turns is the queue of the loads of one asker and class.
type turns struct {
	id   turnsID
	open int // turns that have not left; under askers.mu

	mu     sync.Mutex
	coming []uint64 // tickets, ascending, of turns whose loads have not begun
	at     map[string]*usage
}

// usage is a queue's use of one holder.
type usage struct {
	running int
	bytes   uint64
	hungry  []*load // by ticket, then in the order in which they became so
}

// Turn is a request's place in its asker's queue.
type Turn struct {
	m      *Mover
	queue  *turns
	ticket uint64
}

// TakeTurn puts a request behind those of the same asker and class whose tickets
// are lower. It is called in the order in which requests come, before their Fetch.
// Until Fetch has asked the holders, later requests wait for it; so one that has
// taken its turn calls Fetch, or leaves, at once.
func (m *Mover) TakeTurn(ctx context.Context, asker, ticket uint64) *Turn {
	class, _ := fabric.ClassOf(ctx)
	id := turnsID{asker, class}
	m.askers.mu.Lock()
	defer m.askers.mu.Unlock()
	if m.askers.all == nil {
		m.askers.all = map[turnsID]*turns{}
	}
	n := m.askers.all[id]
	if n == nil {
		n = &turns{id: id, at: map[string]*usage{}}
		m.askers.all[id] = n
	}
	n.open++
	n.mu.Lock()
	i, _ := slices.BinarySearch(n.coming, ticket)
	n.coming = slices.Insert(n.coming, i, ticket)
	n.mu.Unlock()
	return &Turn{m: m, queue: n, ticket: ticket}
}

// Leave ends the turn. It may be called again.
func (t *Turn) Leave() {
	if t == nil || t.m == nil {
		return
	}
	t.begun()
	t.m.askers.mu.Lock()
	defer t.m.askers.mu.Unlock()
	if t.queue.open--; t.queue.open == 0 {
		delete(t.m.askers.all, t.queue.id) // pulls that still run keep it for their own end
	}
	t.m = nil
}

// begun says that the request's loads have asked, or that there are none.
func (t *Turn) begun() {
	if t == nil {
		return
	}
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	if i, ok := slices.BinarySearch(t.queue.coming, t.ticket); ok {
		t.queue.coming = slices.Delete(t.queue.coming, i, i+1)
		for _, p := range t.queue.at {
			p.kick()
		}
	}
}

// turnsOf is the queue of a job, and its ticket there; a queue of its own where the
// job has no turn.
func turnsOf(job *Job) (*turns, uint64) {
	if job.Turn == nil {
		return &turns{at: map[string]*usage{}}, 0
	}
	return job.Turn.queue, job.Turn.ticket
}

func (n *turns) usage(holder string) *usage {
	p := n.at[holder]
	if p == nil {
		p = &usage{}
		n.at[holder] = p
	}
	return p
}

// tidy forgets a holder that nobody uses.
func (n *turns) tidy(holder string, p *usage) {
	if p.running == 0 && len(p.hungry) == 0 {
		delete(n.at, holder)
	}
}

// kick wakes the load whose turn it is.
func (p *usage) kick() {
	if len(p.hungry) > 0 {
		select {
		case p.hungry[0].kicked <- struct{}{}:
		default:
		}
	}
}

// mark notes whether a load is hungry; the caller kicks.
func (p *usage) mark(l *load, hungry bool) {
	at := slices.Index(p.hungry, l)
	switch {
	case hungry && at < 0:
		i := 0
		for i < len(p.hungry) && p.hungry[i].ticket <= l.ticket {
			i++
		}
		p.hungry = slices.Insert(p.hungry, i, l)
	case !hungry && at >= 0:
		p.hungry = slices.Delete(p.hungry, at, at+1)
	}
}

// want notes at which holders a load is hungry.
func (n *turns) want(l *load, hungry []bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range hungry {
		name := l.q.holders[i].name
		p := n.usage(name)
		p.mark(l, hungry[i])
		if !hungry[i] && !n.full(p, l.width(i)) {
			p.kick()
		}
		n.tidy(name, p)
	}
}

// full says whether no more may run at a holder: as many pulls as it has lanes,
// and one, of at least minBatchBytes each.
func (n *turns) full(p *usage, width int) bool {
	return p.running >= width && p.bytes >= uint64(width)*minBatchBytes
}

// start counts a pull of a load, if it is the load's turn at that holder.
func (n *turns) start(l *load, p *pulling) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := n.usage(l.q.holders[p.holder].name)
	first := len(at.hungry) == 0 || at.hungry[0].ticket >= l.ticket
	if len(n.coming) > 0 && n.coming[0] < l.ticket || !first || n.full(at, l.width(p.holder)) {
		at.mark(l, true)
		return false
	}
	at.running++
	at.bytes += p.bytes
	return true
}

// ended takes a pull out. Its load may have more to pull there: until it has
// looked, nobody behind it does.
func (n *turns) ended(l *load, p *pulling) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.freed {
		return
	}
	p.freed = true
	name := l.q.holders[p.holder].name
	at := n.usage(name)
	at.running--
	at.bytes -= p.bytes
	if !l.over {
		at.mark(l, true)
	}
	at.kick()
	n.tidy(name, at)
}

// leave takes a load out that starts no pull any more.
func (n *turns) leave(l *load) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l.over = true
	for name, p := range n.at {
		p.mark(l, false)
		p.kick()
		n.tidy(name, p)
	}
}

// crowd is how many pulls run at each holder, of all loads of the queue.
func (n *turns) crowd(l *load) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range l.crowd {
		if p := n.at[l.q.holders[i].name]; p != nil {
			l.crowd[i] = p.running
		} else {
			l.crowd[i] = 0
		}
	}
}
