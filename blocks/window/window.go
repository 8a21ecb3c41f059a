package window

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"meridian/blocks"
	"meridian/wire"
)

// Bounds and defaults.
const (
	MaxWindows   = 4096    // open at a time, all owners together
	MaxItems     = 4096    // of one window
	DefaultBytes = 1 << 30 // of all windows
	addressSpace = 1 << 47 // bytes; what a peer may put into 64-bit addresses of user space
	firstAddress = 1 << 32 // nothing that looks like a length or an offset is an address
	itemAlign    = 64      // of each item in its window
	reserveTTL   = time.Minute
)

// Store is what Commit needs of *blocks.Store.
type Store interface {
	Reserve(o blocks.Owner, ns wire.Namespace, size []uint32, ttl time.Duration) ([]blocks.View, error)
	Ingest(o blocks.Owner, from []byte, c *blocks.Commit) error
}

// Span is where an item lies in its window.
type Span struct{ Off, Len uint64 }

// Window is an open one, as its owner sees it.
type Window struct {
	Addr, Len uint64
	Items     []Span
	FD        int // a duplicate for whoever maps it; the caller closes it
}

// Error is why a call was refused. It matches Code.
type Error struct {
	Code       wire.Code
	Addr, Len  uint64
	Have, Need uint64 // bytes or counts, where the code is about an amount
	Text       string
}

// Error names the values.
func (e *Error) Error() string {
	s := fmt.Sprintf("window: %s: %s", e.Code, e.Text)
	if e.Addr != 0 || e.Len != 0 {
		s += fmt.Sprintf(" (address %#x, %d bytes)", e.Addr, e.Len)
	}
	if e.Have != 0 || e.Need != 0 {
		s += fmt.Sprintf(" (have %d, need %d)", e.Have, e.Need)
	}
	return s
}

// Unwrap returns the code.
func (e *Error) Unwrap() error { return e.Code }

// Stats of a table. Counters only rise.
type Stats struct {
	Windows  int    // not free
	Bytes    uint64 // of those
	InFlight int    // accesses that are in
	Opened   uint64
	Late     uint64 // accesses refused because their window was closed or gone
	Lapsed   uint64 // windows that their deadline closed
	Blocks   uint64 // published by Commit
}

type state uint8

const (
	open state = iota
	closing
	hashing
)

// win is one window; the table's mutex guards it.
type win struct {
	addr   uint64
	owner  blocks.Owner
	ns     wire.Namespace
	items  []Span
	mem    *memory
	state  state
	in     int // accesses
	doomed bool
	until  time.Duration
}

// Table holds the windows of a daemon. It is safe for concurrent use.
type Table struct {
	store Store
	clock func() time.Duration
	limit uint64

	mu    sync.Mutex
	next  uint64
	wins  []*win // by address, rising
	bytes uint64
	st    Stats
}

// New makes an empty table. clock is monotonic; limit is the bytes of all windows
// together, DefaultBytes where it is 0.
func New(store Store, clock func() time.Duration, limit uint64) *Table {
	if limit == 0 {
		limit = DefaultBytes
	}
	return &Table{store: store, clock: clock, limit: limit, next: firstAddress}
}

// Open makes a window for items of the given lengths. FULL above the table's
// bytes, TOO_MANY above its windows or items, INVALID for no item or an empty one.
func (t *Table) Open(o blocks.Owner, ns wire.Namespace, lens []uint32, ttl time.Duration) (Window, error) {
	if len(lens) == 0 || len(lens) > MaxItems {
		return Window{}, &Error{Code: wire.CodeTooMany, Text: "items of a window", Have: MaxItems, Need: uint64(len(lens))}
	}
	w := &win{owner: o, ns: ns, until: t.clock() + ttl}
	size := uint64(0)
	for _, n := range lens {
		if n == 0 {
			return Window{}, &Error{Code: wire.CodeInvalid, Text: "an item of no bytes"}
		}
		w.items = append(w.items, Span{size, uint64(n)})
		size += (uint64(n) + itemAlign - 1) &^ (itemAlign - 1)
	}
	size = wholePages(size)
	if err := t.reserve(size); err != nil {
		return Window{}, err
	}
	mem, err := newMemory(size) // outside the lock: it allocates every page
	var fd int
	if err == nil {
		if fd, err = mem.dup(); err != nil {
			mem.close()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.bytes -= size
		t.st.Windows--
		return Window{}, err
	}
	w.mem, w.addr = mem, t.next
	t.next += size + pageSize // a gap, so that no access runs from one into the next
	t.wins = append(t.wins, w)
	t.st.Opened++
	return Window{Addr: w.addr, Len: size, Items: append([]Span(nil), w.items...), FD: fd}, nil
}

// reserve counts a window before it is made, so that calls cannot race past the
// bounds.
func (t *Table) reserve(size uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.st.Windows >= MaxWindows:
		return &Error{Code: wire.CodeTooMany, Text: "windows", Have: MaxWindows, Need: MaxWindows + 1}
	case t.bytes+size > t.limit:
		return &Error{Code: wire.CodeFull, Text: "bytes of all windows", Have: t.limit - t.bytes, Need: size}
	case t.next+size+pageSize > addressSpace:
		return &Error{Code: wire.CodeFull, Text: "addresses of this incarnation", Have: addressSpace - t.next, Need: size}
	}
	t.bytes += size
	t.st.Windows++
	return nil
}

