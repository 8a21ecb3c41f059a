package window

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks"
	"meridian/blocks/internal/memfd"
	"meridian/blocks/quota"
	"meridian/wire"
)

// Bounds and defaults.
const (
	MaxWindows   = 4096    // open at a time, all owners together
	MaxItems     = 4096    // of one window
	MaxRuns      = 4096    // disjoint runs of bytes that are written in one window with items
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

// Forever is the TTL of a window that lives as long as its owner.
const Forever = never

// Spec is what a window shall be.
type Spec struct {
	Lens  []uint32 // bodies in bytes, each laid as in a slot, for Commit; or
	Bytes uint64   // memory without items
	TTL   time.Duration
	NS    wire.Namespace // in which Commit publishes; windows without items may have none

	Read, Write bool     // what peers may do
	Peers       []string // who may; empty: every peer that the transport lets in
	Map         bool     // a process will map it, and may then do what it likes there: Window.FD is set
	// Wrote, where set, is called when a peer's write has left, once the bytes are
	// in place and before the peer learns it; Off counts from the window's address.
	// Calls may be concurrent. It must not block.
	Wrote func(wire.Span)
	// For are the holders whose shares the window counts for (quota.WindowBytes).
	For []quota.Holder
}

func (s *Spec) check() error {
	invalid := func(text string) error { return &Error{Code: wire.CodeInvalid, Text: text} }
	switch {
	case s.TTL <= 0:
		return invalid("a time to live that is not above zero")
	case len(s.Lens) > 0 == (s.Bytes > 0):
		return invalid("a window has either items or a number of bytes")
	case len(s.Lens) > MaxItems:
		return &Error{Code: wire.CodeInvalid, Text: "number of items of a window", Have: MaxItems, Need: uint64(len(s.Lens))}
	case slices.Contains(s.Lens, 0):
		return invalid("an item of no bytes")
	case !s.Read && !s.Write && !s.Map:
		return invalid("a window that nobody may read or write")
	}
	return nil
}

// Window is an open one, as its owner sees it.
type Window struct {
	Addr, Len uint64
	Items     []wire.Span // where the bodies lie; 32 bytes before each there is room for its header
	FD        int         // with Spec.Map, a duplicate for the process that maps it, which the caller closes; else -1
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
	book  *quota.Book

	mu   sync.Mutex
	core *core
}

// New makes an empty table. store may be nil where nothing is ever published. clock
// is monotonic and never negative; limit is the bytes of all windows together,
// DefaultBytes where it is 0; book has the shares of holders. The first address is
// random, so that a write meant for an earlier incarnation meets a window of this
// one by chance only.
func New(store Store, clock func() time.Duration, limit uint64, book *quota.Book) *Table {
	if limit == 0 {
		limit = DefaultBytes
	}
	if book == nil {
		book = &quota.Book{}
	}
	var r [8]byte
	_, _ = rand.Read(r[:]) // never fails
	first := firstAddress + binary.LittleEndian.Uint64(r[:])%baseSpread
	return &Table{store: store, clock: clock, book: book, core: newCore(roundUp(first, memfd.PageSize), limit, memfd.PageSize)}
}

// unlock unlocks, and gives back the memory of windows that became free.
func (t *Table) unlock() {
	freed := t.core.takeFreed()
	t.mu.Unlock()
	for _, w := range freed {
		if w.mem != nil {
			w.mem.Erase()
		}
		w.hold.Give()
	}
}

// Open makes a window. FULL above the table's bytes, windows or addresses, or a
// holder's share; INVALID for what no window can be, or an owner that is gone;
// NS_UNKNOWN and TOO_LARGE as blocks.Store; DEADLINE or CANCELLED if it ended while
// its memory was made.
func (t *Table) Open(o blocks.Owner, s Spec) (Window, error) {
	s.Lens, s.Peers = slices.Clone(s.Lens), slices.Clone(s.Peers)
	t.mu.Lock()
	w, err := t.core.reserve(t.clock(), o, s)
	t.unlock()
	if err != nil {
		return Window{}, err
	}
	mem, fd, err := t.memory(w)
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
	return Window{Addr: w.addr, Len: w.size, Items: slices.Clone(w.items), FD: fd}, nil
}

// memory makes that of a reserved window.
func (t *Table) memory(w *win) (mem *memfd.Memory, fd int, err error) {
	// Checked after the window is there: an owner whose session ended before is
	// refused here, one whose session ends later is found by Drop.
	if t.store != nil && len(w.Lens) > 0 {
		if err := t.store.Check(w.owner, w.NS, w.Lens); err != nil {
			return nil, -1, err
		}
	}
	if w.hold, err = t.book.Take(quota.WindowBytes, w.room, w.For...); err != nil {
		return nil, -1, err
	}
	if mem, err = memfd.New("meridian-window", w.room, memfd.Shared); err != nil || !w.Map {
		return mem, -1, err
	}
	if fd, err = mem.Dup(); err != nil {
		mem.Close()
		return nil, -1, err
	}
	return mem, fd, nil
}

// Enter lets peer's access of n bytes at addr in, for a transport that reads or
// writes for it: b may be read, or with write be written, until leave is called with
// the number of bytes that were written from the beginning of b on, 0 after a read
// and where none came. Only the first call of leave counts. The transport has proved
// who the peer is, as far as its protocol can; an address is no proof of a right.
//
// STALE where the window is gone or closing, INVALID where the range is empty,
// leaves its window or never was one, DENIED where this peer may not do this here,
// TOO_MANY above MaxRuns.
func (t *Table) Enter(peer string, addr, n uint64, write bool) (b []byte, leave func(wrote uint64), err error) {
	t.mu.Lock()
	defer t.unlock()
	a, err := t.core.enter(t.clock(), peer, addr, n, write)
	if err != nil {
		return nil, nil, err
	}
	var once sync.Once
	return a.bytes(), func(wrote uint64) { once.Do(func() { t.leave(a, wrote) }) }, nil
}

// Own is an access of the owner itself: to what has arrived, or to put there what
// peers shall read. leave may be called twice.
func (t *Table) Own(o blocks.Owner, addr, n uint64) (b []byte, leave func(), err error) {
	t.mu.Lock()
	defer t.unlock()
	a, err := t.core.own(t.clock(), o, addr, n)
	if err != nil {
		return nil, nil, err
	}
	var once sync.Once
	return a.bytes(), func() { once.Do(func() { t.leave(a, 0) }) }, nil
}

func (a access) bytes() []byte { return a.w.mem.B[a.off : a.off+a.n : a.off+a.n] }

// leave tells the owner first: the access still counts then, so that the window does
// not end under Wrote.
func (t *Table) leave(a access, wrote uint64) {
	if wrote = min(wrote, a.n); a.write && wrote > 0 && a.w.Wrote != nil {
		a.w.Wrote(wire.Span{Off: a.off, Len: wrote})
	}
	t.mu.Lock()
	defer t.unlock()
	if t.core.leave(a, wrote) && a.w.quiet != nil {
		close(a.w.quiet)
		a.w.quiet = nil
	}
}

// Touched is what was written through Enter in the owner's window with items, as far
// as the accesses have left, ascending and merged: an owner that takes blocks without
// headers asks before it commits. nil where there is no such window.
func (t *Table) Touched(o blocks.Owner, addr uint64) []wire.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.core.of(o, addr); w != nil {
		return slices.Clone(w.touched)
	}
	return nil
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
		c[i].NS = w.NS
		if c[i].Err = t.publish(w, w.items[i], &c[i]); c[i].Err == nil {
			published++
		}
	}
	t.mu.Lock()
	defer t.unlock()
	t.core.done(w, published)
	return nil
}

