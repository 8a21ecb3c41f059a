package fabrictest

import (
	"context"
	"errors"
	"fmt"

	"meridian/fabric"
	"meridian/wire"
)

func placeChecks() []Check {
	placer := func(h *Harness) bool {
		_, p := h.Fabric.(fabric.Placer)
		_, m := h.Fabric.(fabric.Memory)
		return p && m
	}
	return []Check{
		{Name: "place, write, seal", Run: checkPlace, Applies: placer},
		{Name: "placed block is invisible until sealed", Run: checkPlaceInvisible, Applies: placer},
		{Name: "seal refuses what was not written well", Run: checkSealBad, Applies: func(h *Harness) bool {
			return placer(h) && h.Fabric.Caps().Verified
		}},
	}
}

// placing is one object push under way.
type placing struct {
	list   []*block
	items  []fabric.Item
	ranges []fabric.Range
}

func (h *Harness) place(ctx context.Context, list ...*block) (*placing, error) {
	p := &placing{list: list}
	for _, b := range list {
		p.items = append(p.items, h.pushItem(b))
	}
	var err error
	p.ranges, err = h.Fabric.(fabric.Placer).Place(ctx, p.items)
	if err != nil {
		return nil, fmt.Errorf("place: %w", err)
	}
	if len(p.ranges) != len(list) {
		return nil, fmt.Errorf("place of %d items gave %d ranges", len(list), len(p.ranges))
	}
	for i := range p.items {
		switch {
		case p.items[i].Err != nil:
			return nil, fmt.Errorf("place of item %d: %w", i, p.items[i].Err)
		case p.ranges[i].Len != uint64(len(list[i].payload)):
			return nil, fmt.Errorf("place of %d bytes gave room for %d", len(list[i].payload), p.ranges[i].Len)
		}
	}
	return p, nil
}

// write sends the payloads of the items for which want is true.
func (p *placing) write(ctx context.Context, h *Harness, want func(i int) bool) error {
	var x []fabric.Xfer
	for i := range p.items {
		if want(i) {
			x = append(x, fabric.Xfer{R: p.ranges[i], M: p.items[i].M})
		}
	}
	h.Fabric.(fabric.Memory).Write(ctx, x)
	for i := range x {
		if x[i].Err != nil {
			return fmt.Errorf("write to a placed range: %w", x[i].Err)
		}
	}
	return nil
}

func (p *placing) seal(ctx context.Context, h *Harness, ok ...bool) error {
	for i := range p.items {
		p.items[i].Err = errStale
	}
	if err := h.Fabric.(fabric.Placer).Seal(ctx, p.items, ok); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	return nil
}

func all(int) bool { return true }

func checkPlace(ctx context.Context, h *Harness) error {
	list := h.newBlocks("placed", 3, 800)
	p, err := h.place(ctx, list...)
	if err != nil {
		return err
	}
	if err := p.write(ctx, h, all); err != nil {
		return err
	}
	if err := p.seal(ctx, h, true, false, true); err != nil {
		return err
	}
	for i := range p.items {
		if p.items[i].Err != nil {
			return fmt.Errorf("seal of item %d: %w", i, p.items[i].Err)
		}
	}
	if err := h.pull(ctx, 0, list[0].byKey(), list[2].byKey()); err != nil {
		return fmt.Errorf("after seal: %w", err)
	}
	err = h.pullOne(ctx, fabric.Item{NS: h.NS, Key: list[1].key})
	if err := refused("pull of an item that was sealed as failed", err, wire.CodeAbsent); err != nil {
		return err
	}
	x := []fabric.Xfer{{R: p.ranges[0], M: p.items[0].M}}
	paint(x[0].M.B)
	h.Fabric.(fabric.Memory).Write(ctx, x)
	if err := refused("write to a range after its seal", x[0].Err, wire.CodeStale, wire.CodeAbsent, wire.CodeDenied); err != nil {
		return err
	}
	return h.pull(ctx, 0, list[0].byKey())
}

func checkPlaceInvisible(ctx context.Context, h *Harness) error {
	list := h.newBlocks("invisible", 2, 800)
	p, err := h.place(ctx, list...)
	if err != nil {
		return err
	}
	for _, step := range []string{"before", "after"} {
		for i, b := range list {
			for _, it := range []fabric.Item{{NS: h.NS, Key: b.key}, {NS: h.NS, H: p.items[i].H}} {
				err := h.pullOne(ctx, it)
				if err := refused("pull "+step+" the write, and before seal", err, wire.CodeAbsent, wire.CodeStale, wire.CodeInvalid); err != nil {
					return err
				}
			}
		}
		if err := p.write(ctx, h, all); err != nil {
			return err
		}
	}
	if err := p.seal(ctx, h, true, true); err != nil {
		return err
	}
	return h.pull(ctx, 0, list[0].byKey(), list[1].byKey())
}

func checkSealBad(ctx context.Context, h *Harness) error {
	list := h.newBlocks("unsealed", 3, 800)
	p, err := h.place(ctx, list...)
	if err != nil {
		return err
	}
	p.items[1].M.B[wire.HeaderLen+100] ^= 4
	if err := p.write(ctx, h, func(i int) bool { return i != 2 }); err != nil {
		return err
	}
	if err := p.seal(ctx, h, true, true, true); err != nil {
		return err
	}
	if p.items[0].Err != nil {
		return fmt.Errorf("seal of a good item beside bad ones: %w", p.items[0].Err)
	}
	for i, what := range map[int]string{1: "with a bit flipped", 2: "that was never written"} {
		if p.items[i].Err == nil || errors.Is(p.items[i].Err, errStale) {
			return fmt.Errorf("seal of an item %s was accepted", what)
		}
		err := h.pullOne(ctx, fabric.Item{NS: h.NS, Key: list[i].key})
		if err := refused("pull of an item "+what, err, wire.CodeAbsent); err != nil {
			return err
		}
	}
	return h.pull(ctx, 0, list[0].byKey())
}
