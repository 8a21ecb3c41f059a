package blocks

import (
	"errors"
	"sync"
	"time"

	"meridian/blocks/internal/memfd"
	"meridian/blocks/quota"
	"meridian/wire"
)

// The way of a block, and who does what under which lock:
//
//  1. Reserve      Core picks slots (mu); the generation words become odd (mu).
//  2. Room/Ingest  The owner writes, or the store copies and hashes (no lock);
//                  nobody else has the slot.
//  3. Commit       The header is written (no lock); Core publishes, the word
//                  becomes even (mu).
//  4. Lookup       Core fills views (mu).
//  5. Acquire      Core pins (mu); the reader reads mapped bytes (no lock) and
//                  compares the word before and after.
//  6. Release      Core unpins (mu); the block is idle.
//  7. Reserve      of another: Core evicts it (mu), and so on from 1.
//
// mu is held for bookkeeping only: never for a copy, a hash or a system call
// that can wait. growing is taken before ahead.making, and that before mu: by the
// one caller that needs a segment, and by the one that makes memory for it.

// Store is a Core, the arena the blocks lie in, and a clock, under one mutex.
// All methods may be called at the same time.
type Store struct {
	cfg     Config
	growing sync.Mutex

	mu        sync.Mutex
	core      *Core
	arena     arena
	sessions  map[Owner]*session
	orphans   []Owner          // dropped with holds, polled by Step
	self      Owner            // pins for Verify
	grown     uint64           // segments made
	failed    uint64           // segments that the kernel refused
	gone      []*segmentMemory // to be unmapped by unlock
	verified  uint64
	staging   quota.Book // bytes of rings
	busy      int        // calls that use memory outside mu
	quiet     *sync.Cond
	onPublish func([]Published) // set before anything is published
	closed    bool
	notices   chan struct{} // a token where TakeNotices has something

	ahead ahead

	copySum func(dst, src []byte) wire.Verified             // wire.CopySum
	segment func(size, gens uint64) (*segmentMemory, error) // beginSegment
}

// session is what the store keeps per owner in addition to the core's record.
type session struct {
	pid    int
	user   quota.Holder  // zero: not said
	proc   Process       // nil: none was set, or it has ended
	ended  bool          // the process has, before the session
	ring   *memfd.Memory // unmapped at Drop, when busy is 0; nil: none yet
	claims []claim       // of the ring's bytes
	busy   int           // Ingest and Staging calls in flight
	gone   bool          // dropped
}

// errClosed is returned by every call after Close that can return an error.
var errClosed error = wire.CodeDraining

// Open makes an empty store. Memory is allocated a segment at a time, when a
// tenant first needs it. Errors match wire.CodeConfig.
func Open(cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	core, err := NewCore(cfg.core())
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, core: core, sessions: map[Owner]*session{}, ahead: newAhead(), notices: make(chan struct{}, 1), copySum: wire.CopySum, segment: beginSegment}
	s.quiet = sync.NewCond(&s.mu)
	s.self = core.NewOwner(false)
	core.freed.watch()
	s.limitStaging()
	return s, nil
}

// Close waits for copies and hashes in flight and gives all memory back. Every
// slice that Room, Payload or Staging returned is invalid afterwards; readers in
// other processes keep their maps.
func (s *Store) Close() error {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.ahead.making.Lock()
	defer s.ahead.making.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.endAhead()
	for s.busy > 0 {
		s.quiet.Wait()
	}
	var err error
	for o, w := range s.sessions {
		err = errors.Join(err, s.endSession(o, w))
	}
	s.orphans = nil
	s.core.freed.left(s.core)
	s.arena.close()
	return err
}

// unlock stores the generation words that the core asks for, forgets segments
// that it returned, unlocks, tells what was published, and unmaps those segments.
func (s *Store) unlock() {
	gone, news := s.gone, s.core.News()
	s.gone = nil
	if gens := s.core.Gens(); !s.closed {
		for _, g := range gens {
			s.arena.segs[g.Seg].setGen(g.Off, g.Word)
		}
		for _, seg := range s.core.Returned() {
			gone = append(gone, s.arena.remove(seg))
		}
		s.core.freed.apply(&s.arena)
	}
	if len(s.core.follows.notices) > 0 {
		select {
		case s.notices <- struct{}{}:
		default:
		}
	}
	s.mu.Unlock()
	if len(news) > 0 && s.onPublish != nil {
		s.onPublish(news)
	}
	for _, m := range gone {
		m.close()
	}
}

// enter counts a use of memory outside mu; leave ends it. Both under mu.
func (s *Store) enter() { s.busy++ }

func (s *Store) leave() {
	if s.busy--; s.busy == 0 {
		s.quiet.Broadcast()
	}
}

