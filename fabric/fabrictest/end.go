package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

func endChecks() []Check {
	return []Check{
		{Name: "context that is over before the call", Run: checkDeadContext},
		{Name: "cancelled calls leave memory quiet", Run: checkCancel},
		{Name: "cancelled push is whole or absent", Run: checkCancelledPush},
		{Name: "calls after Close", Run: checkClosed},
		{Name: "Close during calls", Run: checkCloseDuring},
	}
}

func checkDeadContext(ctx context.Context, h *Harness) error {
	b := h.newBlock("alive", 400, wire.ThinkActive)
	if err := h.push(ctx, b); err != nil {
		return err
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	overdue, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
	defer cancel()
	for _, end := range []struct {
		ctx  context.Context
		code wire.Code
	}{{cancelled, wire.CodeCancelled}, {overdue, wire.CodeDeadline}} {
		fresh := h.newBlock("stillborn "+end.code.String(), 400, wire.ThinkActive)
		push := []fabric.Item{h.pushItem(fresh), h.pushItem(fresh)}
		h.Fabric.Push(end.ctx, push)
		it, _ := h.pullItem(b, len(b.payload))
		pull := []fabric.Item{it, it}
		h.far().Pull(end.ctx, pull)
		for _, it := range append(push, pull...) {
			if err := refused("call under a context that was over", it.Err, end.code); err != nil {
				return err
			}
		}
	}
	return h.pull(ctx, 0, b)
}

// countdown is a context that ends at its n-th use, so that the end falls at
// another place inside the fabric for each n, without a clock.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	left   *atomic.Int64
}

func newCountdown(parent context.Context, n int64) countdown {
	ctx, cancel := context.WithCancel(parent)
	c := countdown{Context: ctx, cancel: cancel, left: new(atomic.Int64)}
	c.left.Store(n)
	return c
}

func (c countdown) use() {
	if c.left.Add(-1) <= 0 {
		c.cancel()
	}
}

// Done counts as a use.
func (c countdown) Done() <-chan struct{} { c.use(); return c.Context.Done() }

// Err counts as a use.
func (c countdown) Err() error { c.use(); return c.Context.Err() }

// cancelPoints is how many places a check cancels at.
const cancelPoints = 16

// interrupted runs call with contexts that end at ever later places, and with
// some that another goroutine ends meanwhile.
func interrupted(ctx context.Context, call func(ctx context.Context, round int) error) error {
	for n := range cancelPoints {
		c := newCountdown(ctx, int64(n+1))
		err := call(c, n)
		c.cancel()
		if err != nil {
			return fmt.Errorf("context ended at use %d: %w", n+1, err)
		}
	}
	for n := range cancelPoints {
		c, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		started := make(chan struct{})
		wg.Go(func() { <-started; cancel() })
		close(started)
		err := call(c, cancelPoints+n)
		wg.Wait()
		if err != nil {
			return fmt.Errorf("context ended by another goroutine: %w", err)
		}
	}
	return nil
}

// ended checks what an item of an interrupted call may say.
func ended(it *fabric.Item) error {
	if it.Err == nil {
		if it.Loose {
			return errLoose
		}
		return nil
	}
	return refused("item of an interrupted call", it.Err, wire.CodeCancelled, wire.CodeDeadline)
}

// settle lets things happen that a fabric has left under way.
func (h *Harness) settle(ctx context.Context, round int) error {
	if h.Settle != nil {
		h.Settle()
		return nil
	}
	other := h.newBlocks(fmt.Sprintf("traffic-%d", round), 2, 600)
	if err := h.push(ctx, other...); err != nil {
		return fmt.Errorf("traffic after an interrupted call: %w", err)
	}
	if err := h.pull(ctx, 0, other...); err != nil {
		return fmt.Errorf("traffic after an interrupted call: %w", err)
	}
	return nil
}

// checkCancel: what a call leaves loose is quiet after Quiesce, and what it does
// not leave loose is quiet at once.
func checkCancel(ctx context.Context, h *Harness) error {
	list := h.newBlocks("cancel", 6, min(h.maxBody(), 16<<10))
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	var ours [][]byte // memory that is ours again, painted
	quiet := func() error {
		for _, m := range ours {
			if at := unpainted(m); at >= 0 {
				return fmt.Errorf("byte %d of memory that was not loose any more was touched", at)
			}
		}
		return nil
	}
	err := interrupted(ctx, func(cut context.Context, round int) error {
		items := make([]fabric.Item, len(list))
		for i, b := range list {
			items[i], _ = h.pullItem(b, len(b.payload))
		}
		h.far().Pull(cut, items)
		var loose [][]byte
		for i := range items {
			if err := ended(&items[i]); err != nil {
				return err
			}
			if items[i].Err == nil {
				if err := h.pulled(list[i], &items[i]); err != nil {
					return err
				}
			}
			if items[i].Loose {
				loose = append(loose, items[i].M.B)
				continue
			}
			paint(items[i].M.B)
			ours = append(ours, items[i].M.B)
		}
		if err := h.far().Quiesce(ctx); err != nil {
			return fmt.Errorf("quiesce: %w", err)
		}
		for _, m := range loose {
			paint(m)
		}
		ours = append(ours, loose...)
		if err := h.settle(ctx, round); err != nil {
			return err
		}
		return quiet()
	})
	if err != nil {
		return err
	}
	if err := errors.Join(h.Fabric.Close(), h.far().Close()); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return quiet()
}

