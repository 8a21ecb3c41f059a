package synthetic

import (
	"context"
	"slices"
	"sort"
	"sync"

	"meridian/fabric"
	"meridian/wire"
)

// The address space of a world. Addresses only grow and are never given out
// twice, so an address is its own generation: an access that was meant for a
// window that is gone finds nothing. A page lies between two windows, so that
// running over the end of one does not reach the next.
const (
	firstAddr  = 1 << 32
	lastAddr   = 1 << 47
	pageBytes  = 4096
	maxWindows = 65536 // open ones in a world
	maxSpans   = 65536 // disjoint written runs of one window; more writes are refused
)

type space struct {
	next    uint64
	windows []*window // ascending by base
}

// window is an open range. mu guards n, closed and touched.
type window struct {
	owner      *Fabric // nil: a placement of the store
	base, size uint64
	fabric.Window

	mu      sync.Mutex
	n       int // accesses under way
	closed  bool
	idle    chan struct{} // closed once closed is set and n is 0
	touched []wire.Span   // ascending, disjoint, not adjacent
}

// open gives w an address. The world is locked.
func (s *space) open(owner *Fabric, w fabric.Window) (*window, error) {
	var size uint64
	for _, m := range w.M {
		size += uint64(len(m.B))
	}
	step := (size + 2*pageBytes - 1) / pageBytes * pageBytes
	switch {
	case size == 0:
		return nil, &fabric.Error{Code: wire.CodeInvalid, Fabric: Label, Text: "a window without memory"}
	case len(s.windows) >= maxWindows:
		return nil, &fabric.Error{Code: wire.CodeTooMany, Fabric: Label, Have: maxWindows, Need: maxWindows + 1}
	case step > lastAddr-s.next:
		return nil, &fabric.Error{Code: wire.CodeFull, Fabric: Label, Have: lastAddr - s.next, Need: step,
			Text: "the addresses of this incarnation are used up"}
	}
	win := &window{owner: owner, base: s.next, size: size, Window: w, idle: make(chan struct{})}
	win.M = slices.Clone(w.M)
	win.Peers = slices.Clone(w.Peers)
	s.next += step
	s.windows = append(s.windows, win)
	return win, nil
}

// at returns the window that addr lies in, or the last one below it.
func (s *space) at(addr uint64) *window {
	i := sort.Search(len(s.windows), func(i int) bool { return s.windows[i].base > addr })
	if i == 0 {
		return nil
	}
	return s.windows[i-1]
}

// remove forgets a window. The world is locked.
func (s *space) remove(win *window) {
	if i := slices.Index(s.windows, win); i >= 0 {
		s.windows = slices.Delete(s.windows, i, i+1)
	}
}

// find returns the window that r lies wholly in, if from may touch it so. The
// world is locked.
func (w *world) findWindow(r fabric.Range, from string, write bool) (*window, error) {
	fail := func(c wire.Code, text string) (*window, error) {
		return nil, &fabric.Error{Code: c, Fabric: Label, Text: text}
	}
	if r.Peer != StorePeer && w.peers[r.Peer] == nil {
		return fail(wire.CodeUnreachable, "no endpoint "+r.Peer)
	}
	win := w.space.at(r.Addr)
	switch {
	case r.Addr >= w.space.next || r.Addr < firstAddr:
		return fail(wire.CodeAbsent, "no window was ever open at the address")
	case win == nil || r.Addr-win.base >= win.size:
		return fail(wire.CodeStale, "no window is open at the address")
	case win.ownerName() != r.Peer:
		return fail(wire.CodeDenied, "the address is another endpoint's")
	case r.Len > win.size-(r.Addr-win.base):
		return fail(wire.CodeDenied, "the range runs over the end of the window")
	case len(win.Peers) > 0 && !slices.Contains(win.Peers, from):
		return fail(wire.CodeDenied, "the window is not open to "+from)
	case write && !win.Write:
		return fail(wire.CodeDenied, "the window is read-only")
	}
	return win, nil
}

func (win *window) ownerName() string {
	if win.owner == nil {
		return StorePeer
	}
	return win.owner.name
}

// begin admits an access unless the window is closing.
func (win *window) begin() bool {
	win.mu.Lock()
	defer win.mu.Unlock()
	if win.closed {
		return false
	}
	win.n++
	return true
}

func (win *window) finish() {
	win.mu.Lock()
	defer win.mu.Unlock()
	win.n--
	if win.closed && win.n == 0 {
		close(win.idle)
	}
}

// shut refuses new accesses; the channel closes when none is under way.
func (win *window) shut() <-chan struct{} {
	win.mu.Lock()
	defer win.mu.Unlock()
	if !win.closed {
		win.closed = true
		if win.n == 0 {
			close(win.idle)
		}
	}
	return win.idle
}

// note merges a written run into touched; false when there are too many.
func (win *window) note(s wire.Span) bool {
	win.mu.Lock()
	defer win.mu.Unlock()
	end := s.Off + s.Len
	i := sort.Search(len(win.touched), func(i int) bool { return win.touched[i].Off+win.touched[i].Len >= s.Off })
	j := i
	for ; j < len(win.touched) && win.touched[j].Off <= end; j++ {
		s.Off = min(s.Off, win.touched[j].Off)
		end = max(end, win.touched[j].Off+win.touched[j].Len)
	}
	if i == j && len(win.touched) >= maxSpans {
		return false
	}
	s.Len = end - s.Off
	win.touched = slices.Replace(win.touched, i, j, s)
	return true
}

// pieces calls f for the runs of memory that [off, off+n) of the window covers.
func (win *window) pieces(off, n uint64, f func(b []byte)) {
	for _, m := range win.M {
		if n == 0 {
			return
		}
		size := uint64(len(m.B))
		if off >= size {
			off -= size
			continue
		}
		take := min(n, size-off)
		f(m.B[off : off+take])
		off, n = 0, n-take
	}
}

// Open makes memory reachable for the other endpoints, and for this one.
func (f *Fabric) Open(w fabric.Window) (fabric.Range, error) {
	if err := f.enter(); err != nil {
		return fabric.Range{}, err
	}
	defer f.calls.Done()
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	win, err := f.w.space.open(f, w)
	if err != nil {
		return fabric.Range{}, err
	}
	return fabric.Range{Peer: f.name, Addr: win.base, Len: win.size}, nil
}

// Shut closes a window of this endpoint.
func (f *Fabric) Shut(ctx context.Context, r fabric.Range) ([]wire.Span, error) {
	f.w.mu.Lock()
	win := f.w.space.at(r.Addr)
	f.w.mu.Unlock()
	if win == nil || win.base != r.Addr || win.owner != f {
		return nil, nil
	}
	select {
	case <-win.shut():
	case <-ctx.Done():
		return nil, fabric.ContextError(ctx, Label)
	}
	f.w.mu.Lock()
	f.w.space.remove(win)
	f.w.mu.Unlock()
	win.mu.Lock()
	defer win.mu.Unlock()
	return slices.Clone(win.touched), nil
}
