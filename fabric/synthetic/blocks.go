package synthetic

import (
	"context"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// Push stores a copy of each payload that passes the strict reader.
func (f *Fabric) Push(ctx context.Context, it []fabric.Item) {
	for i := range it {
		it[i].H = fabric.Handle{}
	}
	b := batch{
		f: f, n: len(it),
		access: func(i int) access { return access{op: OpPush, key: it[i].Key} },
		do: func(i int, v verdict) error {
			if v.dup {
				return nil // a second copy is recognised as one
			}
			return f.store(&it[i], v)
		},
		late: func(i int) (*lateOp, error) { return &lateOp{m: it[i].M.B}, nil },
		end:  itemEnd(it),
	}
	b.run(ctx)
}

// itemEnd writes the outcome of an item.
func itemEnd(it []fabric.Item) func(i int, loose bool, err error) {
	return func(i int, loose bool, err error) {
		it[i].Via, it[i].Loose, it[i].Err = Via, loose, err
		if err != nil {
			it[i].Head = wire.Header{}
		}
	}
}

// limit is the longest body that a reader of this endpoint accepts.
func (f *Fabric) limit() uint32 { return uint32(min(f.opt.MaxItem-wire.HeaderLen, wire.MaxBody)) }

// store copies, checks the copy, and publishes it.
func (f *Fabric) store(it *fabric.Item, v verdict) error {
	if len(it.M.B) > f.opt.MaxItem {
		return tooLarge(f.opt.MaxItem, len(it.M.B))
	}
	buf := append(make([]byte, 0, len(it.M.B)), it.M.B...)
	if v.corrupt {
		flip(buf, v.bit)
	}
	head, _, err := wire.Decode(buf, wire.Strict, f.limit())
	if err != nil {
		return err
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.sweep(time.Now())
	id := ident{it.NS, it.Key}
	h, err := f.w.reserve(id, uint64(len(buf)))
	if h != 0 {
		it.H = handleOf(h)
	}
	if err != nil {
		return err
	}
	f.w.publish(&block{h: h, id: id, tier: it.Tier, att: it.Att, head: head, buf: buf})
	it.Head = head
	return nil
}

// Pull copies each payload into the item's memory and checks it there.
func (f *Fabric) Pull(ctx context.Context, it []fabric.Item) {
	b := batch{
		f: f, n: len(it),
		access: func(i int) access { return access{op: OpPull, key: it[i].Key} },
		do: func(i int, v verdict) error {
			blk, err := f.locate(&it[i])
			if err != nil {
				return err
			}
			m := it[i].M.B[:copy(it[i].M.B, blk.buf)]
			if v.corrupt {
				flip(m, v.bit)
			}
			head, proof, err := verify(m, f.limit())
			if err != nil {
				return err
			}
			it[i].H, it[i].Head, it[i].Att, it[i].Proof = handleOf(blk.h), head, blk.att, proof
			return nil
		},
		late: func(i int) (*lateOp, error) {
			blk, err := f.locate(&it[i])
			if err != nil {
				return nil, err
			}
			m := it[i].M.B
			return &lateOp{m: m, touch: func() { copy(m, blk.buf) }}, nil
		},
		end: itemEnd(it),
	}
	b.run(ctx)
}

// verify is wire.Decode that keeps the proof of the body.
func verify(m []byte, limit uint32) (wire.Header, wire.Verified, error) {
	head, err := wire.ParseHeader(m, wire.Strict, limit)
	if err != nil {
		return head, wire.Verified{}, err
	}
	v := wire.Hash(m[wire.HeaderLen:])
	return head, v, head.Match(v)
}

// locate finds the block of a pull and checks that there is room for it.
func (f *Fabric) locate(it *fabric.Item) (*block, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	b, err := f.w.find(it)
	if err == nil && len(it.M.B) < len(b.buf) {
		err = tooLarge(len(it.M.B), len(b.buf))
	}
	return b, err
}

func tooLarge(have, need int) error {
	return &fabric.Error{Code: wire.CodeTooLarge, Fabric: Label, Have: uint64(have), Need: uint64(need)}
}

// flip turns bit of the body, modulo its length; of a payload without a body it
// turns a bit of the checksum, so that the damage never goes unnoticed.
func flip(payload []byte, bit uint64) {
	switch {
	case len(payload) > wire.HeaderLen:
		payload = payload[wire.HeaderLen:]
	case len(payload) == wire.HeaderLen:
		payload = payload[wire.HeaderLen/2:]
	}
	if len(payload) > 0 {
		bit %= uint64(len(payload)) * 8
		payload[bit/8] ^= 1 << (bit % 8)
	}
}

// each runs a call that moves no bytes: no faults but a disconnect.
func (f *Fabric) each(ctx context.Context, it []fabric.Item, do func(it *fabric.Item) error) {
	end := itemEnd(it)
	err := f.enter()
	if err == nil {
		defer f.calls.Done()
		err = f.reach()
	}
	for i := range it {
		why := err
		if why == nil {
			why = fabric.ContextError(ctx, Label)
		}
		if why == nil {
			f.w.mu.Lock()
			why = do(&it[i])
			f.w.mu.Unlock()
		}
		end(i, false, why)
	}
}

// Find fills Head and H.
func (f *Fabric) Find(ctx context.Context, it []fabric.Item) {
	f.each(ctx, it, func(it *fabric.Item) error {
		b, err := f.w.find(it)
		if err == nil {
			it.H, it.Head, it.Att = handleOf(b.h), b.head, b.att
		}
		return err
	})
}

// Drop forgets blocks.
func (f *Fabric) Drop(ctx context.Context, it []fabric.Item) {
	f.each(ctx, it, func(it *fabric.Item) error {
		b, err := f.w.find(it)
		if err == nil {
			f.w.remove(b)
		}
		return err
	})
}

// List enumerates in the order of the handles.
func (f *Fabric) List(ctx context.Context, fn func(fabric.Item) bool) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.calls.Done()
	if err := f.reach(); err != nil {
		return err
	}
	for _, h := range f.w.sorted() {
		if err := f.ended(ctx); err != nil {
			return err
		}
		f.w.mu.Lock()
		b := f.w.byHandle[h]
		f.w.mu.Unlock()
		if b == nil {
			continue
		}
		if !fn(fabric.Item{NS: b.id.ns, Key: b.id.key, Tier: b.tier, H: handleOf(h), Head: b.head, Att: b.att, Via: Via}) {
			return nil
		}
	}
	return nil
}

// Flip damages a stored block at rest: bit counts from 1 over the body, 0 is the
// first one. It reports whether the handle names a block.
func (f *Fabric) Flip(h fabric.Handle, bit uint64) bool {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	b := f.w.byHandle[numberOf(h)]
	if b == nil {
		return false
	}
	bad := *b
	bad.buf = append([]byte(nil), b.buf...)
	flip(bad.buf, max(bit, 1)-1)
	f.w.publish(&bad)
	return true
}

// probeBytes is the body of the block that Probe moves.
const probeBytes = 1 << 20

// Probe copies and checks one block of 1 MiB. peer is "" or an endpoint's name.
func (f *Fabric) Probe(ctx context.Context, peer string) (string, float64, error) {
	if err := f.enter(); err != nil {
		return "", 0, err
	}
	defer f.calls.Done()
	if err := f.ended(ctx); err != nil {
		return "", 0, err
	}
	if err := f.reach(); err != nil {
		return "", 0, err
	}
	f.w.mu.Lock()
	known := peer == "" || f.w.peers[peer] != nil
	f.w.mu.Unlock()
	if !known {
		return "", 0, &fabric.Error{Code: wire.CodeUnreachable, Fabric: Label, Text: "no endpoint " + peer}
	}
	src := make([]byte, probeBytes)
	for i := range src {
		src[i] = byte(mix(f.opt.Seed ^ uint64(i)))
	}
	want := wire.SumOf(src)
	dst := make([]byte, probeBytes)
	start := time.Now()
	if got := wire.CopySum(dst, src).Sum(); got != want {
		return Via, 0, &wire.ChecksumError{Want: want, Got: got}
	}
	took := time.Since(start)
	if took <= 0 {
		return Via, 0, nil
	}
	return Via, probeBytes / took.Seconds() / 1e9, nil
}
