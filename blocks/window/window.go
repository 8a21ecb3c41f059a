package window

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks"
	"meridian/blocks/internal/memfd"
	"meridian/wire"
)

// Bounds and defaults.
const (
	MaxWindows   = 4096    // open at a time, all owners together
	MaxItems     = 4096    // of one window
	DefaultBytes = 1 << 30 // of all windows
	addressSpace = 1 << 47 // bytes; what a peer may put into 64-bit addresses of user space
	firstAddress = 1 << 32 // nothing that looks like a length or an offset is an address
	baseSpread   = 1 << 46 // an incarnation begins at a random address below it
	itemAlign    = 64      // of each item in its window
)

// Store is what a Table needs of *blocks.Store.
type Store interface {
	Check(o blocks.Owner, ns wire.Namespace, size []uint32) error
	ReserveTier(o blocks.Owner, ns wire.Namespace, t wire.Tier, size []uint32, ttl time.Duration) ([]blocks.View, error)
	Ingest(o blocks.Owner, from []byte, c *blocks.Commit) error
}

// Window is an open one, as its owner sees it.
type Window struct {
	Addr, Len uint64
	Items     []wire.Span // where the bodies lie; 32 bytes before each there is room for its header
	FD        int         // a duplicate for the process that maps it; the caller closes it
}

// Stats of a table. Counters only rise.
type Stats struct {
	Windows  int    // not free
	Bytes    uint64 // of those
	InFlight int    // accesses that are in
	Opened   uint64
	Late     uint64 // accesses refused because their window was closed or gone
	Lapsed   uint64 // windows that their deadline ended
	Blocks   uint64 // published by Commit
}

// Table is a core, the memory of its windows and a clock, under one mutex. It is
// safe for concurrent use. The mutex is never held for a copy, a hash or a call
// of the Store.
type Table struct {
	store Store
	clock func() time.Duration

	mu   sync.Mutex
	core *core
}

// New makes an empty table. clock is monotonic and never negative; limit is the
// bytes of all windows together, DefaultBytes where it is 0. The first address
// is random, so that a write meant for an earlier incarnation meets a window of
// this one by chance only.
func New(store Store, clock func() time.Duration, limit uint64) *Table {
	if limit == 0 {
		limit = DefaultBytes
	}
	var r [8]byte
	_, _ = rand.Read(r[:]) // never fails
	first := firstAddress + binary.LittleEndian.Uint64(r[:])%baseSpread
	return &Table{store: store, clock: clock, core: newCore(roundUp(first, memfd.PageSize), limit, memfd.PageSize)}
}

// unlock unlocks, and gives back the memory of windows that became free.
func (t *Table) unlock() {
	freed := t.core.takeFreed()
	t.mu.Unlock()
	for _, w := range freed {
		if w.mem != nil {
			w.mem.Erase()
		}
	}
}

// Open makes a window for bodies of the given lengths, for ttl. FULL above the
// table's bytes, windows or addresses; INVALID for no item, an empty one, more
// than MaxItems, or an owner that is gone; NS_UNKNOWN and TOO_LARGE as
// blocks.Store; DEADLINE or CANCELLED if it ended while its memory was made.
func (t *Table) Open(o blocks.Owner, ns wire.Namespace, lens []uint32, ttl time.Duration) (Window, error) {
	t.mu.Lock()
	w, err := t.core.reserve(t.clock(), o, ns, lens, ttl)
	t.unlock()
	if err != nil {
		return Window{}, err
	}
	fd := -1
	// Checked after the window is there: an owner whose session ended before is
	// refused here, one whose session ends later is found by Drop.
	err = t.store.Check(o, ns, lens)
	var mem *memfd.Memory
	if err == nil {
		if mem, err = memfd.New("meridian-window", w.room, memfd.Shared); err == nil {
			if fd, err = mem.Dup(); err != nil {
				mem.Close()
			}
		}
	}
	t.mu.Lock()
	if err != nil {
		t.core.failed(w)
	} else {
		w.mem = mem
		err = t.core.opened(t.clock(), w)
	}
	t.unlock()
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return Window{}, err
	}
	return Window{Addr: w.addr, Len: w.size, Items: append([]wire.Span(nil), w.items...), FD: fd}, nil
}

// Enter lets an access of n bytes at addr in, for a transport that writes for a
// peer: b may be written until leave, which may be called twice. An address is
// no proof of a right: the transport knows whom it lets write where.
//
// STALE where the window is gone or closing, INVALID where the range is empty,
// leaves its window or never was one.
func (t *Table) Enter(addr, n uint64) (b []byte, leave func(), err error) {
	t.mu.Lock()
	defer t.unlock()
	w, off, err := t.core.enter(t.clock(), addr, n)
	if err != nil {
		return nil, nil, err
	}
	var once sync.Once
	return w.mem.B[off : off+n : off+n], func() { once.Do(func() { t.leave(w) }) }, nil
}

