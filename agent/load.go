package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// Loading, in order (design.md, flow 3):
//
//  1. fetch      keys that somebody else is loading already are waited for (flight.go)
//  2. find       every holder that may know the tenant is asked once for the whole rest
//  3. plan       each key goes to the first holder that has it
//  4. reserve    slots of the size the holder named, all or none a batch
//  5. pull       the fabric writes header and body into the slots, verified
//  6. commit     what is right becomes visible; the rest is aborted
//  7. heal       a body that arrived wrong is asked for again, of the next holder,
//     or of the same one where there is no other
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
	busy map[blockID]*flight // at most what the engines' requests in flight name
}

func newLoader(a *Agent) *loader {
	return &loader{a: a, owner: a.store.NewOwner(0), busy: map[blockID]*flight{}}
}

// loadJob is what one call of fetch wants.
type loadJob struct {
	owner     blocks.Owner
	ns        wire.Namespace
	keys      []wire.Key
	transient bool
}

// wanted is one key on its way in.
type wanted struct {
	i        int // in the job's keys
	from     []found
	attempts int
}

// load finds, pulls and commits a job's keys; errs gets one entry a key.
func (l *loader) load(ctx context.Context, job loadJob, errs []error) {
	items := make([]fabric.Item, len(job.keys))
	for i, k := range job.keys {
		items[i] = fabric.Item{NS: job.ns, Key: k}
	}
	holders := l.a.holders(job.ns)
	answers, missing := find(ctx, holders, items)
	var queue []wanted
	for i, f := range answers {
		if errs[i] = missing[i]; len(f) > 0 {
			queue = append(queue, wanted{i: i, from: f})
		}
	}
	for len(queue) > 0 && ctx.Err() == nil {
		batch, rest := nextBatch(queue)
		queue = append(rest, l.pull(ctx, job, holders, batch, errs)...)
	}
	for _, w := range queue { // ctx ended
		errs[w.i] = fabric.ContextError(ctx, "")
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

// pull moves one batch from one holder and returns those to try again. A batch
// that does not fit is halved, down to single blocks: what is refused then
// carries need and free.
func (l *loader) pull(ctx context.Context, job loadJob, holders []holder, batch []wanted, errs []error) (again []wanted) {
	sizes := make([]uint32, len(batch))
	for k, w := range batch {
		sizes[k] = w.from[0].head.BodyLen
	}
	_, span := l.a.tracer.Start(ctx, "meridian.reserve")
	views, err := l.a.store.Reserve(job.owner, job.ns, sizes, reserveTTL)
	span.End()
	if err != nil {
		if errors.Is(err, wire.CodeFull) && len(batch) > 1 {
			half := len(batch) / 2
			again = l.pull(ctx, job, holders, batch[:half], errs)
			return append(again, l.pull(ctx, job, holders, batch[half:], errs)...)
		}
		for _, w := range batch {
			errs[w.i] = err
		}
		return nil
	}
	h := holders[batch[0].from[0].holder]
	items := make([]fabric.Item, len(batch))
	for k, w := range batch {
		items[k] = fabric.Item{NS: job.ns, Key: job.keys[w.i], H: w.from[0].h, M: fabric.Mem{B: l.a.store.Room(views[k]), Seg: views[k].Seg, Off: views[k].Off}}
	}
	l.a.transfer(ctx, h, dirIn, "pull", proto.ClassUrgent, items, func(ctx context.Context) { h.Pull(ctx, items) })
	l.a.quiet.hold(h.Fabric, items, func(k int) uint32 { return views[k].Ref.Slot })
	_, span = l.a.tracer.Start(ctx, "meridian.commit")
	l.settle(job, views, items)
	span.End()
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
	if err == nil || errors.Is(err, wire.CodeFull) || gaveUp(err) {
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

// settle commits the items that arrived and aborts the others; loose slots are
// aborted too, and stay out of use by their quarantine. A block that was
// pulled is a copy: the reader's lease protects it for as long as its request
// needs it, and afterwards it is prefix cache like any other. So it is held as
// ThinkComplete, whatever its header says, and never crowds out the blocks of
// requests that run.
func (l *loader) settle(job loadJob, views []blocks.View, items []fabric.Item) {
	commits := make([]blocks.Commit, 0, len(items))
	at := make([]int, 0, len(items))
	var gone []uint32
	for k := range items {
		if items[k].Err != nil {
			gone = append(gone, views[k].Ref.Slot)
			continue
		}
		commits = append(commits, blocks.Commit{
			Slot: views[k].Ref.Slot, Gen: views[k].Ref.Gen, NS: job.ns, Key: items[k].Key, Tier: wire.ThinkComplete,
			Head: &items[k].Head, Att: items[k].Att, Transient: job.transient, Proof: items[k].Proof,
		})
		at = append(at, k)
	}
	l.a.store.Commit(job.owner, commits)
	for c, k := range at {
		if err := commits[c].Err; err != nil && !errors.Is(err, wire.CodeExists) {
			items[k].Err = err
		}
	}
	l.a.store.Abort(job.owner, gone)
}
