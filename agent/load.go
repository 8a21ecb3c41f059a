package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// Loading, in order (design.md, flow 3):
//
//  1. fetch      keys that somebody else is loading already are waited for
//  2. find       every holder is asked once for the whole rest
//  3. plan       each key goes to the first holder that has it
//  4. reserve    slots of the size the holder named, all or none a batch
//  5. pull       the fabric writes header and body into the slots, verified
//  6. commit     what is right becomes visible; the rest is aborted
//  7. heal       a body that arrived wrong is asked for again, once from each
//     other holder and once more from the same one
const (
	loadBatch      = 128              // blocks a pull
	loadBatchBytes = 64 << 20         // body bytes a pull
	loadAttempts   = 3                // a key, over all holders
	reserveTTL     = 60 * time.Second // a reservation that nobody ends is freed after it
)

// loader pulls what is missing here from other holders.
type loader struct {
	a     *Agent
	owner blocks.Owner // of shared loads: they outlive the engine that asked first

	mu   sync.Mutex
	busy map[wire.Key]chan struct{} // closed when the load of the key has ended
}

func newLoader(a *Agent) *loader {
	return &loader{a: a, owner: a.store.NewOwner(0), busy: map[wire.Key]chan struct{}{}}
}

// fetch makes keys present in the store and returns an error for each that
// could not be had. A transient load belongs to o alone and is not shared.
func (l *loader) fetch(ctx context.Context, o blocks.Owner, ns wire.Namespace, keys []wire.Key, transient bool) []error {
	errs := make([]error, len(keys))
	if transient {
		l.load(ctx, o, ns, keys, errs, true)
		return errs
	}
	todo := make([]int, len(keys))
	for i := range keys {
		todo[i] = i
	}
	for len(todo) > 0 {
		mine, others, wait := l.claim(keys, todo)
		if len(mine) > 0 {
			l.loadClaimed(ctx, ns, keys, mine, errs)
		}
		for _, c := range wait {
			select {
			case <-c:
			case <-ctx.Done():
				for _, i := range others {
					errs[i] = fabric.ContextError(ctx, "")
				}
				return errs
			}
		}
		// What others loaded is here now, unless their caller gave up: then it
		// is ours to try.
		todo = l.absent(ns, keys, others)
	}
	return errs
}

// claim splits todo into what this call loads and what others load already.
func (l *loader) claim(keys []wire.Key, todo []int) (mine, others []int, wait []chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := map[wire.Key]bool{}
	for _, i := range todo {
		c, ok := l.busy[keys[i]]
		switch {
		case ok && !own[keys[i]]:
			others, wait = append(others, i), append(wait, c)
		case ok: // the same key twice in one call
			others = append(others, i)
		default:
			l.busy[keys[i]] = make(chan struct{})
			own[keys[i]] = true
			mine = append(mine, i)
		}
	}
	return mine, others, wait
}

func (l *loader) loadClaimed(ctx context.Context, ns wire.Namespace, keys []wire.Key, mine []int, errs []error) {
	sub := make([]wire.Key, len(mine))
	subErrs := make([]error, len(mine))
	for k, i := range mine {
		sub[k] = keys[i]
	}
	defer func() {
		l.mu.Lock()
		for _, key := range sub {
			close(l.busy[key])
			delete(l.busy, key)
		}
		l.mu.Unlock()
		for k, i := range mine {
			errs[i] = subErrs[k]
		}
	}()
	l.load(ctx, l.owner, ns, sub, subErrs, false)
}

// absent returns those of idx whose key is not in the store.
func (l *loader) absent(ns wire.Namespace, keys []wire.Key, idx []int) []int {
	var out []int
	for _, i := range idx {
		var v [1]blocks.View
		if l.a.store.Lookup(ns, keys[i:i+1], v[:]) == 0 {
			out = append(out, i)
		}
	}
	return out
}

// wanted is one key on its way in.
type wanted struct {
	i        int // in the caller's slices
	from     []found
	attempts int
}

// load finds, pulls and commits keys; errs gets one entry a key.
func (l *loader) load(ctx context.Context, o blocks.Owner, ns wire.Namespace, keys []wire.Key, errs []error, transient bool) {
	items := make([]fabric.Item, len(keys))
	for i, k := range keys {
		items[i] = fabric.Item{NS: ns, Key: k}
		errs[i] = wire.CodeAbsent
	}
	holders := l.a.holders(ns)
	var queue []wanted
	for i, f := range find(ctx, holders, items) {
		if len(f) > 0 {
			queue = append(queue, wanted{i: i, from: f})
		}
	}
	for len(queue) > 0 && ctx.Err() == nil {
		batch, rest := nextBatch(queue)
		queue = append(rest, l.pull(ctx, o, ns, keys, holders, batch, errs, transient)...)
	}
	if ctx.Err() != nil {
		for _, w := range queue {
			errs[w.i] = fabric.ContextError(ctx, "")
		}
	}
}

