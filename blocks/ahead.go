package blocks

import (
	"fmt"
	"sync"
	"time"

	"meridian/blocks/internal/memfd"
)

// Memory is made before it is needed. A spare is the memory of a segment that
// nobody has yet:
//
//	Prepare   makes spares, a piece at a time, while less than Config.Ahead is ready
//	grow      gives the oldest to the tenant that needs a segment; where none is
//	          ready, the reservation waits until grow has made the rest
//	unlock    gives back those that there is no room or no use for any more
//
// Spares are part of the capacity. There are none before the first namespace is
// open: a daemon that no engine and no peer uses takes no memory.

// spare is a segment's memory without a tenant.
type spare struct {
	mem     *segmentMemory
	extents int
	size    uint64 // bytes to be made
	made    uint64 // of those
}

// aheadIdle is how long spares outlive the last namespace: a peer that comes and
// goes does not make the daemon fill memory again and again.
const aheadIdle = time.Minute

// ahead is the spares of a store.
type ahead struct {
	making sync.Mutex // held by the one that makes memory: for one piece, or by grow for a whole segment; taken before mu
	next   *spare     // not complete; under making

	// Under mu.
	ready    []*spare
	began    uint64        // bytes made of next
	refused  uint64        // pieces for which the kernel had no memory
	waits    uint64        // segments that a reservation waited for
	used     bool          // a namespace is open, or was at idleFrom
	idleFrom time.Duration // since when there has been none; while there is one, that is later

	wake     chan struct{} // has one when Prepare may have something to do
	allocate func(m *segmentMemory, off, n uint64) error
}

func newAhead() ahead {
	return ahead{
		wake:     make(chan struct{}, 1),
		allocate: func(m *segmentMemory, off, n uint64) error { return m.bytes.Allocate(off, n) },
	}
}

func (a *ahead) stir() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// PrepareSoon has a value when Prepare may have something to do.
func (s *Store) PrepareSoon() <-chan struct{} { return s.ahead.wake }

// Prepare makes a piece of memory ahead of its use, or gives back what is too much,
// and reports whether there is more to do at once. It waits for the kernel, and
// only a reservation that needs the same memory waits for it. The daemon calls it on
// a goroutine of its own: again while there is more, else after PrepareSoon or when
// the host's memory may have changed. An error is the kernel's, which has no memory.
func (s *Store) Prepare() (more bool, err error) {
	if s.cfg.Ahead == 0 {
		return false, nil
	}
	free := s.cfg.HostFree()
	s.ahead.making.Lock()
	defer s.ahead.making.Unlock()
	n := s.planAhead(free)
	a := &s.ahead
	if n == 0 {
		return false, nil
	}
	if a.next == nil {
		if a.next, err = s.begin(n); err != nil {
			s.aheadRefused()
			return false, err
		}
	}
	if err := s.makePiece(a.next); err != nil {
		a.next.mem.close()
		a.next = nil
		s.aheadRefused()
		return false, err
	}
	s.mu.Lock()
	defer s.unlock()
	a.began = a.next.made
	if a.next.made == a.next.size {
		a.ready = append(a.ready, a.next)
		a.next, a.began = nil, 0
		s.fitAhead() // a ring may have come meanwhile
	}
	return true, nil
}

func (s *Store) aheadRefused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead.refused++
	s.ahead.began = 0
}

// planAhead drops spares that there is no use or no room for, and returns how many
// extents the next one has: that in the making, or one to begin. 0: none. free is
// the host's free memory. Under making.
func (s *Store) planAhead(free uint64) (extents int) {
	s.mu.Lock()
	defer s.unlock()
	a, g := &s.ahead, &s.core.geo
	want, room := s.wantAhead(free), s.core.room()
	have := s.trimAhead(min(want, room), room)
	n := min(g.segExtents, room-have)
	if a.next != nil {
		n = a.next.extents
	}
	switch {
	case have >= min(want, room), n > room-have:
		if a.next != nil {
			s.gone = append(s.gone, a.next.mem)
			a.next, a.began = nil, 0
		}
		return 0
	case a.next == nil && free < 2*g.segBytes(n):
		return 0 // the host would have less than another one left
	}
	return n
}

