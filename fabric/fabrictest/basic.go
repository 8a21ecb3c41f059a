package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"meridian/fabric"
	"meridian/wire"
)

func basicChecks() []Check {
	return []Check{
		{Name: "label and capabilities", Run: checkCaps},
		{Name: "pull gives header and bytes as pushed", Run: checkRoundTrip},
		{Name: "header keeps its tier", Run: checkTier},
		{Name: "attestation is never raised", Run: checkAttest},
		{Name: "pull gives proof of the bytes where they lie", Run: checkProof, Applies: func(h *Harness) bool { return h.Fabric.Caps().Verified }},
		{Name: "pull by key", Run: checkByKey},
		{Name: "pull is idempotent", Run: checkIdempotent},
		{Name: "empty batch", Run: checkEmptyBatch},
		{Name: "handles differ", Run: checkHandles, Applies: func(h *Harness) bool { return !h.ByKey }},
		{Name: "large batch", Run: checkLargeBatch},
		{Name: "one block twice in a batch", Run: checkTwiceInBatch},
		{Name: "same key pushed again", Run: checkPushAgain},
		{Name: "payload does not alias the pusher's memory", Run: checkNoAlias},
		{Name: "concurrent calls", Run: checkConcurrent},
	}
}

func checkCaps(_ context.Context, h *Harness) error {
	c := h.Fabric.Caps()
	label, again := h.Fabric.Label(), h.Fabric.Label()
	switch {
	case label == "" || label != again:
		return errors.New("the label is empty or changes")
	case c != h.Fabric.Caps():
		return errors.New("the capabilities change")
	case c.MaxItem < 0 || c.MaxItem > 0 && c.MaxItem < wire.HeaderLen:
		return fmt.Errorf("MaxItem %d is less than a header", c.MaxItem)
	case c.MaxBatch < 0:
		return fmt.Errorf("MaxBatch is %d", c.MaxBatch)
	case c.Lanes < 0:
		return fmt.Errorf("capability Lanes is %d", c.Lanes)
	}
	_, oneSided := h.Fabric.(fabric.Memory)
	_, twoPhase := h.Fabric.(fabric.Placer)
	if c.OneSided && !oneSided || c.TwoPhase && !twoPhase {
		return errors.New("the capabilities promise an interface that is not there")
	}
	return nil
}

func checkRoundTrip(ctx context.Context, h *Harness) error {
	for _, n := range []int{0, 1, 31, 32, 33, 1000, 4096, 16384, 65537, 256<<10 + 3, 1 << 20} {
		if n > h.maxBody() {
			break
		}
		for tier := wire.ThinkComplete; tier <= wire.OutputCritical; tier++ {
			b := h.newBlock(fmt.Sprintf("trip-%d", tier), n, tier)
			if err := h.push(ctx, b); err != nil {
				return err
			}
			if err := h.pull(ctx, 0, b); err != nil {
				return fmt.Errorf("exact room: %w", err)
			}
			if err := h.pull(ctx, 100, b); err != nil {
				return fmt.Errorf("more room than needed: %w", err)
			}
		}
	}
	return nil
}

// checkTier: the header is fixed when a block first leaves its agent; the tier
// that it is held in later lies beside it.
func checkTier(ctx context.Context, h *Harness) error {
	for _, now := range []wire.Tier{wire.ThinkComplete, wire.ThinkActive, wire.OutputCritical} {
		b := h.newBlock(fmt.Sprintf("retiered-%v", now), 100, wire.ThinkActive)
		it := h.pushItem(b)
		it.Tier = now
		items := []fabric.Item{it}
		h.Fabric.Push(ctx, items)
		if items[0].Err != nil {
			return fmt.Errorf("push: %w", items[0].Err)
		}
		got, _ := h.pullItem(b.byKey(), len(b.payload))
		got.Tier = now
		pull := []fabric.Item{got}
		h.far().Pull(ctx, pull)
		pull[0].Tier = b.tier
		if err := h.pulled(b, &pull[0]); err != nil {
			return fmt.Errorf("header of tier %v, held in tier %v: %w", b.tier, now, err)
		}
	}
	return nil
}

