package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"meridian/fabric"
	"meridian/wire"
)

func windowChecks() []Check {
	oneSided := func(h *Harness) bool {
		_, ok := h.Fabric.(fabric.Memory)
		return ok && h.target() != nil
	}
	return []Check{
		{Name: "one-sided write and read", Run: checkWriteRead, Applies: oneSided},
		{Name: "window bounds", Run: checkBounds, Applies: oneSided},
		{Name: "window permissions", Run: checkPermissions, Applies: oneSided},
		{Name: "OnWrite comes between bytes and answer", Run: checkOnWrite, Applies: oneSided},
		{Name: "shut window is never touched again", Run: checkShut, Applies: oneSided},
		{Name: "one status an access", Run: checkMixedAccess, Applies: oneSided},
	}
}

// access is one Xfer by itself; its error.
func (h *Harness) access(ctx context.Context, write bool, r fabric.Range, b []byte) error {
	m, intact := h.room(len(b))
	copy(m.B, b)
	x := []fabric.Xfer{{R: r, M: m, Via: "stale", Loose: true, Err: errStale}}
	mem := h.Fabric.(fabric.Memory)
	if write {
		mem.Write(ctx, x)
	} else {
		mem.Read(ctx, x)
	}
	if x[0].Err == nil {
		switch {
		case x[0].Loose:
			return errLoose
		case x[0].Via == "" || x[0].Via == "stale":
			return errors.New("the transport really used (Via) is not reported")
		}
		copy(b, m.B)
	}
	return errors.Join(x[0].Err, intact())
}

// part is bytes [off, off+n) of a range.
func part(r fabric.Range, off, n uint64) fabric.Range {
	r.Addr, r.Len = r.Addr+off, n
	return r
}

// newWindow makes a window of three unequal pieces.
func (h *Harness) newWindow(write bool) (fabric.Window, func() []byte) {
	w := fabric.Window{Write: write}
	for _, n := range []int{1000, 1, 3095} {
		m, _ := h.room(n)
		w.M = append(w.M, m)
	}
	return w, func() []byte {
		var all []byte
		for _, m := range w.M {
			all = append(all, m.B...)
		}
		return all
	}
}

const windowBytes = 1000 + 1 + 3095

func checkWriteRead(ctx context.Context, h *Harness) error {
	w, content := h.newWindow(true)
	r, err := h.target().Open(w)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if r.Len != windowBytes || r.Addr == 0 {
		return fmt.Errorf("open of %d bytes gave %d at address %#x", windowBytes, r.Len, r.Addr)
	}
	want := content()
	for i, s := range []wire.Span{{Off: 0, Len: windowBytes}, {Off: 990, Len: 20}, {Off: 1000, Len: 1}, {Off: 4000, Len: 96}, {Off: 7, Len: 0}} {
		b := make([]byte, s.Len)
		fill(b, fmt.Sprintf("write-%d", i))
		if err := h.access(ctx, true, part(r, s.Off, s.Len), b); err != nil {
			return fmt.Errorf("write of %+v: %w", s, err)
		}
		copy(want[s.Off:], b)
		if !bytes.Equal(content(), want) {
			return fmt.Errorf("after a write of %+v the window holds other bytes", s)
		}
		got := make([]byte, s.Len)
		if err := h.access(ctx, false, part(r, s.Off, s.Len), got); err != nil {
			return fmt.Errorf("read of %+v: %w", s, err)
		}
		if !bytes.Equal(got, b) {
			return fmt.Errorf("read of %+v gave other bytes than were written", s)
		}
	}
	_, err = h.target().Shut(ctx, r)
	return err
}

