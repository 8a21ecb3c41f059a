package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"meridian/blocks"
	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/wire"
)

func windowChecks() []Check {
	oneSided := func(h *Harness) bool {
		_, ok := h.Fabric.(fabric.Memory)
		return ok && h.Windows != nil
	}
	return []Check{
		{Name: "one-sided write and read", Run: checkWriteRead, Applies: oneSided},
		{Name: "window bounds", Run: checkBounds, Applies: oneSided},
		{Name: "window permissions", Run: checkPermissions, Applies: oneSided},
		{Name: "owner hears of a write between its bytes and the answer", Run: checkWrote, Applies: oneSided},
		{Name: "closed window is never touched again", Run: checkWindowEnd, Applies: oneSided},
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

// owner of all windows of the suite.
const owner blocks.Owner = 1

const windowBytes = 1000 + 1 + 3095

// open makes a window of painted memory that peers may read, and is its range.
func (h *Harness) open(s window.Spec) (fabric.Range, error) {
	s.Bytes, s.TTL, s.Read = windowBytes, window.Forever, true
	w, err := h.Windows.Open(owner, s)
	if err != nil {
		return fabric.Range{}, fmt.Errorf("open: %w", err)
	}
	r := fabric.Range{Peer: h.At, Addr: w.Addr, Len: w.Len}
	h.own(r, paint)
	return r, nil
}

// own gives f the memory of a window.
func (h *Harness) own(r fabric.Range, f func(b []byte)) {
	if b, leave, err := h.Windows.Own(owner, r.Addr, r.Len); err == nil {
		f(b)
		leave()
	}
}

// content is a copy of what a window holds; nil: it is closed.
func (h *Harness) content(r fabric.Range) (c []byte) {
	h.own(r, func(b []byte) { c = bytes.Clone(b) })
	return c
}

func (h *Harness) closeWindow(r fabric.Range) { h.Windows.Close(owner, r.Addr) }

func checkWriteRead(ctx context.Context, h *Harness) error {
	r, err := h.open(window.Spec{Write: true})
	if err != nil {
		return err
	}
	want := h.content(r)
	for i, s := range []wire.Span{{Off: 0, Len: windowBytes}, {Off: 990, Len: 20}, {Off: 1000, Len: 1}, {Off: 4000, Len: 96}, {Off: 7, Len: 0}} {
		b := make([]byte, s.Len)
		fill(b, fmt.Sprintf("write-%d", i))
		if err := h.access(ctx, true, part(r, s.Off, s.Len), b); err != nil {
			return fmt.Errorf("write of %+v: %w", s, err)
		}
		copy(want[s.Off:], b)
		if !bytes.Equal(h.content(r), want) {
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
	return nil
}

// checkBounds: an access lies wholly in one window or is refused as a whole.
func checkBounds(ctx context.Context, h *Harness) error {
	ra, err := h.open(window.Spec{Write: true})
	if err != nil {
		return err
	}
	rb, err := h.open(window.Spec{Write: true})
	if err != nil {
		return err
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
	if unpainted(h.content(ra)) >= 0 || unpainted(h.content(rb)) >= 0 {
		return errors.New("a refused write left bytes in a window")
	}
	return nil
}

func checkPermissions(ctx context.Context, h *Harness) error {
	r, err := h.open(window.Spec{})
	if err != nil {
		return err
	}
	h.own(r, func(b []byte) { fill(b[:100], "read-only") })
	want := h.content(r)
	err = h.access(ctx, true, part(r, 0, 10), make([]byte, 10))
	if err := refused("write to a read-only window", err, wire.CodeDenied); err != nil {
		return err
	}
	got := make([]byte, windowBytes)
	if err := h.access(ctx, false, r, got); err != nil {
		return fmt.Errorf("read of a read-only window: %w", err)
	}
	if !bytes.Equal(got, want) || !bytes.Equal(h.content(r), want) {
		return errors.New("a read-only window changed, or was read wrongly")
	}
	if r, err = h.open(window.Spec{Write: true, Peers: []string{"somebody else"}}); err != nil {
		return err
	}
	for _, write := range []bool{true, false} {
		err := h.access(ctx, write, part(r, 0, 10), make([]byte, 10))
		if err := refused("access to a window that is open to another peer", err, wire.CodeDenied); err != nil {
			return err
		}
	}
	if unpainted(h.content(r)) >= 0 {
		return errors.New("a window that is open to another peer was written")
	}
	return nil
}

// checkWrote: the owner hears of the bytes once they are in place and before the writer
// learns it, and of nothing else.
func checkWrote(ctx context.Context, h *Harness) error {
	var mu sync.Mutex
	var told []wire.Span
	var early error
	var data []byte
	var r fabric.Range
	r, err := h.open(window.Spec{Write: true, Wrote: func(s wire.Span) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, s)
		if got := h.content(r); !bytes.Equal(got[s.Off:s.Off+s.Len], data) {
			early = errors.New("the owner was told of bytes before they were in place, or of others")
		}
	}})
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
			return fmt.Errorf("write of %+v was answered, and its owner was told %+v", s, last)
		}
		if st := h.Windows.Stats(); st.InFlight != 0 {
			return errors.New("a write was answered before it had left its window")
		}
	}
	_ = h.access(ctx, false, part(r, 0, 10), make([]byte, 10))
	_ = h.access(ctx, true, part(r, windowBytes, 10), make([]byte, 10))
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 2 {
		return errors.New("the owner was told of a read or of a refused write")
	}
	return nil
}

// checkWindowEnd: an access that comes after a window's end misses, for ever, whatever is
// opened next.
func checkWindowEnd(ctx context.Context, h *Harness) error {
	r, err := h.open(window.Spec{Write: true})
	if err != nil {
		return err
	}
	for _, write := range []bool{true, false} {
		if err := h.access(ctx, write, part(r, 10, 5), make([]byte, 5)); err != nil {
			return err
		}
	}
	if err := h.commit(ctx, r); err != nil {
		return err
	}
	for range 4 {
		next, err := h.open(window.Spec{Write: true})
		if err != nil {
			return err
		}
		for _, write := range []bool{true, false} {
			err := h.access(ctx, write, part(r, 0, 10), make([]byte, 10))
			if err := refused("access to a window that was closed", err, wire.CodeStale, wire.CodeAbsent); err != nil {
				return err
			}
		}
		if unpainted(h.content(next)) >= 0 {
			return errors.New("a late write reached another window")
		}
		h.closeWindow(next)
	}
	return nil
}

// commit ends a window when its last access has left: a reader may have all its bytes
// before that.
func (h *Harness) commit(ctx context.Context, r fabric.Range) error {
	err := h.Windows.Commit(owner, r.Addr, nil)
	var busy *window.Error
	if !errors.As(err, &busy) || busy.Code != wire.CodeBusy {
		return err
	}
	select {
	case <-busy.Quiet:
		return h.Windows.Commit(owner, r.Addr, nil)
	case <-ctx.Done():
		return errors.New("an access that was answered never left its window")
	}
}

func checkMixedAccess(ctx context.Context, h *Harness) error {
	r, err := h.open(window.Spec{Write: true})
	if err != nil {
		return err
	}
	x := make([]fabric.Xfer, 6)
	want := h.content(r)
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
			if err := refused("access out of range in a mixed batch", x[i].Err, wire.CodeInvalid, wire.CodeDenied, wire.CodeAbsent, wire.CodeStale); err != nil {
				return err
			}
		}
	}
	if !bytes.Equal(h.content(r), want) {
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
	if !bytes.Equal(h.content(r), want) {
		return errors.New("a write under a cancelled context left bytes")
	}
	return nil
}