// checkCancelledPush: nothing half-written is ever served, and a push that
// answered OK is there.
func checkCancelledPush(ctx context.Context, h *Harness) error {
	return interrupted(ctx, func(cut context.Context, round int) error {
		list := h.newBlocks(fmt.Sprintf("torn-%d", round), 4, min(h.maxBody(), 16<<10))
		items := make([]fabric.Item, len(list))
		for i, b := range list {
			items[i] = h.pushItem(b)
		}
		h.Fabric.Push(cut, items)
		if err := h.Fabric.Quiesce(ctx); err != nil {
			return fmt.Errorf("quiesce: %w", err)
		}
		for i := range items {
			if err := ended(&items[i]); err != nil {
				return err
			}
			paint(items[i].M.B)
		}
		for i, b := range list {
			it, _ := h.pullItem(b.byKey(), len(b.payload))
			pull := []fabric.Item{it}
			h.far().Pull(ctx, pull)
			if items[i].Err != nil && errors.Is(pull[0].Err, wire.CodeAbsent) {
				continue
			}
			if err := h.pulled(b, &pull[0]); err != nil {
				return fmt.Errorf("block of an interrupted push that ended with %d: %w", uint16(wire.CodeOf(items[i].Err)), err)
			}
		}
		return nil
	})
}

func checkClosed(ctx context.Context, h *Harness) error {
	b := h.newBlock("before", 100, wire.ThinkActive)
	if err := h.push(ctx, b); err != nil {
		return err
	}
	for range 2 {
		if err := h.Fabric.Close(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
	}
	late := h.newBlock("after", 100, wire.ThinkActive)
	push := []fabric.Item{h.pushItem(late), h.pushItem(late)}
	h.Fabric.Push(ctx, push)
	it, _ := h.pullItem(b, len(b.payload))
	pull := []fabric.Item{it}
	h.Fabric.Pull(ctx, pull)
	for _, it := range append(push, pull...) {
		if err := refused("call after Close", it.Err, wire.CodeUnreachable, wire.CodeDraining, wire.CodeLaneLost, wire.CodeCancelled); err != nil {
			return err
		}
		if it.Loose {
			return errors.New("an item of a closed fabric is loose")
		}
	}
	if err := h.Fabric.Quiesce(ctx); err != nil {
		return fmt.Errorf("quiesce after close: %w", err)
	}
	return nil
}

// checkCloseDuring: calls under way end, each item with its bytes or an error,
// and once Close has returned memory is quiet.
func checkCloseDuring(ctx context.Context, h *Harness) error {
	list := h.newBlocks("closing", 4, min(h.maxBody(), 16<<10))
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	const pullers = 4
	errs := make([]error, pullers)
	var ours [pullers][][]byte
	var wg, running sync.WaitGroup
	running.Add(pullers)
	for p := range pullers {
		wg.Go(func() {
			for round := 0; ; round++ {
				items := make([]fabric.Item, len(list))
				for i, b := range list {
					items[i], _ = h.pullItem(b, len(b.payload))
				}
				h.Fabric.Pull(ctx, items)
				if round == 0 {
					running.Done()
				}
				failed := false
				for i := range items {
					if items[i].Err != nil {
						failed = true
					} else if err := h.pulled(list[i], &items[i]); err != nil {
						errs[p], failed = err, true
					}
				}
				if failed {
					for i := range items {
						ours[p] = append(ours[p], items[i].M.B)
					}
					return
				}
			}
		})
	}
	running.Wait()
	err := h.Fabric.Close()
	wg.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	for p := range ours {
		for _, m := range ours[p] {
			paint(m)
		}
	}
	_ = h.Fabric.Quiesce(ctx)
	for p := range ours {
		for _, m := range ours[p] {
			if at := unpainted(m); at >= 0 {
				return fmt.Errorf("byte %d of memory was touched after Close", at)
			}
		}
	}
	return nil
}