// checkAttest: who vouched for a checksum comes back as it went, or not at all.
func checkAttest(ctx context.Context, h *Harness) error {
	for _, att := range []wire.Attest{wire.AttestNone, wire.AttestIngest, wire.AttestProducer} {
		b := h.newBlock("attested-"+att.String(), 100, wire.ThinkActive)
		push := []fabric.Item{h.pushItem(b)}
		push[0].Att = att
		if h.Fabric.Push(ctx, push); push[0].Err != nil {
			return fmt.Errorf("push: %w", push[0].Err)
		}
		it, _ := h.pullItem(b.byKey(), len(b.payload))
		it.Att = wire.AttestProducer // left over from an earlier use
		pull := []fabric.Item{it}
		if h.far().Pull(ctx, pull); pull[0].Err != nil {
			return fmt.Errorf("pull: %w", pull[0].Err)
		}
		if got := pull[0].Att; got != att && got != wire.AttestNone {
			return fmt.Errorf("pushed with attest %v, pulled with %v", att, got)
		}
	}
	return nil
}

func checkProof(ctx context.Context, h *Harness) error {
	b := h.newBlock("proved", 5000, wire.ThinkActive)
	if err := h.push(ctx, b); err != nil {
		return err
	}
	it, _ := h.pullItem(b.byKey(), len(b.payload)+100)
	pull := []fabric.Item{it}
	if h.far().Pull(ctx, pull); pull[0].Err != nil {
		return fmt.Errorf("pull: %w", pull[0].Err)
	}
	body := pull[0].M.B[wire.HeaderLen:][:pull[0].Head.BodyLen]
	if !pull[0].Proof.Of(body) {
		return errors.New("the proof is not of the memory that the body lies in")
	}
	return pull[0].Head.Match(pull[0].Proof)
}

func checkByKey(ctx context.Context, h *Harness) error {
	list := h.newBlocks("by-key", 5, 500)
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	for _, b := range list {
		if err := h.pull(ctx, 0, b.byKey()); err != nil {
			return err
		}
		it, _ := h.pullItem(b.byKey(), len(b.payload))
		items := []fabric.Item{it}
		h.far().Pull(ctx, items)
		if b.h != (fabric.Handle{}) && items[0].H != b.h {
			return fmt.Errorf("a pull by key gave handle %x, Push gave %x", items[0].H[:8], b.h[:8])
		}
	}
	return nil
}

func checkIdempotent(ctx context.Context, h *Harness) error {
	list := h.newBlocks("again", 3, 3000)
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	for round := range 4 {
		if err := h.pull(ctx, round, list...); err != nil {
			return fmt.Errorf("pull %d: %w", round+1, err)
		}
	}
	return nil
}

func checkEmptyBatch(ctx context.Context, h *Harness) error {
	for _, batch := range [][]fabric.Item{nil, {}} {
		h.Fabric.Push(ctx, batch)
		h.far().Pull(ctx, batch)
		if f, ok := h.far().(fabric.Finder); ok {
			f.Find(ctx, batch)
		}
		if d, ok := h.far().(fabric.Dropper); ok {
			d.Drop(ctx, batch)
		}
	}
	if err := h.Fabric.Quiesce(ctx); err != nil {
		return fmt.Errorf("quiesce with nothing under way: %w", err)
	}
	return nil
}

func checkHandles(ctx context.Context, h *Harness) error {
	seen := make(map[fabric.Handle]int)
	list := h.newBlocks("handle", 64, 10)
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	for i, b := range list {
		if j, dup := seen[b.h]; dup {
			return fmt.Errorf("blocks %d and %d have one handle", j, i)
		}
		seen[b.h] = i
	}
	return nil
}