func (t *Table) leave(w *win) {
	t.mu.Lock()
	defer t.unlock()
	if t.core.leave(w) && w.quiet != nil {
		close(w.quiet)
		w.quiet = nil
	}
}

// Commit closes a window and publishes its items: c[i] is item i. With a Head the
// bytes must match it (CHECKSUM, and the block is never visible); without one it
// is minted from Tier and Len (0: the whole item), attested as ingest whatever
// Att says. Slot, Gen and NS are set here. Each item has its own Err; a window
// that was committed is free afterwards, whatever became of its items.
//
// Commit never waits. BUSY: accesses are still in; the window takes no new ones,
// and Commit can be called again when Error.Quiet is closed. STALE: no such
// window of this owner, or one that ended or is being committed. DEADLINE: its
// time is over. INVALID: more items than it has, which leaves it as it was. A
// window that ends while it is committed keeps what was published; the items
// after that get DEADLINE or CANCELLED.
func (t *Table) Commit(o blocks.Owner, addr uint64, c []blocks.Commit) error {
	t.mu.Lock()
	w, err := t.core.take(t.clock(), o, addr, len(c))
	if err != nil {
		var e *Error
		if w != nil && errors.As(err, &e) {
			if w.quiet == nil {
				w.quiet = make(chan struct{})
			}
			e.Quiet = w.quiet
		}
		t.unlock()
		return err
	}
	t.unlock()

	published := uint64(0)
	for i := range c {
		if c[i].Err = t.publish(w, w.items[i], &c[i]); c[i].Err == nil {
			published++
		}
	}
	t.mu.Lock()
	defer t.unlock()
	t.core.done(w, published)
	return nil
}

// publish copies one item out of its window into a slot. The daemon has no access
// to the window then, but a process that mapped it may still write: the hash is of the
// copy. The slot's deadline is the window's.
func (t *Table) publish(w *win, at wire.Span, c *blocks.Commit) error {
	n := at.Len
	switch {
	case c.Head != nil:
		n = uint64(c.Head.BodyLen)
	case c.Len > 0:
		n = uint64(c.Len)
	}
	switch {
	case n > at.Len:
		return &Error{Code: wire.CodeTooLarge, Addr: w.addr + at.Off, Text: "a body longer than its item", Have: at.Len, Need: n}
	case c.Key == wire.Key{}:
		return &Error{Code: wire.CodeInvalid, Addr: w.addr + at.Off, Text: "a key of zeros"}
	}
	t.mu.Lock()
	left, err := t.core.publishable(t.clock(), w)
	t.unlock()
	if err != nil {
		return err
	}
	v, err := t.store.ReserveTier(w.owner, w.ns, c.Tier, []uint32{uint32(n)}, left)
	if err == nil {
		c.Slot, c.Gen, c.NS = v[0].Ref.Slot, v[0].Ref.Gen, w.ns
		if c.Head == nil || c.Att == wire.AttestNone { // this daemon checks the sum in either case
			c.Att = wire.AttestIngest
		}
		err = t.store.Ingest(w.owner, w.mem.B[at.Off:at.Off+n], c)
	}
	if err == nil {
		return nil
	}
	// A session that ended meanwhile is an owner that is not there, or a slot that
	// is not its; the window knows better.
	t.mu.Lock()
	defer t.unlock()
	if _, ended := t.core.publishable(t.clock(), w); ended != nil {
		return ended
	}
	return err
}

// Close gives a window up, in whatever state it is; one that is not there, or not
// this owner's, is no matter.
func (t *Table) Close(o blocks.Owner, addr uint64) {
	t.mu.Lock()
	defer t.unlock()
	t.core.close(o, addr)
}

// Drop gives up all windows of an owner. Call it right after Store.Drop, so that
// no Open that runs at the same time is missed by both.
func (t *Table) Drop(o blocks.Owner) {
	t.mu.Lock()
	defer t.unlock()
	t.core.drop(o)
}

// Step ends windows whose deadline has passed, and says when to call it again: a
// reading of the clock, 0 when nothing is due.
func (t *Table) Step() (next time.Duration) {
	t.mu.Lock()
	defer t.unlock()
	t.core.expire(t.clock())
	return t.core.nextDue()
}

// Stats counts.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.core.stats()
}