// checkBounds: an access lies wholly in one window or is refused as a whole.
func checkBounds(ctx context.Context, h *Harness) error {
	a, contentA := h.newWindow(true)
	b, contentB := h.newWindow(true)
	ra, err := h.target().Open(a)
	if err != nil {
		return err
	}
	rb, err := h.target().Open(b)
	if err != nil {
		return err
	}
	if ra.Peer == rb.Peer && ra.Addr < rb.Addr+rb.Len && rb.Addr < ra.Addr+ra.Len {
		return errors.New("two open windows overlap")
	}
	for _, c := range []struct {
		name string
		r    fabric.Range
		n    int
	}{
		{"one byte beyond the end", part(ra, 0, windowBytes+1), windowBytes + 1},
		{"starting before the window", part(ra, ^uint64(0), 10), 10},
		{"at the end", part(ra, windowBytes, 1), 1},
		{"running over the end", part(ra, windowBytes-5, 10), 10},
		{"from one window into the next", part(ra, 0, rb.Addr-ra.Addr+10), int(min(rb.Addr-ra.Addr+10, 1<<20))},
		{"of a length that overflows", part(ra, 10, ^uint64(0)-5), 100},
		{"at address 0", fabric.Range{Peer: ra.Peer, Len: 8}, 8},
		{"far above", part(ra, 1<<46, 8), 8},
		{"longer than the memory", part(ra, 0, 100), 50},
		{"shorter than the memory", part(ra, 0, 50), 100},
		{"of an unknown peer", fabric.Range{Peer: "nobody of this name", Addr: ra.Addr, Len: 8}, 8},
	} {
		for _, write := range []bool{true, false} {
			err := h.access(ctx, write, c.r, make([]byte, c.n))
			if err := refused(fmt.Sprintf("access %s (write %v)", c.name, write), err, wire.CodeDenied, wire.CodeAbsent,
				wire.CodeStale, wire.CodeInvalid, wire.CodeTooLarge, wire.CodeUnreachable); err != nil {
				return err
			}
		}
	}
	if unpainted(contentA()) >= 0 || unpainted(contentB()) >= 0 {
		return errors.New("a refused write left bytes in a window")
	}
	return nil
}

func checkPermissions(ctx context.Context, h *Harness) error {
	ro, content := h.newWindow(false)
	fill(ro.M[0].B, "read-only")
	want := content()
	r, err := h.target().Open(ro)
	if err != nil {
		return err
	}
	err = h.access(ctx, true, part(r, 0, 10), make([]byte, 10))
	if err := refused("write to a read-only window", err, wire.CodeDenied); err != nil {
		return err
	}
	got := make([]byte, windowBytes)
	if err := h.access(ctx, false, r, got); err != nil {
		return fmt.Errorf("read of a read-only window: %w", err)
	}
	if !bytes.Equal(got, want) || !bytes.Equal(content(), want) {
		return errors.New("a read-only window changed, or was read wrongly")
	}
	others, content := h.newWindow(true)
	others.Peers = []string{"somebody else"}
	if r, err = h.target().Open(others); err != nil {
		return err
	}
	for _, write := range []bool{true, false} {
		err := h.access(ctx, write, part(r, 0, 10), make([]byte, 10))
		if err := refused("access to a window that is open to another peer", err, wire.CodeDenied); err != nil {
			return err
		}
	}
	if unpainted(content()) >= 0 {
		return errors.New("a window that is open to another peer was written")
	}
	return nil
}

// checkOnWrite: the call comes once the bytes are in place and before the writer
// learns it, for exactly the bytes of the write.
func checkOnWrite(ctx context.Context, h *Harness) error {
	w, content := h.newWindow(true)
	var mu sync.Mutex
	var told []wire.Span
	var early error
	var data []byte
	w.OnWrite = func(s wire.Span) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, s)
		if s.Off+s.Len > windowBytes {
			early = fmt.Errorf("OnWrite for %+v, outside the window", s)
		} else if !bytes.Equal(content()[s.Off:s.Off+s.Len], data) {
			early = errors.New("OnWrite was called before the bytes were in place")
		}
	}
	r, err := h.target().Open(w)
	if err != nil {
		return err
	}
	for i, s := range []wire.Span{{Off: 3, Len: 5}, {Off: 995, Len: 300}} {
		data = make([]byte, s.Len)
		fill(data, fmt.Sprintf("notified-%d", i))
		if err := h.access(ctx, true, part(r, s.Off, s.Len), bytes.Clone(data)); err != nil {
			return err
		}
		mu.Lock()
		n, last, err := len(told), told, early
		mu.Unlock()
		if err != nil {
			return err
		}
		if n != i+1 || last[i] != s {
			return fmt.Errorf("write of %+v was answered, OnWrite was told %+v", s, last)
		}
	}
	_ = h.access(ctx, false, part(r, 0, 10), make([]byte, 10))
	_ = h.access(ctx, true, part(r, windowBytes, 10), make([]byte, 10))
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 2 {
		return errors.New("OnWrite was called for a read or for a refused write")
	}
	return nil
}

