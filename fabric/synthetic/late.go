package synthetic

import (
	"context"
	"hash/maphash"
	"time"

	"meridian/fabric"
)

// lateOp is an access that happens after its item has failed. The memory was
// loose from the item's end until done is closed.
type lateOp struct {
	m      []byte
	touch  func() // writes m, or moves it on; nil: m is only read
	before uint64 // hash of m when the item ended
	timed  bool   // a goroutine performs it; else Quiesce does
	taken  bool   // somebody performs it; guarded by Fabric.mu
	done   chan struct{}
}

var lateSeed = maphash.MakeSeed()

// loosen registers op; false when nothing will be touched late.
func (f *Fabric) loosen(op *lateOp, after time.Duration) bool {
	if op == nil {
		return false
	}
	op.before = maphash.Bytes(lateSeed, op.m)
	op.timed = after > 0
	op.done = make(chan struct{})
	f.mu.Lock()
	if len(f.loose) >= MaxLoose {
		f.mu.Unlock()
		return false
	}
	f.loose[op] = struct{}{}
	f.mu.Unlock()
	if op.timed {
		go func() {
			_ = f.opt.Wait(f.ctx, after)
			f.perform(op)
		}()
	}
	return true
}

// perform does the access once; a second caller returns at once.
func (f *Fabric) perform(op *lateOp) {
	f.mu.Lock()
	if op.taken {
		f.mu.Unlock()
		return
	}
	op.taken = true
	f.mu.Unlock()

	changed := maphash.Bytes(lateSeed, op.m) != op.before
	if op.touch != nil {
		op.touch()
	}
	f.mu.Lock()
	delete(f.loose, op)
	f.lateDone++
	if changed {
		f.reused++
	}
	f.mu.Unlock()
	close(op.done)
}

// outstanding is a snapshot of the late accesses.
func (f *Fabric) outstanding() []*lateOp {
	f.mu.Lock()
	defer f.mu.Unlock()
	ops := make([]*lateOp, 0, len(f.loose))
	for op := range f.loose {
		ops = append(ops, op)
	}
	return ops
}

// Quiesce waits for the late accesses that were outstanding when it began, and
// performs those that wait for it.
func (f *Fabric) Quiesce(ctx context.Context) error {
	for _, op := range f.outstanding() {
		if !op.timed {
			f.perform(op)
		}
		select {
		case <-op.done:
		case <-ctx.Done():
			return fabric.ContextError(ctx, Label)
		}
	}
	return nil
}

// finishLoose performs all late accesses now.
func (f *Fabric) finishLoose() {
	for _, op := range f.outstanding() {
		f.perform(op)
		<-op.done
	}
}