// nextBatch takes wanted blocks of one holder off the queue, bounded in count
// and bytes.
func nextBatch(queue []wanted) (batch, rest []wanted) {
	bytes := 0
	for _, w := range queue {
		n := int(w.from[0].head.BodyLen)
		if w.from[0].holder != queue[0].from[0].holder || len(batch) >= loadBatch ||
			(len(batch) > 0 && bytes+n > loadBatchBytes) {
			rest = append(rest, w)
			continue
		}
		batch, bytes = append(batch, w), bytes+n
	}
	return batch, rest
}

// pull moves one batch from one holder and returns those to try again.
func (l *loader) pull(ctx context.Context, o blocks.Owner, ns wire.Namespace, keys []wire.Key, holders []holder, batch []wanted, errs []error, transient bool) (again []wanted) {
	sizes := make([]uint32, len(batch))
	for k, w := range batch {
		sizes[k] = w.from[0].head.BodyLen
	}
	views, err := l.a.store.Reserve(o, ns, sizes, reserveTTL)
	if err != nil {
		if errors.Is(err, wire.CodeFull) && len(batch) > 1 {
			half := len(batch) / 2
			again = l.pull(ctx, o, ns, keys, holders, batch[:half], errs, transient)
			return append(again, l.pull(ctx, o, ns, keys, holders, batch[half:], errs, transient)...)
		}
		for _, w := range batch {
			errs[w.i] = err
		}
		return nil
	}
	h := holders[batch[0].from[0].holder]
	items := make([]fabric.Item, len(batch))
	for k, w := range batch {
		items[k] = fabric.Item{NS: ns, Key: keys[w.i], H: w.from[0].h, M: fabric.Mem{B: l.a.store.Room(views[k]), Seg: views[k].Seg, Off: views[k].Off}}
	}
	l.a.transfer(h, dirIn, "pull", items, func() { h.Pull(ctx, items) })
	l.settle(o, ns, views, items, transient)
	l.quarantine(h.Fabric, views, items)
	for k, w := range batch {
		errs[w.i] = items[k].Err
		if w.next(items[k].Err) {
			again = append(again, w)
		}
	}
	return again
}

// next says whether to try again, and turns to another holder when there is one.
func (w *wanted) next(err error) bool {
	if err == nil || errors.Is(err, wire.CodeFull) || errors.Is(err, wire.CodeCancelled) || errors.Is(err, wire.CodeDeadline) {
		return false
	}
	w.attempts++
	if len(w.from) > 1 {
		w.from = append(w.from[1:len(w.from):len(w.from)], w.from[0])
	} else if errors.Is(err, wire.CodeAbsent) {
		return false
	} else {
		// The slot that the handle names may be gone after a reconnect: by key.
		w.from = []found{{holder: w.from[0].holder, head: w.from[0].head}}
	}
	return w.attempts < loadAttempts
}

// settle commits the items that arrived and aborts the others. A block that was
// pulled is a copy: the reader's lease protects it for as long as its request
// needs it, and afterwards it is prefix cache like any other. So it is held as
// ThinkComplete, whatever its header says, and never crowds out the blocks of
// requests that run.
func (l *loader) settle(o blocks.Owner, ns wire.Namespace, views []blocks.View, items []fabric.Item, transient bool) {
	commits := make([]blocks.Commit, 0, len(items))
	at := make([]int, 0, len(items))
	var gone []uint32
	for k := range items {
		if items[k].Err != nil {
			if !items[k].Loose {
				gone = append(gone, views[k].Ref.Slot)
			}
			continue
		}
		commits = append(commits, blocks.Commit{
			Slot: views[k].Ref.Slot, Gen: views[k].Ref.Gen, NS: ns, Key: items[k].Key, Tier: wire.ThinkComplete,
			Head: &items[k].Head, Att: wire.AttestProducer, Transient: transient,
		})
		at = append(at, k)
	}
	l.a.store.Commit(o, commits)
	for c, k := range at {
		if err := commits[c].Err; err != nil && !errors.Is(err, wire.CodeExists) {
			items[k].Err = err
		}
	}
	l.a.store.Abort(o, gone)
}

// quarantine keeps slots that a fabric may still write out of reuse until the
// fabric says that it is quiet (I8).
func (l *loader) quarantine(f fabric.Fabric, views []blocks.View, items []fabric.Item) {
	var loose []uint32
	for k := range items {
		if items[k].Loose {
			loose = append(loose, views[k].Ref.Slot)
		}
	}
	if len(loose) == 0 {
		return
	}
	quiet := l.a.store.Loose(loose)
	l.a.background(func(ctx context.Context) {
		if f.Quiesce(ctx) == nil {
			quiet()
		}
	})
}
