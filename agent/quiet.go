package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"meridian/fabric"
)

// quarantine keeps slots that a fabric may still touch after a failed transfer
// out of use until that fabric says that it is quiet (I8). There is at most one
// goroutine a fabric, however many transfers failed.
type quarantine struct {
	a *Agent

	mu      sync.Mutex
	waiting map[fabric.Fabric][]func() // what gives the slots back; a fabric stays until it was quiet
}

// quietRetry is the pause after a Quiesce that failed.
const quietRetry = 100 * time.Millisecond

// hold keeps the slots whose items are loose; slot(i) is that of item i.
func (q *quarantine) hold(f fabric.Fabric, items []fabric.Item, slot func(i int) uint32) {
	var loose []uint32
	for i := range items {
		if items[i].Loose {
			loose = append(loose, slot(i))
		}
	}
	if len(loose) == 0 {
		return
	}
	back := q.a.store.Loose(loose)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = map[fabric.Fabric][]func(){}
	}
	list, runs := q.waiting[f]
	q.waiting[f] = append(list, back)
	if !runs {
		q.a.background(func(ctx context.Context) { q.drain(ctx, f) })
	}
}

// drain gives slots back until none waits for f. Only those count that waited
// before Quiesce began.
func (q *quarantine) drain(ctx context.Context, f fabric.Fabric) {
	for {
		q.mu.Lock()
		list := q.waiting[f]
		if len(list) == 0 {
			delete(q.waiting, f)
			q.mu.Unlock()
			return
		}
		q.waiting[f] = nil
		q.mu.Unlock()
		for f.Quiesce(ctx) != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(quietRetry):
			}
		}
		for _, back := range list {
			back()
		}
	}
}

// settle waits once more for the fabrics that were not quiet when the daemon
// stopped. Nothing calls hold any more.
func (q *quarantine) settle(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for f := range q.waiting {
		if err := f.Quiesce(ctx); err != nil {
			return fmt.Errorf("fabric %s may still touch the arena: %w", f.Label(), err)
		}
	}
	return nil
}
