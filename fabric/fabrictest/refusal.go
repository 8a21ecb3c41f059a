package fabrictest

import (
	"context"
	"errors"
	"fmt"

	"meridian/fabric"
	"meridian/wire"
)

func refusalChecks() []Check {
	return []Check{
		{Name: "unknown handle", Run: checkUnknownHandle},
		{Name: "zero handle", Run: checkZeroHandle},
		{Name: "unknown key", Run: checkUnknownKey},
		{Name: "key of another namespace", Run: checkOtherNamespace},
		{Name: "payload that contradicts itself", Run: checkBadPush},
		{Name: "too little room", Run: checkSmallRoom},
		{Name: "payload above MaxItem", Run: checkAboveMaxItem, Applies: func(h *Harness) bool {
			return h.Fabric.Caps().MaxItem > 0 && h.Fabric.Caps().MaxItem <= 64<<20
		}},
		{Name: "batch above MaxBatch", Run: checkAboveMaxBatch, Applies: func(h *Harness) bool {
			return h.Fabric.Caps().MaxBatch > 0 && h.Fabric.Caps().MaxBatch <= 16384
		}},
		{Name: "one status an item", Run: checkMixed},
		{Name: "damaged block is never OK", Run: checkDamaged, Applies: func(h *Harness) bool { return h.Damage != nil }},
	}
}

// pullOne pulls one item and returns its error.
func (h *Harness) pullOne(ctx context.Context, it fabric.Item) error {
	m, intact := h.room(4096)
	it.M = m
	stale(&it)
	items := []fabric.Item{it}
	h.far().Pull(ctx, items)
	if err := intact(); err != nil {
		return err
	}
	return items[0].Err
}

func checkUnknownHandle(ctx context.Context, h *Harness) error {
	b := h.newBlock("known", 100, wire.ThinkComplete)
	if err := h.push(ctx, b); err != nil {
		return err
	}
	forged := []fabric.Handle{{0: 0xff, 7: 0x7f}, {31: 1}, {0: 1, 31: 0xff}}
	for i := range b.h {
		h := b.h
		h[i] ^= 0x80
		forged = append(forged, h)
	}
	for _, f := range forged {
		if f == b.h {
			continue
		}
		err := h.pullOne(ctx, fabric.Item{NS: h.NS, H: f})
		if err := refused(fmt.Sprintf("pull of handle %x, which was never given out", f), err, wire.CodeAbsent, wire.CodeStale); err != nil {
			return err
		}
	}
	return nil
}

func checkZeroHandle(ctx context.Context, h *Harness) error {
	if err := h.push(ctx, h.newBlocks("present", 2, 100)...); err != nil {
		return err
	}
	return refused("pull of the zero handle without a key", h.pullOne(ctx, fabric.Item{NS: h.NS}),
		wire.CodeInvalid, wire.CodeAbsent, wire.CodeStale)
}

func checkUnknownKey(ctx context.Context, h *Harness) error {
	b := h.newBlock("never pushed", 100, wire.ThinkComplete)
	return refused("pull of a key that was never pushed", h.pullOne(ctx, fabric.Item{NS: h.NS, Key: b.key}), wire.CodeAbsent)
}

// checkOtherNamespace: tenant and geometry are in the namespace; the same key
// bytes under another one are another block.
func checkOtherNamespace(ctx context.Context, h *Harness) error {
	b := h.newBlock("mine", 100, wire.ThinkComplete)
	if err := h.push(ctx, b); err != nil {
		return err
	}
	other := h.NS
	other[0] ^= 0xff
	err := h.pullOne(ctx, fabric.Item{NS: other, Key: b.key})
	if err := refused("pull of a key under another namespace", err, wire.CodeAbsent, wire.CodeNSUnknown); err != nil {
		return err
	}
	f, ok := h.far().(fabric.Finder)
	if !ok {
		return nil
	}
	it := fabric.Item{NS: other, Key: b.key}
	stale(&it)
	items := []fabric.Item{it}
	f.Find(ctx, items)
	return refused("find of a key under another namespace", items[0].Err, wire.CodeAbsent, wire.CodeNSUnknown)
}

// wrong is a way to spoil a payload, and the codes that may come of it.
type wrong struct {
	name  string
	spoil func(p []byte) []byte
	codes []wire.Code
}