// AddNamespace opens a namespace of a tenant; see Core.AddNamespace.
func (s *Store) AddNamespace(ns wire.Namespace, tenant [32]byte) error {
	s.mu.Lock()
	defer s.unlock()
	if len(s.core.nsOf) == 0 {
		s.ahead.stir()
	}
	return s.core.AddNamespace(ns, tenant)
}

// RemoveNamespace forgets a namespace of which nothing is here, and reports
// whether it is gone; see Core.RemoveNamespace.
func (s *Store) RemoveNamespace(ns wire.Namespace) bool {
	s.mu.Lock()
	defer s.unlock()
	return s.core.RemoveNamespace(ns)
}

// Check reports what Reserve would refuse whatever room there is: an owner that
// is gone (INVALID), a namespace that is not open (NS_UNKNOWN), a body that no
// slot holds (TOO_LARGE). It takes nothing.
func (s *Store) Check(o Owner, ns wire.Namespace, size []uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if w := s.sessions[o]; w == nil || w.gone {
		return errOwner
	}
	if _, ok := s.core.nsOf[ns]; !ok {
		return errNS
	}
	for _, n := range size {
		if n > s.core.geo.maxBody {
			return &wire.TooLargeError{Got: uint64(n), Limit: uint64(s.core.geo.maxBody)}
		}
	}
	return nil
}

// Reserve is ReserveTier for OutputCritical blocks.
func (s *Store) Reserve(o Owner, ns wire.Namespace, size []uint32, ttl time.Duration) ([]View, error) {
	return s.ReserveTier(o, ns, wire.OutputCritical, size, ttl)
}

// ReserveTier takes a slot for each body size in bytes, all or none, for ttl;
// see Core.Reserve. It never returns a GrowError: it takes a segment that Prepare
// has made ready, else it makes one, which can take a second for each GiB, or evicts
// if the kernel has no memory.
func (s *Store) ReserveTier(o Owner, ns wire.Namespace, t wire.Tier, size []uint32, ttl time.Duration) ([]View, error) {
	v := make([]View, 0, len(size))
	for grow := true; ; {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, errClosed
		}
		seen := s.grown
		got, err := s.core.Reserve(s.cfg.Clock(), o, ns, t, size, ttl, grow, v)
		s.unlock()
		if err == nil {
			return got, nil
		}
		var g *GrowError
		if !errors.As(err, &g) {
			return nil, err
		}
		grow = s.grow(g.Tenant, seen)
	}
}

// grow makes a segment for a tenant, unless one was made since seen. It reports
// whether to try again; false: the kernel refused.
func (s *Store) grow(tenant [32]byte, seen uint64) bool {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.mu.Lock()
	n := s.core.SegmentExtents()
	if s.closed || s.grown != seen || n == 0 {
		s.mu.Unlock()
		return true
	}
	sp := s.takeReady()
	if sp == nil {
		s.ahead.waits++
		s.mu.Unlock()
		var err error
		sp, err = s.makeNow(n)
		s.mu.Lock()
		if err != nil {
			defer s.unlock()
			s.failed++
			return false
		}
	}
	defer s.unlock()
	s.grown++
	s.arena.install(s.core.AddSegment(tenant, sp.extents), sp.mem)
	return true
}

// Room returns a reservation's room: 32 bytes for the header, which the store
// writes itself at commit, then the body bytes that were asked for. Only the
// owner may write there, until it commits, aborts or is dropped: a deadline
// that passes ends the reservation but leaves the slot unused until then. Room
// returns nil if v is no reservation any more.
func (s *Store) Room(v View) []byte {
	s.mu.Lock()
	defer s.unlock()
	if s.closed || !s.core.Room(v) {
		return nil
	}
	s.core.fill(&v, v.Ref.Slot)
	return s.arena.slotBytes(&v, v.Cap)
}

// Payload returns exactly header and body of a block, to be read while the
// caller's lease on it lasts, also where it was discarded since. nil: the block
// is not pinned, is no longer v's, or failed Verify.
func (s *Store) Payload(v View) []byte {
	s.mu.Lock()
	defer s.unlock()
	if s.closed || !s.core.readable(v.Ref) {
		return nil
	}
	s.core.fill(&v, v.Ref.Slot)
	return s.arena.slotBytes(&v, s.core.slot(v.Ref.Slot).size)
}

// Abort gives reservations back; see Core.Abort. The owner no longer writes to
// them, or has called Loose for those that something else may still write to.
func (s *Store) Abort(o Owner, slots []uint32) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Abort(o, slots)
}

// AbortRefs gives reservations back by their references; see Core.AbortRefs.
func (s *Store) AbortRefs(o Owner, refs []wire.Ref) {
	s.mu.Lock()
	defer s.unlock()
	s.core.AbortRefs(o, refs)
}

