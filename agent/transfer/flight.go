package transfer

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// Job is what one call of Fetch wants.
type Job struct {
	Owner     blocks.Owner // of a transient load
	For       blocks.Owner // whose share of the arena another load counts for; 0: the daemon's
	NS        wire.Namespace
	Keys      []wire.Key
	Transient bool // for this owner alone: not published, freed at its release
	// Among are the holders that may be asked, by registry name; nil: all of them.
	Among []string
	// First is a holder, by registry name, that is asked before the others: they are
	// asked for what it has not, or does not give in time. Refs, where there are any,
	// are its handles of the keys; a zero one is none.
	First string
	Refs  []fabric.Handle
	Alone bool // the others are not asked at all
	// Each hears of every key as soon as it is known what became of it, from several
	// goroutines, and returns at once; nil: nobody.
	Each func(i int, err error)
	// Turn is the request's place among those of the same asker, of TakeTurn; nil: it
	// stands behind nobody.
	Turn *Turn
}

// among are the holders that may be asked; nil: all.
func (j *Job) among() []string {
	if j.Alone {
		return []string{j.First}
	}
	return j.Among
}

func (j *Job) each(i int, err error) {
	if j.Each != nil {
		j.Each(i, err)
	}
}

// blockID names a block of any namespace. The key alone would not do: an engine
// may name another namespace's key, and must not hold up its loads by that.
type blockID struct {
	ns  wire.Namespace
	key wire.Key
}

// flightID names a load: one over few holders is not one over all.
type flightID struct {
	blockID
	scope string
}

// flight is the load of one block, for all who asked for it meanwhile.
type flight struct {
	done chan struct{}
	err  error // set before done is closed
}

// flights are the blocks that are being loaded: at most what the engines'
// requests name.
type flights struct {
	mu   sync.Mutex
	busy map[flightID]*flight
}

// waiter waits for a block that another call loads.
type waiter struct {
	i int // in the caller's slices
	f *flight
}

// Fetch makes keys present in the store and returns an error for each that
// could not be had. What had arrived when ctx ends is kept. A transient load
// belongs to its owner alone and is not shared.
func (m *Mover) Fetch(ctx context.Context, job Job) []error {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	defer job.Turn.begun()
	errs := make([]error, len(job.Keys))
	if job.Transient {
		m.load(ctx, job, errs, job.Each)
		return errs
	}
	job.Owner = cmp.Or(job.For, m.owner) // what is shared outlives the engine that asked first
	todo := make([]int, len(job.Keys))
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		mine, others := m.claim(job, todo)
		var flown sync.WaitGroup
		switch {
		case len(mine) == 0:
			job.Turn.begun() // it waits for others, who may stand behind it
		case len(others) == 0:
			m.fly(ctx, job, mine, errs)
		default:
			flown.Go(func() { m.fly(ctx, job, mine, errs) })
		}
		todo = todo[:0]
		for _, w := range others {
			errs[w.i] = w.wait(ctx)
			left := gaveUp(errs[w.i]) || job.For != 0 && errors.Is(errs[w.i], wire.CodeFull)
			if left && ctx.Err() == nil {
				todo, errs[w.i] = append(todo, w.i), nil // its caller left, or has no share left; this one is still there
				continue
			}
			job.each(w.i, errs[w.i])
		}
		flown.Wait()
	}
	return errs
}

// wait returns what became of the block. One that has landed counts, also where
// ctx has ended meanwhile.
func (w waiter) wait(ctx context.Context) error {
	select {
	case <-w.f.done:
		return w.f.err
	default:
	}
	select {
	case <-w.f.done:
		return w.f.err
	case <-ctx.Done():
		return fabric.ContextError(ctx, "")
	}
}

// claim splits todo into what this call loads and what is being loaded already,
// by another call or, where a key comes twice, by this one. What landed since the
// caller saw that it was missing is neither: a block is published before its
// flight ends, so that none can be missed in between and pulled again.
func (m *Mover) claim(job Job, todo []int) (mine []int, others []waiter) {
	var here []int
	defer func() {
		for _, i := range here {
			job.each(i, nil)
		}
	}()
	m.flights.mu.Lock()
	defer m.flights.mu.Unlock()
	if m.flights.busy == nil {
		m.flights.busy = map[flightID]*flight{}
	}
	scope := job.scope()
	for _, i := range todo {
		id := flightID{blockID{job.NS, job.Keys[i]}, scope}
		if f, ok := m.flights.busy[id]; ok {
			others = append(others, waiter{i, f})
			continue
		}
		if m.cfg.Store.Touch(job.NS, job.Keys[i:i+1]) == 1 {
			here = append(here, i)
			continue
		}
		m.flights.busy[id] = &flight{done: make(chan struct{})}
		mine = append(mine, i)
	}
	return mine, others
}

// fly loads what this call claimed and tells all who wait for it, block by block.
func (m *Mover) fly(ctx context.Context, job Job, mine []int, errs []error) {
	sub := job
	sub.Keys = make([]wire.Key, len(mine))
	if job.Refs != nil {
		sub.Refs = make([]fabric.Handle, len(mine))
	}
	for k, i := range mine {
		sub.Keys[k] = job.Keys[i]
		if job.Refs != nil {
			sub.Refs[k] = job.Refs[i]
		}
	}
	scope := job.scope()
	m.load(ctx, sub, make([]error, len(mine)), func(k int, err error) {
		i := mine[k]
		errs[i] = err
		m.land(flightID{blockID{job.NS, sub.Keys[k]}, scope}, err)
		job.each(i, err)
	})
}

// land ends the flight of one block.
func (m *Mover) land(id flightID, err error) {
	m.flights.mu.Lock()
	defer m.flights.mu.Unlock()
	f := m.flights.busy[id]
	f.err = err
	close(f.done)
	delete(m.flights.busy, id)
}

// Flying counts the blocks that are being loaded for any asker.
func (m *Mover) Flying() int {
	m.flights.mu.Lock()
	defer m.flights.mu.Unlock()
	return len(m.flights.busy)
}
