package synthetic

import (
	"context"

	"meridian/fabric"
	"meridian/wire"
)

// Read copies ranges of windows into the caller's memory.
func (f *Fabric) Read(ctx context.Context, x []fabric.Xfer) { f.transfer(ctx, OpRead, x) }

// Write copies the caller's memory into ranges of windows.
func (f *Fabric) Write(ctx context.Context, x []fabric.Xfer) { f.transfer(ctx, OpWrite, x) }

func (f *Fabric) transfer(ctx context.Context, op Op, x []fabric.Xfer) {
	b := batch{
		f: f, n: len(x),
		access: func(i int) access { return access{op: op, peer: x[i].R.Peer} },
		do:     func(i int, v verdict) error { return f.touch(op, x[i].R, x[i].M.B, v) },
		late: func(i int) (*lateOp, error) {
			r, m := x[i].R, x[i].M.B
			if err := f.allowed(op, r, m); err != nil {
				return nil, err
			}
			return &lateOp{m: m, touch: func() { _ = f.touch(op, r, m, verdict{}) }}, nil
		},
		end: func(i int, loose bool, err error) { x[i].Via, x[i].Loose, x[i].Err = Via, loose, err },
	}
	b.run(ctx)
}

// allowed says whether an access would be let in now.
func (f *Fabric) allowed(op Op, r fabric.Range, m []byte) error {
	_, leave, err := f.let(op, r, m)
	leave(0)
	return err
}

// let lets one access of this endpoint in where its range is.
func (f *Fabric) let(op Op, r fabric.Range, m []byte) (b []byte, leave func(uint64), err error) {
	leave = func(uint64) {}
	if r.Len != uint64(len(m)) || r.Dev != 0 {
		return nil, leave, &fabric.Error{Code: wire.CodeInvalid, Fabric: Label, Have: uint64(len(m)), Need: r.Len,
			Text: "range and memory differ in length, or the range is a device's"}
	}
	if len(m) > f.opt.MaxItem {
		return nil, leave, tooLarge(f.opt.MaxItem, len(m))
	}
	at := f.w.target(r.Peer)
	if at == nil {
		return nil, leave, &fabric.Error{Code: wire.CodeUnreachable, Fabric: Label, Text: "no endpoint with windows is called " + r.Peer}
	}
	if r.Len == 0 { // nothing to ask for
		return nil, leave, nil
	}
	b, left, err := at.Enter(f.name, r.Addr, r.Len, op == OpWrite)
	if err != nil {
		return nil, leave, &fabric.Error{Code: wire.CodeOf(err), Fabric: Label, Text: err.Error()}
	}
	return b, left, nil
}

// touch performs one access. A corrupted one flips a bit of what it delivers and
// reports success: one-sided memory has no checksum.
func (f *Fabric) touch(op Op, r fabric.Range, m []byte, v verdict) error {
	b, leave, err := f.let(op, r, m)
	if err != nil {
		return err
	}
	to, from, wrote := m, b, uint64(0)
	if op == OpWrite {
		to, from, wrote = b, m, r.Len
	}
	copy(to, from)
	if v.corrupt && r.Len > 0 {
		v.bit %= r.Len * 8
		to[v.bit/8] ^= 1 << (v.bit % 8)
	}
	leave(wrote)
	return nil
}

// Serve lets the endpoints of the world reach the windows of t as this endpoint's.
func (f *Fabric) Serve(t fabric.Target) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.serves = t
}

// target is where ranges of a peer are; nil: there is none.
func (w *world) target(peer string) fabric.Target {
	if peer == StorePeer {
		return w.windows
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.peers[peer]; f != nil {
		return f.serves
	}
	return nil
}
