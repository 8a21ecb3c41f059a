package engine

import (
	"fmt"
	"sync"
	"sync/atomic"

	"meridian/blocks"
	"meridian/wire"
)

// waits are the blocks that LOADs of all sessions wait for, by name. Whatever
// publishes a block here, a PUT, a push of a peer, a foreign fabric's ingest or
// another load, wakes those that wait for it.
//
// An item is added before its look-up: then it either finds the block, or is woken.
// It stays until it is granted or given up, since a block may be evicted before
// its lease is taken. The store says nothing while nobody waits, which costs a
// publisher one branch.
//
// mu comes before the store's lock and before a session's loads.mu.
type waits struct {
	store *blocks.Store

	mu sync.Mutex
	by map[blockID][]waiter
	n  int

	woken, expired atomic.Uint64 // items
}

// waiter is an item of a LOAD.
type waiter struct {
	l *load
	i int32
}

func newWaits(store *blocks.Store) *waits {
	w := &waits{store: store, by: map[blockID][]waiter{}}
	store.OnPublish(w.published)
	return w
}

// add notes items of a load, by index.
func (w *waits) add(l *load, items []int32) {
	if len(items) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == 0 {
		w.store.Watch(true)
	}
	w.n += len(items)
	for _, i := range items {
		id := l.id(i)
		l.waitAt[i] = int32(len(w.by[id]))
		w.by[id] = append(w.by[id], waiter{l, i})
	}
}

// remove forgets items of a load that were added. However many wait for the same
// block, each is found at once.
func (w *waits) remove(l *load, items []int32) {
	if len(items) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range items {
		id := l.id(i)
		list := w.by[id]
		w.n--
		if len(list) == 1 {
			delete(w.by, id)
			continue
		}
		last := list[len(list)-1]
		list[l.waitAt[i]] = last
		last.l.waitAt[last.i] = l.waitAt[i]
		list[len(list)-1] = waiter{}
		w.by[id] = list[:len(list)-1]
	}
	if w.n == 0 {
		w.store.Watch(false)
	}
}

// published is called by the store, on the publisher's goroutine. It waits for
// nobody.
func (w *waits) published(p []blocks.Published) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range p {
		for _, x := range w.by[blockID{p[i].NS, p[i].Key}] {
			x.l.s.wake(x.l, x.i)
		}
	}
}

// waiting counts the items.
func (w *waits) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// parkedWith is how many items LOADs that wait may have in all, those that are here or
// decided included, for each that Limits.ParkedItems lets them wait for: they are
// remembered as long as their LOAD, some 70 bytes each.
const parkedWith = 4

// parking bounds what a group's LOADs wait for, and what is remembered of them.
type parking struct {
	mu           sync.Mutex
	loads, items int
	all          int // items, also those that are not waited for
}

// enter counts a LOAD that waits for so many items of all, or says which limit is
// reached.
func (p *parking) enter(items, all int, most *Limits) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.loads >= most.ParkedLoads:
		return fmt.Errorf("%d LOADs of this engine wait for blocks, the limit engine.max_parked_loads is %d: %w", p.loads, most.ParkedLoads, wire.CodeBusy)
	case p.items+items > most.ParkedItems:
		return fmt.Errorf("LOADs of this engine would wait for %d blocks, the limit engine.max_parked_blocks is %d: %w", p.items+items, most.ParkedItems, wire.CodeBusy)
	case p.all+all > parkedWith*most.ParkedItems:
		return fmt.Errorf("LOADs of this engine that wait would have %d blocks in all, the limit is %d, %d times engine.max_parked_blocks: %w",
			p.all+all, parkedWith*most.ParkedItems, parkedWith, wire.CodeBusy)
	}
	p.loads++
	p.items += items
	p.all += all
	return nil
}

// leave takes a LOAD out.
func (p *parking) leave(items, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loads--
	p.items -= items
	p.all -= all
}

func (p *parking) counts() (loads, items int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loads, p.items
}