var wrongs = []wrong{
	{"first body bit flipped", func(p []byte) []byte { p[wire.HeaderLen] ^= 1; return p }, []wire.Code{wire.CodeChecksum}},
	{"last body bit flipped", func(p []byte) []byte { p[len(p)-1] ^= 0x80; return p }, []wire.Code{wire.CodeChecksum}},
	{"checksum field changed", func(p []byte) []byte { p[16] ^= 1; return p }, []wire.Code{wire.CodeChecksum}},
	{"body cut", func(p []byte) []byte { return p[:len(p)-1] }, []wire.Code{wire.CodeTruncated}},
	{"byte after the body", func(p []byte) []byte { return append(p, 0) }, []wire.Code{wire.CodeTrailing}},
	{"header cut", func(p []byte) []byte { return p[:wire.HeaderLen-1] }, []wire.Code{wire.CodeTruncated}},
	{"nothing at all", func(p []byte) []byte { return p[:0] }, []wire.Code{wire.CodeTruncated}},
	{"magic", func(p []byte) []byte { p[0] = 'X'; return p }, []wire.Code{wire.CodeMagic}},
	{"version 2", func(p []byte) []byte { p[4] = 2; return p }, []wire.Code{wire.CodeVersion}},
	{"tier 3", func(p []byte) []byte { p[12] = 3; return p }, []wire.Code{wire.CodeTier}},
	{"padding", func(p []byte) []byte { p[14] = 1; return p }, []wire.Code{wire.CodePadding}},
	{"length of 4 GiB", func(p []byte) []byte { copy(p[8:12], "\xff\xff\xff\xff"); return p },
		[]wire.Code{wire.CodeTruncated, wire.CodeTooLarge}},
}

// checkBadPush pushes spoiled payloads between good ones.
func checkBadPush(ctx context.Context, h *Harness) error {
	good := h.newBlocks("good", len(wrongs)+1, 200)
	bad := h.newBlocks("bad", len(wrongs), 200)
	items := []fabric.Item{h.pushItem(good[0])}
	for i, w := range wrongs {
		p := w.spoil(append([]byte(nil), bad[i].payload...))
		m, _ := h.room(len(p))
		copy(m.B, p)
		it := fabric.Item{NS: h.NS, Key: bad[i].key, Tier: bad[i].tier, M: m}
		stale(&it)
		items = append(items, it, h.pushItem(good[i+1]))
	}
	h.Fabric.Push(ctx, items)
	for i, w := range wrongs {
		if err := refused("push of a payload with "+w.name, items[1+2*i].Err, w.codes...); err != nil {
			return err
		}
		err := h.pullOne(ctx, fabric.Item{NS: h.NS, Key: bad[i].key})
		if err := refused("pull of what was pushed with "+w.name, err, wire.CodeAbsent); err != nil {
			return err
		}
	}
	for i := range good {
		if err := h.pushed(good[i], &items[2*i]); err != nil {
			return fmt.Errorf("good payload beside bad ones: %w", err)
		}
	}
	return h.pull(ctx, 0, good...)
}

// checkSmallRoom: too little memory is TOO_LARGE for that item, and nothing
// outside the memory is written.
func checkSmallRoom(ctx context.Context, h *Harness) error {
	b := h.newBlock("wide", 1000, wire.OutputCritical)
	if err := h.push(ctx, b); err != nil {
		return err
	}
	for _, n := range []int{0, 1, wire.HeaderLen - 1, wire.HeaderLen, wire.HeaderLen + 1, len(b.payload) - 1} {
		small, intact := h.pullItem(b, n)
		fits, _ := h.pullItem(b, len(b.payload))
		items := []fabric.Item{small, fits}
		h.far().Pull(ctx, items)
		if err := refused(fmt.Sprintf("pull of %d bytes into %d", len(b.payload), n), items[0].Err, wire.CodeTooLarge); err != nil {
			return err
		}
		if err := h.pulled(b, &items[1]); err != nil {
			return fmt.Errorf("beside an item without room: %w", err)
		}
		if err := h.Fabric.Quiesce(ctx); err != nil {
			return err
		}
		if err := intact(); err != nil {
			return fmt.Errorf("pull of %d bytes into %d: %w", len(b.payload), n, err)
		}
	}
	return nil
}