func checkLargeBatch(ctx context.Context, h *Harness) error {
	n := 512
	if limit := h.Fabric.Caps().MaxBatch; limit > 0 {
		n = min(n, limit)
	}
	list := h.newBlocks("large", n, 64)
	if err := h.push(ctx, list...); err != nil {
		return err
	}
	return h.pull(ctx, 0, list...)
}

func checkTwiceInBatch(ctx context.Context, h *Harness) error {
	b := h.newBlock("twice", 2000, wire.OutputCritical)
	c := h.newBlock("once", 2000, wire.OutputCritical)
	items := []fabric.Item{h.pushItem(b), h.pushItem(c), h.pushItem(b)}
	h.Fabric.Push(ctx, items)
	taken := 0
	for _, i := range []int{0, 2} {
		switch err := items[i].Err; {
		case err == nil:
			taken++
		case !errors.Is(err, wire.CodeExists):
			return fmt.Errorf("push of one key twice in a batch: %w", err)
		}
	}
	if taken == 0 {
		return errors.New("push of one key twice in a batch: neither was taken")
	}
	if items[1].Err != nil {
		return fmt.Errorf("push of the other key in the batch: %w", items[1].Err)
	}
	b, c = b.byKey(), c.byKey()
	return h.pull(ctx, 0, b, c, b, b)
}

// checkPushAgain: blocks are immutable, so a second push of a key is done
// already, or answers EXISTS; it never changes what is served.
func checkPushAgain(ctx context.Context, h *Harness) error {
	b := h.newBlock("first", 700, wire.ThinkActive)
	if err := h.push(ctx, b); err != nil {
		return err
	}
	other := h.newBlock("second", 900, wire.ThinkActive)
	other.key = b.key
	for _, again := range []*block{b, other} {
		items := []fabric.Item{h.pushItem(again)}
		h.Fabric.Push(ctx, items)
		if err := items[0].Err; err != nil {
			if err := refused("push of a key that is there", err, wire.CodeExists); err != nil {
				return err
			}
		}
		if err := h.pull(ctx, 300, b.byKey()); err != nil {
			return fmt.Errorf("after a second push of the key: %w", err)
		}
	}
	return nil
}

// checkNoAlias: a fabric that kept the pusher's memory would serve what the
// pusher writes there next.
func checkNoAlias(ctx context.Context, h *Harness) error {
	b := h.newBlock("alias", 5000, wire.ThinkComplete)
	items := []fabric.Item{h.pushItem(b)}
	h.Fabric.Push(ctx, items)
	if items[0].Err != nil {
		return items[0].Err
	}
	b.h = items[0].H
	paint(items[0].M.B)
	m := items[0].M
	items[0] = fabric.Item{}
	if err := h.pull(ctx, 0, b); err != nil {
		return fmt.Errorf("after the pusher wrote over its memory: %w", err)
	}
	if at := unpainted(m.B); at >= 0 {
		return fmt.Errorf("byte %d of the pusher's memory changed after the push", at)
	}
	got, _ := h.pullItem(b, len(b.payload))
	pull := []fabric.Item{got}
	h.far().Pull(ctx, pull)
	if pull[0].Err != nil {
		return pull[0].Err
	}
	paint(pull[0].M.B)
	if err := h.pull(ctx, 0, b); err != nil {
		return fmt.Errorf("after a puller wrote over its memory: %w", err)
	}
	return nil
}

func checkConcurrent(ctx context.Context, h *Harness) error {
	const workers, rounds, batch = 8, 6, 4
	shared := h.newBlocks("shared", batch, 4000)
	if err := h.push(ctx, shared...); err != nil {
		return err
	}
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for r := range rounds {
				own := h.newBlocks(fmt.Sprintf("own-%d-%d", w, r), batch, 1000*w+r)
				err := h.push(ctx, own...)
				if err == nil {
					err = h.pull(ctx, r, append(own, shared...)...)
				}
				if err != nil {
					errs[w] = fmt.Errorf("worker %d, round %d: %w", w, r, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
