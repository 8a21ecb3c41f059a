package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"meridian/wire"
	"meridian/wire/link"
)

// renewer renews leases at a third of the shortest time among them, so that one
// lost round does no harm.
type renewer struct {
	e *Engine

	mu      sync.Mutex
	leases  map[*Lease]kept
	timer   *time.Timer
	every   time.Duration
	stopped bool
}

// kept is what a renewal needs; a Lease may be released while it runs.
type kept struct {
	id  [16]byte
	ttl time.Duration
}

func (r *renewer) add(l *Lease, ttl time.Duration) {
	if ttl <= 0 || ttl > link.MaxLease {
		ttl = link.MaxLease
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	if r.leases == nil {
		r.leases = map[*Lease]kept{}
	}
	if every := max(ttl/3, time.Millisecond); len(r.leases) == 0 || every < r.every {
		r.every = every
		if r.timer == nil {
			r.timer = time.AfterFunc(r.every, r.round)
		} else {
			r.timer.Reset(r.every)
		}
	}
	l.kept = true
	r.leases[l] = kept{l.id, ttl}
}

func (r *renewer) remove(l *Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.kept = false
	delete(r.leases, l)
	if len(r.leases) == 0 && r.timer != nil {
		r.timer.Stop()
	}
}

// round renews all leases once, and then sets the time of the next round.
func (r *renewer) round() {
	r.mu.Lock()
	all := make(map[*Lease]kept, len(r.leases))
	for l, k := range r.leases {
		all[l] = k
	}
	every := r.every
	r.mu.Unlock()
	for l, k := range all {
		ctx, end := context.WithTimeout(context.Background(), every)
		err := r.e.renew(ctx, k.id, k.ttl)
		end()
		if errors.Is(err, wire.CodeLeaseLost) {
			r.drop(l, k)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.leases) > 0 && !r.stopped {
		r.timer.Reset(r.every)
	}
}

// drop marks a lease as lost, unless it was released, and perhaps taken again,
// meanwhile.
func (r *renewer) drop(l *Lease, k kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now, ok := r.leases[l]; ok && now.id == k.id {
		delete(r.leases, l)
		l.lost.Store(true)
	}
}

func (r *renewer) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