// checkShut: what was written is told once, exactly; an access that comes later
// misses, for ever, whatever is opened next.
func checkShut(ctx context.Context, h *Harness) error {
	w, content := h.newWindow(true)
	r, err := h.target().Open(w)
	if err != nil {
		return err
	}
	for _, s := range []wire.Span{{Off: 2000, Len: 100}, {Off: 10, Len: 5}, {Off: 15, Len: 5}, {Off: 2050, Len: 100}} {
		if err := h.access(ctx, true, part(r, s.Off, s.Len), make([]byte, s.Len)); err != nil {
			return err
		}
	}
	touched, err := h.target().Shut(ctx, r)
	if err != nil {
		return fmt.Errorf("shut: %w", err)
	}
	if len(touched) != 2 || touched[0] != (wire.Span{Off: 10, Len: 10}) || touched[1] != (wire.Span{Off: 2000, Len: 150}) {
		return fmt.Errorf("shut says %+v was written", touched)
	}
	if _, err := h.target().Shut(ctx, r); err != nil {
		return fmt.Errorf("second shut: %w", err)
	}
	for _, m := range w.M {
		paint(m.B)
	}
	for range 4 {
		next, after := h.newWindow(true)
		rn, err := h.target().Open(next)
		if err != nil {
			return err
		}
		if rn.Addr < r.Addr+r.Len && r.Addr < rn.Addr+rn.Len {
			return errors.New("an address was given out twice")
		}
		for _, write := range []bool{true, false} {
			err := h.access(ctx, write, part(r, 0, 10), make([]byte, 10))
			if err := refused("access to a window that was shut", err, wire.CodeStale, wire.CodeAbsent); err != nil {
				return err
			}
		}
		if unpainted(content()) >= 0 || unpainted(after()) >= 0 {
			return errors.New("a late write reached memory")
		}
		if _, err := h.target().Shut(ctx, rn); err != nil {
			return err
		}
	}
	return nil
}

func checkMixedAccess(ctx context.Context, h *Harness) error {
	w, content := h.newWindow(true)
	r, err := h.target().Open(w)
	if err != nil {
		return err
	}
	x := make([]fabric.Xfer, 6)
	want := content()
	for i := range x {
		off := uint64(i * 100)
		if i%2 == 1 {
			off += windowBytes // out of range
		}
		m, _ := h.room(100)
		fill(m.B, fmt.Sprintf("mixed-%d", i))
		x[i] = fabric.Xfer{R: part(r, off, 100), M: m, Err: errStale}
		if i%2 == 0 {
			copy(want[off:], m.B)
		}
	}
	mem := h.Fabric.(fabric.Memory)
	mem.Write(ctx, x)
	for i := range x {
		if i%2 == 0 && x[i].Err != nil {
			return fmt.Errorf("access %d of a mixed batch: %w", i, x[i].Err)
		}
		if i%2 == 1 {
			if err := refused("access out of range in a mixed batch", x[i].Err, wire.CodeDenied, wire.CodeAbsent, wire.CodeStale); err != nil {
				return err
			}
		}
	}
	if !bytes.Equal(content(), want) {
		return errors.New("a mixed batch left other bytes in the window")
	}
	mem.Read(ctx, nil)
	mem.Write(ctx, nil)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	err = h.access(cancelled, true, part(r, 0, 10), make([]byte, 10))
	if err := refused("write under a cancelled context", err, wire.CodeCancelled); err != nil {
		return err
	}
	if !bytes.Equal(content(), want) {
		return errors.New("a write under a cancelled context left bytes")
	}
	return nil
}
