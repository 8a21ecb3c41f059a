package synthetic

import (
	"context"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// StorePeer is the Peer of the ranges that Place returns.
const StorePeer = Label

// placement is room for a block that is being written: its bytes count, its
// handle is given out, and nobody sees it before Seal.
type placement struct {
	h     uint64
	id    ident
	tier  wire.Tier
	att   wire.Attest
	buf   []byte
	win   *window
	until time.Time
}

// Place reserves room in the world's store.
func (f *Fabric) Place(ctx context.Context, it []fabric.Item) ([]fabric.Range, error) {
	ranges := make([]fabric.Range, len(it))
	for i := range it {
		it[i].H = fabric.Handle{}
	}
	b := batch{
		f: f, n: len(it),
		access: func(i int) access { return access{op: OpPush, key: it[i].Key} },
		do: func(i int, v verdict) (err error) {
			if v.dup {
				return nil
			}
			ranges[i], err = f.place(&it[i])
			return err
		},
		late: func(int) (*lateOp, error) { return nil, nil },
		end:  itemEnd(it),
	}
	b.run(ctx)
	return ranges, nil
}

func (f *Fabric) place(it *fabric.Item) (fabric.Range, error) {
	size := len(it.M.B)
	switch {
	case size > f.opt.MaxItem:
		return fabric.Range{}, tooLarge(f.opt.MaxItem, size)
	case size < wire.HeaderLen:
		return fabric.Range{}, &wire.TruncatedError{Have: uint64(size), Need: wire.HeaderLen}
	}
	w := f.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep(time.Now())
	id := ident{it.NS, it.Key}
	h, err := w.reserve(id, uint64(size))
	if h != 0 {
		it.H = handleOf(h)
	}
	if err != nil {
		return fabric.Range{}, err
	}
	p := &placement{h: h, id: id, tier: it.Tier, att: it.Att, buf: make([]byte, size), until: time.Now().Add(PlaceTTL)}
	p.win, err = w.space.open(nil, fabric.Window{M: []fabric.Mem{{B: p.buf}}, Write: true, Peers: []string{f.name}})
	if err != nil {
		w.used -= uint64(size)
		it.H = fabric.Handle{}
		return fabric.Range{}, err
	}
	w.placed[h] = p
	return fabric.Range{Peer: StorePeer, Addr: p.win.base, Len: p.win.size}, nil
}

// sweep frees placements that are over their time and that nobody is writing.
// The world is locked.
func (w *world) sweep(now time.Time) {
	for _, p := range w.placed {
		if now.Before(p.until) {
			continue
		}
		select {
		case <-p.win.shut():
			w.unplace(p)
			w.used -= uint64(len(p.buf))
		default:
		}
	}
}

// unplace ends a placement; its bytes go on counting. The world is locked.
func (w *world) unplace(p *placement) {
	delete(w.placed, p.h)
	w.space.remove(p.win)
}

// Seal checks what was written and publishes it.
func (f *Fabric) Seal(ctx context.Context, it []fabric.Item, ok []bool) error {
	if len(ok) != len(it) {
		return &fabric.Error{Code: wire.CodeInvalid, Fabric: Label, Have: uint64(len(ok)), Need: uint64(len(it)),
			Text: "as many ok as items"}
	}
	if err := f.enter(); err != nil {
		return err
	}
	defer f.calls.Done()
	if err := f.reach(); err != nil {
		return err
	}
	end := itemEnd(it)
	for i := range it {
		end(i, false, f.seal(ctx, &it[i], ok[i]))
	}
	return nil
}

func (f *Fabric) seal(ctx context.Context, it *fabric.Item, ok bool) error {
	w := f.w
	w.mu.Lock()
	w.sweep(time.Now())
	p := w.placed[numberOf(it.H)]
	w.mu.Unlock()
	if p == nil {
		return &fabric.Error{Code: wire.CodeAbsent, Fabric: Label, Text: "nothing is placed under the handle"}
	}
	select {
	case <-p.win.shut():
	case <-ctx.Done():
		return fabric.ContextError(ctx, Label) // the sweep frees it
	}
	var head wire.Header
	var err error
	if ok {
		head, _, err = wire.Decode(p.buf, wire.Strict, f.limit())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.placed[p.h] != p {
		return &fabric.Error{Code: wire.CodeAbsent, Fabric: Label, Text: "another Seal was first"}
	}
	w.unplace(p)
	if ok && err == nil && p.id.key != (wire.Key{}) && w.byName[p.id] != nil {
		err = &fabric.Error{Code: wire.CodeExists, Fabric: Label}
	}
	if !ok || err != nil {
		w.used -= uint64(len(p.buf))
		return err
	}
	w.publish(&block{h: p.h, id: p.id, tier: p.tier, att: p.att, head: head, buf: p.buf})
	it.Head = head
	return nil
}
