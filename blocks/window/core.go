package window

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"meridian/blocks"
	"meridian/blocks/internal/memfd"
	"meridian/blocks/quota"
	"meridian/wire"
)

// state of a window. Every way ends in free, once.
//
//	reserved -> open -> closing -> hashing -> free
//	    |         |        |
//	    v         v        v
//	   free    closing    free
//
// A window that is to end while accesses are in waits for them in closing.
type state uint8

const (
	free     state = iota // no longer in the core
	reserved              // its memory is being made
	open                  // accesses come and go
	closing               // no new access; those in may finish
	hashing               // none is in; the owner's Commit copies and hashes
)

func (s state) String() string {
	if names := [...]string{"free", "reserved", "open", "closing", "hashing"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// win is one window. All but the last three fields are the core's.
type win struct {
	Spec              // as opened
	addr, size uint64 // bytes that may be accessed
	room       uint64 // bytes of memory: size, in whole pages
	owner      blocks.Owner
	items      []wire.Span
	state      state
	in         int         // accesses
	writers    int         // of them, those that write
	touched    []wire.Span // what was written, ascending, disjoint and not adjacent; of windows with items
	end        wire.Code   // why it may not publish any more: DEADLINE or CANCELLED; OK: it may
	until      time.Duration

	mem   *memfd.Memory // the driver's: nil while reserved
	quiet chan struct{} // the driver's: closed when the last access has left; nil: nobody asked
	hold  *quota.Hold   // the driver's: of its holders' shares
}

// core is the bookkeeping of all windows: pure, deterministic, single-threaded.
// Time is an argument. It touches no memory: windows that became free are a list
// that the driver takes.
type core struct {
	limit uint64 // bytes of all windows
	page  uint64 // granule of memory and addresses

	first uint64 // lowest address of this incarnation
	next  uint64 // never falls: all below it was given out
	live  []*win // all that are not free, by address, rising
	bytes uint64 // of those
	due   time.Duration
	freed []*win
	st    Stats
}

// never is a due time that does not come.
const never = time.Duration(math.MaxInt64)

func newCore(first, limit, page uint64) *core {
	return &core{limit: limit, page: page, first: first, next: first, due: never}
}

// reserve counts a window and gives it its address, before its memory is made.
func (c *core) reserve(now time.Duration, o blocks.Owner, s Spec) (*win, error) {
	c.expire(now)
	if err := s.check(); err != nil {
		return nil, err
	}
	if len(c.live) >= MaxWindows {
		return nil, &Error{Code: wire.CodeFull, Text: "windows", Have: 0, Need: 1}
	}
	w := &win{Spec: s, addr: c.next, owner: o, size: s.Bytes, state: reserved, until: never}
	if s.TTL < never-now {
		w.until = now + s.TTL
	}
	for _, n := range s.Lens {
		at := wire.Span{Off: roundUp(w.size+wire.HeaderLen, itemAlign), Len: uint64(n)}
		w.items = append(w.items, at)
		w.size = at.Off + at.Len
	}
	if w.size > c.limit { // it could overflow when it is rounded up
		return nil, &Error{Code: wire.CodeFull, Text: "bytes of all windows (arena.window_bytes)", Have: c.limit - c.bytes, Need: w.size}
	}
	w.room = roundUp(w.size, c.page)
	taken := w.room + c.page // a gap, so that no access runs from one into the next
	switch {
	case w.room > c.limit-c.bytes:
		return nil, &Error{Code: wire.CodeFull, Text: "bytes of all windows (arena.window_bytes)", Have: c.limit - c.bytes, Need: w.room}
	case taken > addressSpace-c.next:
		return nil, &Error{Code: wire.CodeFull, Text: "addresses of this incarnation", Have: addressSpace - c.next, Need: taken}
	}
	c.next += taken
	c.bytes += w.room
	c.live = append(c.live, w)
	c.due = min(c.due, w.until)
	return w, nil
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }

// opened lets accesses in, now that there is memory. A window that ended
// meanwhile is free, and the error says why.
func (c *core) opened(now time.Duration, w *win) error {
	c.expire(now)
	if w.end != wire.CodeOK {
		c.free(w)
		return &Error{Code: w.end, Addr: w.addr, Len: w.size, Text: "the window ended while its memory was made"}
	}
	w.state = open
	c.st.Opened++
	return nil
}

// failed ends a reserved window for which there is no memory.
func (c *core) failed(w *win) { c.free(w) }

// access is one that is in.
type access struct {
	w      *win
	off, n uint64 // where it lies in w
	write  bool
}

// enter lets peer's access of n bytes at addr in.
func (c *core) enter(now time.Duration, peer string, addr, n uint64, write bool) (access, error) {
	c.expire(now)
	w := c.at(addr)
	switch {
	case w == nil && (addr < c.first || addr >= c.next):
		return access{}, &Error{Code: wire.CodeInvalid, Addr: addr, Len: n, Text: "no window ever had this address"}
	case w == nil || w.state != open:
		c.st.Late++
		return access{}, &Error{Code: wire.CodeStale, Addr: addr, Len: n, Text: "no open window at this address"}
	}
	off := addr - w.addr
	switch {
	case n == 0 || off >= w.size || n > w.size-off:
		return access{}, &Error{Code: wire.CodeInvalid, Addr: addr, Len: n, Text: "the range is empty or leaves its window"}
	case len(w.Peers) > 0 && !slices.Contains(w.Peers, peer):
		return access{}, &Error{Code: wire.CodeDenied, Addr: addr, Len: n, Text: "the window is not open to " + strconv.Quote(peer)}
	case write && !w.Write:
		return access{}, &Error{Code: wire.CodeDenied, Addr: addr, Len: n, Text: "the window may not be written"}
	case !write && !w.Read:
		return access{}, &Error{Code: wire.CodeDenied, Addr: addr, Len: n, Text: "the window may not be read"}
	case write && len(w.touched)+w.writers >= MaxRuns:
		return access{}, &Error{Code: wire.CodeTooMany, Addr: addr, Len: n, Text: "disjoint runs written in a window", Have: MaxRuns, Need: MaxRuns + 1}
	}
	return c.letIn(access{w, off, n, write}), nil
}

// own is an access of the owner itself, whatever its peers may do.
func (c *core) own(now time.Duration, o blocks.Owner, addr, n uint64) (access, error) {
	c.expire(now)
	w := c.at(addr)
	if w == nil || w.owner != o || w.state != open {
		return access{}, &Error{Code: wire.CodeStale, Addr: addr, Len: n, Text: "no open window of this owner at this address"}
	}
	off := addr - w.addr
	if n == 0 || off >= w.size || n > w.size-off {
		return access{}, &Error{Code: wire.CodeInvalid, Addr: addr, Len: n, Text: "the range is empty or leaves its window"}
	}
	return c.letIn(access{w: w, off: off, n: n}), nil
}

func (c *core) letIn(a access) access {
	a.w.in++
	c.st.InFlight++
	if a.write {
		a.w.writers++
	}
	return a
}

// leave ends an access that wrote so many bytes from its beginning on. quiet: it
// was the last one that the window waits for.
func (c *core) leave(a access, wrote uint64) (quiet bool) {
	w := a.w
	w.in--
	c.st.InFlight--
	if a.write {
		w.writers--
		w.touch(wire.Span{Off: a.off, Len: min(wrote, a.n)})
	}
	quiet = w.in == 0 && w.state == closing
	c.settle(w)
	return quiet
}

// touch notes what was written. A window without items is written for as long as it
// lives, in any number of places, so its owner hears of each write instead.
func (w *win) touch(s wire.Span) {
	if s.Len == 0 || len(w.items) == 0 {
		return
	}
	end := s.Off + s.Len
	i := sort.Search(len(w.touched), func(i int) bool { return w.touched[i].Off+w.touched[i].Len >= s.Off })
	j := i
	for ; j < len(w.touched) && w.touched[j].Off <= end; j++ {
		s.Off = min(s.Off, w.touched[j].Off)
		end = max(end, w.touched[j].Off+w.touched[j].Len)
	}
	s.Len = end - s.Off
	w.touched = slices.Replace(w.touched, i, j, s)
}

// take closes a window for its owner's Commit of n items. Without accesses it is
// then hashing, until done; with some the error is BUSY, and w is set.
func (c *core) take(now time.Duration, o blocks.Owner, addr uint64, n int) (w *win, err error) {
	w = c.of(o, addr)
	c.expire(now)
	switch {
	case w != nil && w.end == wire.CodeDeadline:
		return nil, &Error{Code: wire.CodeDeadline, Addr: addr, Text: "the window's time is over"}
	case w == nil || w.end != wire.CodeOK || w.state != open && w.state != closing:
		return nil, &Error{Code: wire.CodeStale, Addr: addr, Text: "no window of this owner at this address"}
	case n > len(w.items):
		return nil, &Error{Code: wire.CodeInvalid, Addr: addr, Text: "more items than the window has", Have: uint64(len(w.items)), Need: uint64(n)}
	}
	w.state = closing
	if w.in > 0 {
		return w, &Error{Code: wire.CodeBusy, Addr: addr, Text: "accesses are in flight", Have: uint64(w.in)}
	}
	w.state = hashing
	return w, nil
}

// publishable says whether a hashing window may still publish, and how long its
// deadline leaves for it.
func (c *core) publishable(now time.Duration, w *win) (left time.Duration, err error) {
	c.expire(now)
	if w.end != wire.CodeOK {
		return 0, &Error{Code: w.end, Addr: w.addr, Len: w.size, Text: "the window ended before this item was published"}
	}
	return w.until - now, nil
}

// done ends hashing.
func (c *core) done(w *win, published uint64) {
	c.st.Blocks += published
	c.free(w)
}

// close ends the owner's window at addr, in whatever state it is.
func (c *core) close(o blocks.Owner, addr uint64) {
	if w := c.of(o, addr); w != nil {
		c.finish(w, wire.CodeCancelled)
	}
}

// drop ends all windows of an owner.
func (c *core) drop(o blocks.Owner) {
	for _, w := range append([]*win(nil), c.live...) {
		if w.owner == o {
			c.finish(w, wire.CodeCancelled)
		}
	}
}

// expire ends the windows whose deadline has passed. Every call that grants
// something begins with it, so that a late Step prolongs nothing.
func (c *core) expire(now time.Duration) {
	if now < c.due {
		return
	}
	c.due = never
	for _, w := range append([]*win(nil), c.live...) {
		switch {
		case w.end != wire.CodeOK:
		case w.until <= now:
			c.st.Lapsed++
			c.finish(w, wire.CodeDeadline)
		default:
			c.due = min(c.due, w.until)
		}
	}
}

// nextDue is the clock reading of the earliest deadline, 0 for none. It may be
// that of a window which is free by now.
func (c *core) nextDue() time.Duration {
	if len(c.live) == 0 {
		c.due = never
	}
	if c.due == never {
		return 0
	}
	return c.due
}

// finish marks a window as one that publishes nothing more. The first reason stays.
func (c *core) finish(w *win, why wire.Code) {
	if w.end == wire.CodeOK {
		w.end = why
	}
	if w.state == open {
		w.state = closing
	}
	c.settle(w)
}

// settle frees a window that ended and that nobody is in. One that is reserved
// or hashing is freed by the caller that makes its memory or reads it.
func (c *core) settle(w *win) {
	if w.state == closing && w.end != wire.CodeOK && w.in == 0 {
		c.free(w)
	}
}

func (c *core) free(w *win) {
	i := c.search(w.addr)
	c.live = append(c.live[:i], c.live[i+1:]...)
	c.bytes -= w.room
	w.state = free
	c.freed = append(c.freed, w)
}

// takeFreed returns the windows that became free since the last call.
func (c *core) takeFreed() []*win {
	f := c.freed
	c.freed = nil
	return f
}

// search is the place of the first live window at addr or above.
func (c *core) search(addr uint64) int {
	return sort.Search(len(c.live), func(i int) bool { return c.live[i].addr >= addr })
}

// at returns the live window whose memory, or the gap behind it, holds addr.
func (c *core) at(addr uint64) *win {
	i := sort.Search(len(c.live), func(i int) bool { return c.live[i].addr > addr })
	if i == 0 {
		return nil
	}
	if w := c.live[i-1]; addr-w.addr < w.room+c.page {
		return w
	}
	return nil
}

// of returns the owner's live window of exactly that address. Another owner's is
// as one that is not there.
func (c *core) of(o blocks.Owner, addr uint64) *win {
	if i := c.search(addr); i < len(c.live) && c.live[i].addr == addr && c.live[i].owner == o {
		return c.live[i]
	}
	return nil
}

func (c *core) stats() Stats {
	st := c.st
	st.Windows, st.Bytes = len(c.live), c.bytes
	return st
}
