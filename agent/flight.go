package agent

import (
	"context"
	"errors"

	"meridian/fabric"
	"meridian/wire"
)

// blockID names a block of any namespace. The key alone would not do: an engine
// may name another namespace's key, and must not hold up its loads by that.
type blockID struct {
	ns  wire.Namespace
	key wire.Key
}

// flight is the load of one block, for all who asked for it meanwhile.
type flight struct {
	done chan struct{}
	err  error // set before done is closed
}

// passenger waits for a flight that another call made.
type passenger struct {
	i int // in the caller's slices
	f *flight
}

// fetch makes keys present in the store and returns an error for each that
// could not be had. A transient load belongs to o alone and is not shared.
func (l *loader) fetch(ctx context.Context, job loadJob) []error {
	errs := make([]error, len(job.keys))
	if job.transient {
		l.load(ctx, job, errs)
		return errs
	}
	job.owner = l.owner // what is shared outlives the engine that asked first
	todo := make([]int, len(job.keys))
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		mine, others := l.claim(job, todo)
		if len(mine) > 0 {
			l.fly(ctx, job, mine, errs)
		}
		todo = todo[:0]
		for _, p := range others {
			select {
			case <-p.f.done:
				errs[p.i] = p.f.err
			case <-ctx.Done():
				errs[p.i] = fabric.ContextError(ctx, "")
				continue
			}
			if gaveUp(p.f.err) && ctx.Err() == nil {
				todo, errs[p.i] = append(todo, p.i), nil // its caller left; this one is still there
			}
		}
	}
	return errs
}

// gaveUp says whether a load ended because of who asked, not of what was asked.
func gaveUp(err error) bool {
	return errors.Is(err, wire.CodeCancelled) || errors.Is(err, wire.CodeDeadline)
}

// claim splits todo into what this call loads and what is being loaded already,
// by another call or, where a key comes twice, by this one. What landed since the
// caller saw that it was missing is neither: a block is published before its
// flight ends, so that none can be missed in between and pulled again.
func (l *loader) claim(job loadJob, todo []int) (mine []int, others []passenger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range todo {
		id := blockID{job.ns, job.keys[i]}
		if f, ok := l.busy[id]; ok {
			others = append(others, passenger{i, f})
			continue
		}
		if l.a.store.Touch(job.ns, job.keys[i:i+1]) == 1 {
			continue
		}
		l.busy[id] = &flight{done: make(chan struct{})}
		mine = append(mine, i)
	}
	return mine, others
}

// fly loads what this call claimed and tells all who wait for it.
func (l *loader) fly(ctx context.Context, job loadJob, mine []int, errs []error) {
	sub := job
	sub.keys = make([]wire.Key, len(mine))
	for k, i := range mine {
		sub.keys[k] = job.keys[i]
	}
	subErrs := make([]error, len(mine))
	l.load(ctx, sub, subErrs)
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, i := range mine {
		errs[i] = subErrs[k]
		id := blockID{job.ns, sub.keys[k]}
		f := l.busy[id]
		f.err = subErrs[k]
		close(f.done)
		delete(l.busy, id)
	}
}
