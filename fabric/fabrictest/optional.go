package fabrictest

import (
	"context"
	"errors"
	"fmt"

	"meridian/fabric"
	"meridian/wire"
)

func optionalChecks() []Check {
	finder := func(h *Harness) bool { _, ok := h.far().(fabric.Finder); return ok }
	dropper := func(h *Harness) bool { _, ok := h.far().(fabric.Dropper); return ok }
	lister := func(h *Harness) bool { _, ok := h.far().(fabric.Lister); return ok }
	prober := func(h *Harness) bool { _, ok := h.Fabric.(fabric.Prober); return ok }
	return []Check{
		{Name: "find", Run: checkFind, Applies: finder},
		{Name: "drop", Run: checkDrop, Applies: dropper},
		{Name: "handle of a dropped block is never reused", Run: checkNoReuse, Applies: dropper},
		{Name: "list", Run: checkList, Applies: lister},
		{Name: "probe", Run: checkProbe, Applies: prober},
		{Name: "counts return to zero", Run: checkLeaks, Applies: func(h *Harness) bool {
			return h.Leaks != nil && dropper(h)
		}},
	}
}

func checkFind(ctx context.Context, h *Harness) error {
	f := h.far().(fabric.Finder)
	list := []*block{h.newBlock("found", 0, wire.ThinkComplete), h.newBlock("found", 333, wire.OutputCritical)}
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	nowhere := h.newBlock("nowhere", 50, wire.ThinkActive)
	ask := []*block{list[0], nowhere, list[1].byKey(), {h: fabric.Handle{29: 1}}, list[1], list[0].byKey(), {}}
	items := make([]fabric.Item, len(ask))
	for i, b := range ask {
		items[i] = fabric.Item{NS: h.NS, Key: b.key, H: b.h}
		stale(&items[i])
	}
	f.Find(ctx, items)
	for i, b := range ask {
		it := &items[i]
		switch {
		case b.payload == nil || b == nowhere:
			if err := refused("find of what is not there", it.Err, wire.CodeAbsent, wire.CodeStale, wire.CodeInvalid); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		case it.Err != nil:
			return fmt.Errorf("find of item %d: %w", i, it.Err)
		case it.Head != b.head():
			return fmt.Errorf("find of item %d: Head is %+v, pushed was %+v", i, it.Head, b.head())
		case it.H == fabric.Handle{} || b.h != (fabric.Handle{}) && it.H != b.h:
			return fmt.Errorf("find of item %d: handle %x, pushed was %x", i, it.H[:8], b.h[:8])
		case it.Loose:
			return fmt.Errorf("find of item %d: loose", i)
		}
	}
	got := *list[1]
	got.h = items[2].H
	return h.pull(ctx, 0, &got)
}

// drop drops blocks, all of which must go.
func (h *Harness) drop(ctx context.Context, list ...*block) error {
	items := make([]fabric.Item, len(list))
	for i, b := range list {
		items[i] = fabric.Item{NS: h.NS, Key: b.key, H: b.h}
		stale(&items[i])
	}
	h.far().(fabric.Dropper).Drop(ctx, items)
	for i := range items {
		if items[i].Err != nil {
			return fmt.Errorf("drop of item %d: %w", i, items[i].Err)
		}
	}
	return nil
}

// gone checks that a block cannot be pulled, neither by handle nor by key.
func (h *Harness) gone(ctx context.Context, b *block) error {
	err := h.pullOne(ctx, fabric.Item{NS: h.NS, Key: b.key})
	if err := refused("pull of a dropped block by key", err, wire.CodeAbsent); err != nil {
		return err
	}
	if b.h == (fabric.Handle{}) {
		return nil
	}
	err = h.pullOne(ctx, fabric.Item{NS: h.NS, Key: b.key, H: b.h})
	return refused("pull of a dropped block by handle", err, wire.CodeAbsent, wire.CodeStale)
}

func checkDrop(ctx context.Context, h *Harness) error {
	list := h.newBlocks("drop", 5, 250)
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	if err := h.drop(ctx, list[1], list[3].byKey()); err != nil {
		return err
	}
	for _, i := range []int{1, 3} {
		if err := h.gone(ctx, list[i]); err != nil {
			return err
		}
	}
	if err := h.pull(ctx, 0, list[0], list[2], list[4]); err != nil {
		return fmt.Errorf("after the drop of others: %w", err)
	}
	items := []fabric.Item{
		{NS: h.NS, Key: list[1].key, H: list[1].h},
		{NS: h.NS, Key: list[0].key, H: list[0].h},
		{NS: h.NS},
	}
	h.far().(fabric.Dropper).Drop(ctx, items)
	if err := refused("drop of what is gone", items[0].Err, wire.CodeAbsent, wire.CodeStale); err != nil {
		return err
	}
	if items[1].Err != nil {
		return fmt.Errorf("drop beside one that is gone: %w", items[1].Err)
	}
	return refused("drop of nothing", items[2].Err, wire.CodeAbsent, wire.CodeStale, wire.CodeInvalid)
}