func checkAboveMaxItem(ctx context.Context, h *Harness) error {
	big := h.newBlock("too big", h.Fabric.Caps().MaxItem-wire.HeaderLen+1, wire.ThinkActive)
	b := h.newBlock("beside it", 100, wire.ThinkActive)
	items := []fabric.Item{h.pushItem(big), h.pushItem(b)}
	h.Fabric.Push(ctx, items)
	if err := refused("push of one byte more than MaxItem", items[0].Err, wire.CodeTooLarge); err != nil {
		return err
	}
	if err := h.pushed(b, &items[1]); err != nil {
		return fmt.Errorf("beside an item above MaxItem: %w", err)
	}
	return nil
}

// checkAboveMaxBatch: more items than agreed are all done, or the surplus is
// refused; those that were accepted are really there.
func checkAboveMaxBatch(ctx context.Context, h *Harness) error {
	list := h.newBlocks("surplus", h.Fabric.Caps().MaxBatch+3, 16)
	items := make([]fabric.Item, len(list))
	for i, b := range list {
		items[i] = h.pushItem(b)
	}
	h.Fabric.Push(ctx, items)
	var there []*block
	for i, b := range list {
		if items[i].Err == nil {
			there = append(there, b.byKey())
			continue
		}
		if err := refused("item of a batch above MaxBatch", items[i].Err, wire.CodeTooMany); err != nil {
			return err
		}
	}
	limit := h.Fabric.Caps().MaxBatch
	for len(there) > 0 {
		n := min(limit, len(there))
		if err := h.pull(ctx, 0, there[:n]...); err != nil {
			return err
		}
		there = there[n:]
	}
	return nil
}

// checkMixed is the batch that tempts a fabric to fail as a whole, to stop at
// the first failure, or to shift statuses.
func checkMixed(ctx context.Context, h *Harness) error {
	list := h.newBlocks("mixed", 4, 300)
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	nowhere := h.newBlock("nowhere", 300, wire.ThinkActive)
	absent := []wire.Code{wire.CodeAbsent, wire.CodeStale}
	plan := []struct {
		b     *block
		room  int
		codes []wire.Code // nil: must come
	}{
		{nowhere, 400, absent},
		{list[0], 332, nil},
		{list[1], 40, []wire.Code{wire.CodeTooLarge}},
		{list[2].byKey(), 400, nil},
		{&block{h: fabric.Handle{30: 7}}, 400, absent},
		{list[0], 500, nil},
		{&block{}, 400, append(absent, wire.CodeInvalid)},
		{list[3], 332, nil},
		{nowhere, 400, absent},
	}
	items := make([]fabric.Item, len(plan))
	for i, p := range plan {
		items[i], _ = h.pullItem(p.b, p.room)
	}
	h.far().Pull(ctx, items)
	for i, p := range plan {
		var err error
		if p.codes == nil {
			err = h.pulled(p.b, &items[i])
		} else {
			err = refused("pull", items[i].Err, p.codes...)
		}
		if err != nil {
			return fmt.Errorf("item %d of a mixed batch: %w", i, err)
		}
	}
	return nil
}

// checkDamaged: the checksum is over what arrived, in every path.
func checkDamaged(ctx context.Context, h *Harness) error {
	list := h.newBlocks("damage", 5, 2048)
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	bad := list[2]
	if err := h.Damage(fabric.Item{NS: h.NS, Key: bad.key, Tier: bad.tier, H: bad.h, Head: bad.head()}); err != nil {
		return fmt.Errorf("the harness could not damage a block: %w", err)
	}
	for _, named := range []*block{bad, bad.byKey()} {
		it, _ := h.pullItem(named, len(bad.payload))
		single := []fabric.Item{it}
		h.far().Pull(ctx, single)
		if err := refused("pull of a damaged block by itself", single[0].Err, wire.CodeChecksum); err != nil {
			return err
		}
	}
	items := make([]fabric.Item, len(list))
	for i, b := range list {
		items[i], _ = h.pullItem(b, len(b.payload))
	}
	h.far().Pull(ctx, items)
	for i, b := range list {
		if b == bad {
			if err := refused("pull of a damaged block in a batch", items[i].Err, wire.CodeChecksum); err != nil {
				return err
			}
			continue
		}
		if err := h.pulled(b, &items[i]); err != nil {
			return fmt.Errorf("neighbour of a damaged block: %w", err)
		}
	}
	return nil
}

// errLoose is what a check says of an item that breaks the rule of Loose.
var errLoose = errors.New("loose without an error")
