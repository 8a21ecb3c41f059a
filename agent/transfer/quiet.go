package transfer

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
	mu      sync.Mutex
	waiting map[string]*noisy // by registry name; a fabric stays until it was quiet
}

// noisy is a fabric that may still touch memory.
type noisy struct {
	fabric fabric.Fabric
	back   []func() // what gives the slots back
}

// quietRetry is the pause after a Quiesce that failed.
const quietRetry = 100 * time.Millisecond

// hold keeps the slots whose items are loose; slot(i) is that of item i.
func (m *Mover) hold(name string, f fabric.Fabric, items []fabric.Item, slot func(i int) uint32) {
	var loose []uint32
	for i := range items {
		if items[i].Loose {
			loose = append(loose, slot(i))
		}
	}
	if len(loose) == 0 {
		return
	}
	back := m.cfg.Store.Loose(loose)
	q := &m.quiet
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = map[string]*noisy{}
	}
	n, runs := q.waiting[name]
	if !runs {
		n = &noisy{fabric: f}
		q.waiting[name] = n
	}
	n.back = append(n.back, back)
	if !runs {
		m.wg.Go(func() { m.drainQuarantine(name, n) })
	}
}

// drainQuarantine gives slots back until none waits for the fabric. Only those
// count that waited before Quiesce began.
func (m *Mover) drainQuarantine(name string, n *noisy) {
	q := &m.quiet
	for {
		q.mu.Lock()
		list := n.back
		if len(list) == 0 {
			delete(q.waiting, name)
			q.mu.Unlock()
			return
		}
		n.back = nil
		q.mu.Unlock()
		for n.fabric.Quiesce(m.ctx) != nil {
			if !sleep(m.ctx, quietRetry) {
				return
			}
		}
		for _, back := range list {
			back()
		}
	}
}

// settleQuarantine waits once more for the fabrics that were not quiet when the
// room ended. Nothing calls hold any more.
func (m *Mover) settleQuarantine(ctx context.Context) error {
	q := &m.quiet
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, n := range q.waiting {
		if err := n.fabric.Quiesce(ctx); err != nil {
			return fmt.Errorf("fabric %s may still touch the arena: %w", name, err)
		}
	}
	return nil
}