// checkNoReuse: a handle that outlives its block must never name another one.
func checkNoReuse(ctx context.Context, h *Harness) error {
	old := h.newBlocks("old", 8, 400)
	if err := h.push(ctx, old...); err != nil {
		return err
	}
	if err := h.drop(ctx, old...); err != nil {
		return err
	}
	if err := h.push(ctx, h.newBlocks("new", 32, 400)...); err != nil {
		return err
	}
	for _, b := range old {
		if err := h.gone(ctx, b); err != nil {
			return fmt.Errorf("after other blocks took its place: %w", err)
		}
	}
	// The same block once more is a new placement, and is served again.
	again := make([]*block, len(old))
	for i, b := range old {
		again[i] = b.byKey()
	}
	if err := h.push(ctx, again...); err != nil {
		return err
	}
	return h.pull(ctx, 0, again...)
}

func checkList(ctx context.Context, h *Harness) error {
	l := h.far().(fabric.Lister)
	list := h.newBlocks("list", 7, 120)
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	var problem error
	seen := make(map[wire.Key]int)
	err := l.List(ctx, func(it fabric.Item) bool {
		seen[it.Key]++
		for _, b := range list {
			if b.key != it.Key {
				continue
			}
			if it.NS != h.NS || it.Head != b.head() || it.H == (fabric.Handle{}) {
				problem = fmt.Errorf("listed %+v, pushed was %+v", it.Head, b.head())
			}
			named := *b
			named.h = it.H
			if err := h.pull(ctx, 0, &named); err != nil { // the callback may use the fabric
				problem = fmt.Errorf("pull of a listed block: %w", err)
			}
		}
		return problem == nil
	})
	if err := errors.Join(problem, err); err != nil {
		return err
	}
	for i, b := range list {
		if seen[b.key] != 1 {
			return fmt.Errorf("block %d was listed %d times", i, seen[b.key])
		}
	}
	calls := 0
	if err := l.List(ctx, func(fabric.Item) bool { calls++; return false }); err != nil {
		return fmt.Errorf("list that was stopped: %w", err)
	}
	if calls != 1 {
		return fmt.Errorf("list went on for %d blocks after f returned false", calls-1)
	}
	return nil
}

func checkProbe(ctx context.Context, h *Harness) error {
	p := h.Fabric.(fabric.Prober)
	via, gbps, err := p.Probe(ctx, h.Peer)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if via == "" || gbps < 0 {
		return fmt.Errorf("probe says via %q at %v GB/s", via, gbps)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, _, err = p.Probe(cancelled, h.Peer)
	if err := refused("probe under a cancelled context", err, wire.CodeCancelled); err != nil {
		return err
	}
	_, _, err = p.Probe(ctx, "nobody of this name")
	if err == nil && h.Peer != "" {
		return errors.New("a probe of an unknown peer succeeded")
	}
	return nil
}

func checkLeaks(ctx context.Context, h *Harness) error {
	list := h.newBlocks("leak", 6, 1500)
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	if err := h.pull(ctx, 0, list...); err != nil {
		return err
	}
	for _, p := range wrongs[:5] {
		m, _ := h.room(0)
		m.B = append(m.B, p.spoil(append([]byte(nil), list[0].payload...))...)
		h.Fabric.Push(ctx, []fabric.Item{{NS: h.NS, Key: wire.KeyOf(h.NS, []byte(p.name)), M: m}})
	}
	_ = h.pullOne(ctx, fabric.Item{NS: h.NS, H: fabric.Handle{20: 1}})
	fresh := h.newBlocks("leak-cut", 6, 1500)
	err := interrupted(ctx, func(cut context.Context, _ int) error {
		items := make([]fabric.Item, len(list))
		push := make([]fabric.Item, len(list))
		for i, b := range list {
			items[i], _ = h.pullItem(b, len(b.payload))
			push[i] = h.pushItem(fresh[i])
		}
		h.far().Pull(cut, items)
		h.Fabric.Push(cut, push)
		return errors.Join(h.Fabric.Quiesce(ctx), h.far().Quiesce(ctx))
	})
	if err != nil {
		return err
	}
	drop := make([]fabric.Item, 0, 2*len(list))
	for _, b := range append(list, fresh...) {
		drop = append(drop, fabric.Item{NS: h.NS, Key: b.key})
	}
	h.far().(fabric.Dropper).Drop(ctx, drop)
	if err := h.Leaks(); err != nil {
		return fmt.Errorf("after everything was dropped: %w", err)
	}
	return nil
}
