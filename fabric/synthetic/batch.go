package synthetic

import (
	"context"
	"fmt"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// batch is one call on its way. The flow, in order:
//
//  1. admit: closed, a dead context or a batch above the limit end items here;
//  2. judge: the faults decide what happens to each message, in batch order;
//  3. arrive: messages are handled one after the other in order of arrival,
//     with the waits between them; do moves the bytes;
//  4. late and lost messages end their items without do.
//
// Everything runs on the caller's goroutine; only step 4 may leave a lateOp.
type batch struct {
	f      *Fabric
	n      int
	access func(i int) access
	do     func(i int, v verdict) error // v.dup: the second copy of a message that was handled
	late   func(i int) (*lateOp, error) // nil op: nothing there to touch late
	end    func(i int, loose bool, err error)
}

func (b *batch) run(ctx context.Context) {
	if err := b.f.enter(); err != nil {
		b.endAll(err)
		return
	}
	defer b.f.calls.Done()
	if err := fabric.ContextError(ctx, Label); err != nil {
		b.endAll(err)
		return
	}
	n := min(b.n, b.f.opt.MaxBatch)
	for i := n; i < b.n; i++ {
		b.end(i, false, &fabric.Error{Code: wire.CodeTooMany, Fabric: Label, Have: uint64(n), Need: uint64(b.n)})
	}
	verdicts := make([]verdict, n)
	order := make([]int, n)
	for i := range n {
		verdicts[i], order[i] = b.f.inj.judge(b.access(i)), i
	}
	sortByArrival(order, verdicts)
	b.arrive(ctx, order, verdicts)
}

// arrive handles the messages in order; dropped ones are waited for at the end.
func (b *batch) arrive(ctx context.Context, order []int, verdicts []verdict) {
	var now time.Duration
	var lost []int
	for _, i := range order {
		v := verdicts[i]
		if v.drop {
			lost = append(lost, i)
			continue
		}
		if v.delay > now {
			b.f.wait(ctx, v.delay-now)
			now = v.delay
		}
		if err := b.f.ended(ctx); err != nil {
			b.end(i, false, err)
			continue
		}
		if v.down {
			b.f.disconnect(v.downFor)
		}
		if err := b.f.reach(); err != nil {
			b.end(i, false, err)
			continue
		}
		b.handle(i, v)
	}
	if len(lost) == 0 {
		return
	}
	b.f.wait(ctx, b.f.opt.Timeout)
	err := b.f.ended(ctx)
	if err == nil {
		err = &fabric.Error{Code: wire.CodeNoProgress, Fabric: Label, Text: fmt.Sprintf("no answer for %v", b.f.opt.Timeout)}
	}
	for _, i := range lost {
		b.end(i, false, err)
	}
}

func (b *batch) handle(i int, v verdict) {
	if v.full {
		b.end(i, false, &fabric.Error{Code: wire.CodeFull, Fabric: Label, Text: "by a fault"})
		return
	}
	if v.late {
		op, err := b.late(i)
		if err != nil {
			b.end(i, false, err)
			return
		}
		loose := b.f.loosen(op, v.lateFor)
		b.end(i, loose, &fabric.Error{Code: wire.CodeDeadline, Fabric: Label, Text: "late by a fault"})
		return
	}
	twice := v.dup
	v.dup = false
	err := b.do(i, v)
	if twice && err == nil {
		err = b.do(i, verdict{dup: true})
	}
	b.end(i, false, err)
}

func (b *batch) endAll(err error) {
	for i := range b.n {
		b.end(i, false, err)
	}
}

// wait blocks for d, or until ctx or the endpoint ends.
func (f *Fabric) wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	_ = f.opt.Wait(ctx, d)
}

// ended is why a call is over before its end: the endpoint's end or the caller's.
func (f *Fabric) ended(ctx context.Context) error {
	if f.ctx.Err() != nil {
		return &fabric.Error{Code: wire.CodeUnreachable, Fabric: Label, Text: "the fabric was closed"}
	}
	return fabric.ContextError(ctx, Label)
}
