package synthetic

import (
	"bytes"
	"context"
	"time"

	"meridian/blocks"
	"meridian/blocks/window"
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
	size  uint64
	addr  uint64 // of its window
	until time.Time
}

// store is the owner of the windows of all placements.
const store blocks.Owner = 1

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
	win, err := w.windows.Open(store, window.Spec{Bytes: uint64(size), TTL: PlaceTTL, Read: true, Write: true, Peers: []string{f.name}})
	if err != nil {
		w.used -= uint64(size)
		it.H = fabric.Handle{}
		return fabric.Range{}, err
	}
	w.placed[h] = &placement{h: h, id: id, tier: it.Tier, att: it.Att, size: win.Len, addr: win.Addr, until: time.Now().Add(PlaceTTL)}
	return fabric.Range{Peer: StorePeer, Addr: win.Addr, Len: win.Len}, nil
}

// sweep frees placements that are over their time. The world is locked.
func (w *world) sweep(now time.Time) {
	for _, p := range w.placed {
		if !now.Before(p.until) {
			w.unplace(p)
			w.used -= p.size
		}
	}
}

// unplace ends a placement; its bytes go on counting. The world is locked.
func (w *world) unplace(p *placement) {
	delete(w.placed, p.h)
	w.windows.Close(store, p.addr)
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
		err := fabric.ContextError(ctx, Label)
		if err == nil {
			err = f.seal(&it[i], ok[i])
		}
		end(i, false, err)
	}
	return nil
}

func (f *Fabric) seal(it *fabric.Item, ok bool) error {
	w := f.w
	w.mu.Lock()
	w.sweep(time.Now())
	p := w.placed[numberOf(it.H)]
	w.mu.Unlock()
	if p == nil {
		return &fabric.Error{Code: wire.CodeAbsent, Fabric: Label, Text: "nothing is placed under the handle"}
	}
	var buf []byte
	var head wire.Header
	var err error
	if ok {
		if buf, err = w.written(p); err == nil {
			head, _, err = wire.Decode(buf, wire.Strict, f.limit())
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.placed[p.h] != p {
		return &fabric.Error{Code: wire.CodeAbsent, Fabric: Label, Text: "another Seal was first, or its time is over"}
	}
	w.unplace(p)
	if ok && err == nil && p.id.key != (wire.Key{}) && w.byName[p.id] != nil {
		err = &fabric.Error{Code: wire.CodeExists, Fabric: Label}
	}
	if !ok || err != nil {
		w.used -= p.size
		return err
	}
	w.publish(&block{h: p.h, id: p.id, tier: p.tier, att: p.att, head: head, buf: buf})
	it.Head = head
	return nil
}

// written is a copy of what a placement holds: its window may still be written.
func (w *world) written(p *placement) ([]byte, error) {
	b, leave, err := w.windows.Own(store, p.addr, p.size)
	if err != nil {
		return nil, err
	}
	defer leave()
	return bytes.Clone(b), nil
}