// Lookup describes a chain of keys; see Core.Lookup.
func (s *Store) Lookup(ns wire.Namespace, chain []wire.Key, v []View) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Lookup(ns, chain, v)
}

// Touch marks the leading hits of a chain as used; see Core.Touch.
func (s *Store) Touch(ns wire.Namespace, chain []wire.Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Touch(ns, chain)
}

// Renew sets a lease's remaining time; see Core.Renew.
func (s *Store) Renew(o Owner, l Lease, ttl time.Duration) error {
	s.mu.Lock()
	defer s.unlock()
	return s.core.Renew(s.cfg.Clock(), o, l, ttl)
}

// Release ends a lease; one that is gone already, or another owner's, is left alone.
func (s *Store) Release(o Owner, l Lease) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Release(o, l)
}

// Retier lowers the tier of blocks; see Core.Retier.
func (s *Store) Retier(ns wire.Namespace, keys []wire.Key, t wire.Tier) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Retier(ns, keys, t)
}

// Discard removes blocks, here and from what is remembered; see Core.Discard.
func (s *Store) Discard(ns wire.Namespace, keys []wire.Key) (freed int) {
	s.mu.Lock()
	defer s.unlock()
	return s.core.Discard(ns, keys)
}

// Forget drops what is known of copies outside.
func (s *Store) Forget(ns wire.Namespace, keys []wire.Key) {
	s.mu.Lock()
	defer s.unlock()
	s.core.Forget(ns, keys)
}

// Loose keeps slots out of use until quiet is called; see Core.Loose. It is for
// memory that a failed transfer may still touch, and comes before Abort or Release.
func (s *Store) Loose(slots []uint32) (quiet func()) {
	s.mu.Lock()
	defer s.unlock()
	end := s.core.Loose(slots)
	return func() {
		s.mu.Lock()
		defer s.unlock()
		end()
	}
}

// Step moves time on: it ends what is due, takes in what was copied, and says
// what to do next. Call it at Ready.Next at the latest.
func (s *Store) Step(in Input) (r Ready) {
	s.mu.Lock()
	defer s.unlock()
	now := s.cfg.Clock()
	holds := s.pollProcesses()
	s.core.Step(now, in, &r)
	if holds && (r.Next == 0 || r.Next > now+orphanPoll) {
		r.Next = now + orphanPoll
	}
	return r
}

// Stats returns a snapshot of all numbers.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.core.Stats()
	st.StagingBytes, st.Verified, st.SegmentsRefused = s.staging.Used(quota.StagingBytes, quota.Total), s.verified, s.failed
	st.AheadBytes, st.AheadWaits, st.AheadRefused = s.aheadBytes(), s.ahead.waits, s.ahead.refused
	return st
}

// SetShares changes Config.Shares and Config.StagingBytes. Who has more keeps it,
// and gets no more until it has less.
func (s *Store) SetShares(sh Shares, staging uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Shares, s.cfg.StagingBytes = sh, staging
	s.core.SetShares(sh)
	s.limitStaging()
}

// Quota returns the state of the holders' shares, for the metrics.
func (s *Store) Quota() []quota.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(s.core.Quota(), s.staging.Stats()...)
}

// Stat describes a key in whatever namespace it is in: for the operator only.
// ABSENT where no bytes are here; Where says whether a copy is outside.
func (s *Store) Stat(key wire.Key) (View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Stat(key)
}

// listBatch is how many blocks List reads under the lock at a time.
const listBatch = 256

// List calls f for every block in slot order, until f returns false. f runs
// without the lock and may call the store; blocks that come or go meanwhile may
// be seen or not.
func (s *Store) List(f func(View) bool) {
	batch := make([]View, 0, listBatch)
	for at := uint32(0); ; {
		s.mu.Lock()
		batch = s.core.List(&at, batch[:0])
		s.mu.Unlock()
		for _, v := range batch {
			if !f(v) {
				return
			}
		}
		if len(batch) == 0 {
			return
		}
	}
}

// Segments returns the numbers of a tenant's segments: what its engines map.
func (s *Store) Segments(tenant [32]byte) []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Segments(tenant)
}

// FD returns a descriptor of a segment's bytes, or with gen of its generation
// table, and the size to map. The descriptor is a duplicate: the caller closes
// it once it is sent. It can be mapped for reading only. ABSENT: no such segment.
func (s *Store) FD(seg uint32, gen bool) (fd int, size uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.arena.get(seg)
	if m == nil {
		return -1, 0, errAbsent
	}
	part := m.bytes
	if gen {
		part = m.gens
	}
	fd, err = part.Dup()
	return fd, uint64(len(part.B)), err
}