// wantAhead is how many extents should be ready, if there is room for them. Under mu.
func (s *Store) wantAhead(free uint64) int {
	a, g := &s.ahead, &s.core.geo
	if len(s.core.nsOf) > 0 {
		a.used, a.idleFrom = true, s.cfg.Clock()
	}
	switch {
	case s.closed || !a.used:
		return 0
	case s.cfg.Clock()-a.idleFrom >= aheadIdle && len(s.core.nsOf) == 0:
		a.used = false
		return 0
	case free < g.segBytes(g.segExtents)/2:
		return 0 // somebody else needs it more
	}
	return int((s.cfg.Ahead + g.extent - 1) / g.extent)
}

// fitAhead gives back spares that there is no room for any more: what is ready is
// always part of the capacity. Under mu.
func (s *Store) fitAhead() {
	room := s.core.room()
	s.trimAhead(room, room)
}

// trimAhead gives back spares beyond what is wanted and what there is room for, and
// returns the extents of those that stay. Under mu.
func (s *Store) trimAhead(want, room int) (have int) {
	a := &s.ahead
	for _, sp := range a.ready {
		have += sp.extents
	}
	for n := len(a.ready); n > 0; n-- {
		last := a.ready[n-1]
		if have <= room && have-last.extents < want {
			break
		}
		have -= last.extents
		a.ready = a.ready[:n-1]
		s.gone = append(s.gone, last.mem)
	}
	return have
}

// takeReady returns the oldest spare, nil for none. Under mu.
func (s *Store) takeReady() *spare {
	a := &s.ahead
	if len(a.ready) == 0 {
		return nil
	}
	sp := a.ready[0]
	a.ready = append(a.ready[:0], a.ready[1:]...)
	a.stir()
	return sp
}

// begin makes a spare of which nothing is made yet.
func (s *Store) begin(extents int) (*spare, error) {
	g := &s.core.geo
	m, err := s.segment(g.segBytes(extents), g.genBytes(extents))
	if err != nil {
		return nil, err
	}
	return &spare{mem: m, extents: extents, size: g.segBytes(extents)}, nil
}

func (s *Store) makePiece(sp *spare) error {
	n := min(memfd.Piece, sp.size-sp.made)
	if err := s.ahead.allocate(sp.mem, sp.made, n); err != nil {
		return err
	}
	sp.made += n
	return nil
}

// makeNow makes a whole segment for a reservation that waits, or what is missing of
// the one in the making. Where the host has less left, blocks are evicted instead.
func (s *Store) makeNow(extents int) (*spare, error) {
	a := &s.ahead
	a.making.Lock()
	defer a.making.Unlock()
	sp := a.next
	if sp != nil && sp.extents <= extents {
		a.next = nil
		s.mu.Lock()
		a.began = 0
		s.mu.Unlock()
	} else {
		var err error
		if sp, err = s.begin(extents); err != nil {
			return nil, err
		}
	}
	// The kernel would promise more than the host has, and end a process for it.
	if free, need := s.cfg.HostFree(), sp.size-sp.made; free < need {
		sp.mem.close()
		return nil, fmt.Errorf("a segment needs %d bytes, and the host has %d left", need, free)
	}
	for sp.made < sp.size {
		if err := s.makePiece(sp); err != nil {
			sp.mem.close()
			return nil, err
		}
	}
	return sp, nil
}

// endAhead gives all spares back.
func (s *Store) endAhead() {
	a := &s.ahead
	if a.next != nil {
		a.next.mem.close()
	}
	for _, sp := range a.ready {
		sp.mem.close()
	}
	a.next, a.ready, a.began = nil, nil, 0
}

// aheadBytes is what is made and in no segment. Under mu.
func (s *Store) aheadBytes() uint64 {
	n := s.ahead.began
	for _, sp := range s.ahead.ready {
		n += sp.size
	}
	return n
}
