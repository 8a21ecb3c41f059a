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

// allowed says whether an access would be admitted now.
func (f *Fabric) allowed(op Op, r fabric.Range, m []byte) error {
	_, err := f.window(op, r, m)
	return err
}

func (f *Fabric) window(op Op, r fabric.Range, m []byte) (*window, error) {
	if r.Len != uint64(len(m)) || r.Dev != 0 {
		return nil, &fabric.Error{Code: wire.CodeInvalid, Fabric: Label, Have: uint64(len(m)), Need: r.Len,
			Text: "range and memory differ in length, or the range is a device's"}
	}
	if len(m) > f.opt.MaxItem {
		return nil, tooLarge(f.opt.MaxItem, len(m))
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return f.w.findWindow(r, f.name, op == OpWrite)
}

// touch performs one access. A corrupted one flips a bit of what it delivers and
// reports success: one-sided memory has no checksum.
func (f *Fabric) touch(op Op, r fabric.Range, m []byte, v verdict) error {
	win, err := f.window(op, r, m)
	if err != nil {
		return err
	}
	if !win.begin() {
		return &fabric.Error{Code: wire.CodeStale, Fabric: Label, Text: "the window is closing"}
	}
	defer win.finish()
	off := r.Addr - win.base
	if op == OpRead {
		pos := 0
		win.pieces(off, r.Len, func(b []byte) { pos += copy(m[pos:], b) })
		if v.corrupt && len(m) > 0 {
			v.bit %= uint64(len(m)) * 8
			m[v.bit/8] ^= 1 << (v.bit % 8)
		}
		return nil
	}
	if r.Len > 0 && !win.note(wire.Span{Off: off, Len: r.Len}) {
		return &fabric.Error{Code: wire.CodeTooMany, Fabric: Label, Have: maxSpans, Need: maxSpans + 1}
	}
	pos := 0
	win.pieces(off, r.Len, func(b []byte) { pos += copy(b, m[pos:]) })
	if v.corrupt && r.Len > 0 {
		v.bit %= r.Len * 8
		win.pieces(off+v.bit/8, 1, func(b []byte) { b[0] ^= 1 << (v.bit % 8) })
	}
	if win.OnWrite != nil {
		win.OnWrite(wire.Span{Off: off, Len: r.Len})
	}
	return nil
}