// at returns the window that addr lies in, or nil. t.mu is held.
func (t *Table) at(addr uint64) *win {
	i := sort.Search(len(t.wins), func(i int) bool { return t.wins[i].addr > addr })
	if i == 0 {
		return nil
	}
	if w := t.wins[i-1]; addr-w.addr < uint64(len(w.mem.b)) {
		return w
	}
	return nil
}

// Enter lets an access of n bytes at addr in: b may be written until leave, which
// is called once. STALE where the window is gone or closing, INVALID where the
// range leaves the window.
func (t *Table) Enter(addr, n uint64) (b []byte, leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.at(addr)
	if w == nil || w.state != open {
		t.st.Late++
		return nil, nil, &Error{Code: wire.CodeStale, Addr: addr, Len: n, Text: "no open window at this address"}
	}
	from := addr - w.addr
	if n > uint64(len(w.mem.b))-from {
		return nil, nil, &Error{Code: wire.CodeInvalid, Addr: addr, Len: n, Text: "the range leaves its window"}
	}
	w.in++
	t.st.InFlight++
	var once sync.Once
	return w.mem.b[from : from+n : from+n], func() { once.Do(func() { t.leave(w) }) }, nil
}

func (t *Table) leave(w *win) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.in--
	t.st.InFlight--
	t.settle(w)
}

// settle frees a window that nobody needs any more. t.mu is held.
func (t *Table) settle(w *win) {
	if !w.doomed || w.in > 0 || w.state == hashing {
		return
	}
	i := sort.Search(len(t.wins), func(i int) bool { return t.wins[i].addr >= w.addr })
	if i == len(t.wins) || t.wins[i] != w {
		return // freed already
	}
	t.wins = append(t.wins[:i], t.wins[i+1:]...)
	t.bytes -= uint64(len(w.mem.b))
	t.st.Windows--
	w.mem.close()
}

// own returns the owner's window of exactly that address. Another owner's is as
// one that is not there. t.mu is held.
func (t *Table) own(o blocks.Owner, addr uint64) *win {
	if w := t.at(addr); w != nil && w.addr == addr && w.owner == o {
		return w
	}
	return nil
}

// Commit closes a window and publishes its items: c[i] is item i, and only its
// Key, Tier, Head and Live are read. With a Head the bytes must match it; without
// one it is minted, attested as ingest. Each has its own Err; a window that was
// committed is free afterwards, whatever became of its items.
//
// BUSY: accesses are still in. The window takes no new ones; Commit again when
// the transport is quiet. STALE: no such window of this owner.
func (t *Table) Commit(o blocks.Owner, addr uint64, c []blocks.Commit) error {
	t.mu.Lock()
	w := t.own(o, addr)
	switch {
	case w == nil || w.doomed || w.state == hashing:
		t.mu.Unlock()
		return &Error{Code: wire.CodeStale, Addr: addr, Text: "no window of this owner at this address"}
	case len(c) > len(w.items):
		t.mu.Unlock()
		return &Error{Code: wire.CodeInvalid, Addr: addr, Text: "more items than the window has", Have: uint64(len(w.items)), Need: uint64(len(c))}
	}
	w.state = closing
	if w.in > 0 {
		n := w.in
		t.mu.Unlock()
		return &Error{Code: wire.CodeBusy, Addr: addr, Text: "accesses are in flight", Have: uint64(n)}
	}
	w.state = hashing
	t.mu.Unlock()

	published := uint64(0)
	for i := range c {
		if t.publish(w, i, &c[i]); c[i].Err == nil {
			published++
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.st.Blocks += published
	w.state, w.doomed = closing, true
	t.settle(w)
	return nil
}

// publish copies one item out of its window into a slot. Nobody else uses the
// window then, but whoever mapped it may still write: the hash is of the copy.
func (t *Table) publish(w *win, i int, c *blocks.Commit) {
	at := w.items[i]
	n := at.Len
	if c.Head != nil {
		n = uint64(c.Head.BodyLen)
	}
	if n > at.Len {
		c.Err = &Error{Code: wire.CodeTooLarge, Addr: w.addr + at.Off, Text: "a body longer than its item", Have: at.Len, Need: n}
		return
	}
	v, err := t.store.Reserve(w.owner, w.ns, []uint32{uint32(n)}, reserveTTL)
	if err != nil {
		c.Err = err
		return
	}
	c.Slot, c.Gen, c.NS, c.Att = v[0].Ref.Slot, v[0].Ref.Gen, w.ns, wire.AttestIngest
	c.Err = t.store.Ingest(w.owner, w.mem.b[at.Off:at.Off+n], c)
}

// Close gives a window up, in whatever state it is; one that is not there, or not
// this owner's, is no matter.
func (t *Table) Close(o blocks.Owner, addr uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.own(o, addr); w != nil {
		t.doom(w)
	}
}

// Drop gives up all windows of an owner. Call it before Store.Drop.
func (t *Table) Drop(o blocks.Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range append([]*win(nil), t.wins...) {
		if w.owner == o {
			t.doom(w)
		}
	}
}

// doom closes a window for good. t.mu is held.
func (t *Table) doom(w *win) {
	w.doomed = true
	if w.state == open {
		w.state = closing
	}
	t.settle(w)
}

// Step closes windows whose deadline has passed, and says when to call it again:
// a reading of the clock, 0 when nothing is due.
func (t *Table) Step() (next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	for _, w := range append([]*win(nil), t.wins...) {
		switch {
		case w.doomed:
		case w.until <= now:
			t.st.Lapsed++
			t.doom(w)
		case next == 0 || w.until < next:
			next = w.until
		}
	}
	return next
}

// Stats counts.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.st
	st.Bytes = t.bytes
	return st
}
