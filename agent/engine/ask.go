package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"meridian/wire"
	"meridian/wire/link"
)

// Bounds of the questions for what is waited for.
const (
	askKeys    = 1024                  // of one question
	askFirst   = 20 * time.Millisecond // pause after a block came, and of what is new
	askLast    = 2 * time.Second       // the longest pause; it doubles with each question in vain
	askSpacing = 10 * time.Millisecond // between two questions, of all LOADs together
	askAtOnce  = 4                     // questions under way, of all
	askWithin  = 5 * time.Second       // an answer is waited for
)

// asker asks holders again for what LOADs with WAIT wait for and holders may have.
// What waits for the same namespace and holder is one question: a thousand LOADs
// are one HAS a holder, not a thousand. There is no goroutine while there is
// nothing to ask.
//
// mu is taken before a session's loads.mu.
type asker struct {
	host    Host
	ctx     context.Context // of questions
	stop    context.CancelFunc
	closing <-chan struct{}
	wg      sync.WaitGroup
	asked   atomic.Uint64 // questions

	mu      sync.Mutex
	by      map[askID]*askGroup
	n       int // items
	asking  int // questions under way
	next    time.Time
	running bool
	kick    chan struct{} // the state has changed
}

// askID names who is asked for what.
type askID struct {
	ns     wire.Namespace
	holder Holder // zero: all
}

// askGroup is what is asked for together.
type askGroup struct {
	items  map[waiter]struct{}
	due    time.Time
	pause  time.Duration
	asking bool
}

func newAsker(host Host, closing <-chan struct{}) *asker {
	a := &asker{host: host, closing: closing, by: map[askID]*askGroup{}, kick: make(chan struct{}, 1)}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// askID is who is asked again for an item.
func (l *load) askID(i int32) askID {
	it := &l.x.Items[i]
	id := askID{ns: l.id(i).ns}
	if it.Holder > 0 && it.Flags&link.WantFetch == 0 { // that one alone
		h := &l.x.Holders[it.Holder-1]
		id.holder = Holder{h.Agent, h.Inc}
	}
	return id
}

// add asks for an item after a pause, which counts where nobody asks there yet.
func (a *asker) add(l *load, i int32, pause time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := l.askID(i)
	g := a.by[id]
	if g == nil {
		g = &askGroup{items: map[waiter]struct{}{}, pause: pause, due: time.Now().Add(pause)}
		a.by[id] = g
	}
	g.items[waiter{l, i}] = struct{}{}
	a.n++
	if !a.running {
		a.running = true
		a.wg.Go(a.run)
	}
	a.poke()
}

// remove forgets items of a load.
func (a *asker) remove(l *load, items []int32) {
	if len(items) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range items {
		a.drop(l.askID(i), waiter{l, i})
	}
	a.poke()
}

func (a *asker) drop(id askID, w waiter) {
	g := a.by[id]
	if g == nil {
		return
	}
	if _, ok := g.items[w]; !ok {
		return
	}
	delete(g.items, w)
	a.n--
	if len(g.items) == 0 && !g.asking {
		delete(a.by, id)
	}
}

// good makes the pauses short again: a block came, and more will.
func (a *asker) good(id askID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if g := a.by[id]; g != nil && g.pause > askFirst {
		g.pause, g.due = askFirst, time.Now()
		a.poke()
	}
}

func (a *asker) poke() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

func (a *asker) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// run asks what is due, until there is nothing left to ask.
func (a *asker) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, over := a.start()
		if over {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-a.kick:
		case <-a.closing:
			a.mu.Lock()
			a.running = false
			a.mu.Unlock()
			return
		}
	}
}

// start begins the questions that are due, and says how long there will be none.
func (a *asker) start() (wait time.Duration, over bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.by) == 0 {
		a.running = false
		return 0, true
	}
	for a.asking < askAtOnce {
		var id askID
		var first *askGroup
		for k, g := range a.by {
			if !g.asking && (first == nil || g.due.Before(first.due)) {
				id, first = k, g
			}
		}
		if first == nil {
			break
		}
		due := first.due
		if due.Before(a.next) {
			due = a.next
		}
		now := time.Now()
		if wait := due.Sub(now); wait > 0 {
			return wait, false
		}
		a.next = now.Add(askSpacing)
		first.asking = true
		a.asking++
		by := first.some()
		a.wg.Go(func() { a.ask(id, first, by) })
	}
	return time.Hour, false // the end of a question kicks
}

// some are up to askKeys items of a group, others each time, by key. Whoever else waits
// for a block that is found is woken when it is here.
func (g *askGroup) some() map[wire.Key][]waiter {
	by := make(map[wire.Key][]waiter, min(len(g.items), askKeys))
	left := askKeys
	for w := range g.items {
		key := w.l.x.Items[w.i].Key
		by[key] = append(by[key], w)
		if left--; left == 0 {
			break
		}
	}
	return by
}

// ask asks one question, and tells who waits for what was found.
func (a *asker) ask(id askID, g *askGroup, by map[wire.Key][]waiter) {
	keys := make([]wire.Key, 0, len(by))
	for k := range by {
		keys = append(keys, k)
	}
	ctx, cancel := context.WithTimeout(a.ctx, askWithin)
	defer cancel()
	haves := a.host.FindRemote(ctx, id.ns, id.holder, keys)
	a.asked.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	found := false
	for k := range haves {
		if k >= len(keys) || haves[k].Status != wire.CodeOK && haves[k].Status != wire.CodeIncarnation {
			continue // of a holder that is gone for good the fetch brings the verdict
		}
		for _, w := range by[keys[k]] {
			if _, still := g.items[w]; still {
				found = true
				a.drop(id, w)
				w.l.s.post(w.l, false, func(ev *loadEvents) { ev.found = append(ev.found, w.i) })
			}
		}
	}
	if !found {
		g.pause = min(2*g.pause, askLast)
	}
	g.due = time.Now().Add(g.pause)
	g.asking = false
	a.asking--
	if len(g.items) == 0 {
		delete(a.by, id)
	}
	a.poke()
}