// Publish makes a block of the body at addr in an open window of the owner, in
// c.NS: of a payload that a notify named, or whose header the owner has parsed (from a
// copy of its own) and gives as c.Head. The window stays open, and a peer may go on
// writing: the hash is of the copy, so the worst it can do is CHECKSUM. Of bytes
// without a header the owner must know that they have arrived. Errors as of Commit's
// items; INVALID where neither Head nor Len says how long the body is.
func (t *Table) Publish(o blocks.Owner, addr uint64, c *blocks.Commit) error {
	n := uint64(c.Len)
	if c.Head != nil {
		n = uint64(c.Head.BodyLen)
	}
	t.mu.Lock()
	a, err := t.core.own(t.clock(), o, addr, n)
	t.unlock()
	if err != nil {
		return err
	}
	defer t.leave(a, 0)
	if err := t.publish(a.w, wire.Span{Off: a.off, Len: a.n}, c); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.unlock()
	t.core.st.Blocks++
	return nil
}

// slotTime bounds the reservation of a slot that is written and published at once.
const slotTime = time.Minute

// publish copies a body out of its window into a slot. Others may still write the
// window: the hash is of the copy.
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
	case t.store == nil:
		return &Error{Code: wire.CodeUnsupported, Addr: w.addr + at.Off, Text: "this table has no store to publish in"}
	case c.Key == wire.Key{}:
		return &Error{Code: wire.CodeInvalid, Addr: w.addr + at.Off, Text: "a key of zeros"}
	}
	t.mu.Lock()
	left, err := t.core.publishable(t.clock(), w)
	t.unlock()
	if err != nil {
		return err
	}
	v, err := t.store.ReserveTier(w.owner, c.NS, c.Tier, []uint32{uint32(n)}, min(left, slotTime))
	if err == nil {
		c.Slot, c.Gen = v[0].Ref.Slot, v[0].Ref.Gen
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
