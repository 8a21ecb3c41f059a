package lent

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// Place is memory that a peer has lent.
type Place struct {
	ID         string // another one is other memory, in which no block of before lies
	Base, Size uint64 // Size 0: the peer has lent none
}

// Op is one access to a range of the place. Err is for the peer to set; Quiet then says
// that nothing of it is under way. Via, where it is set, is the transport of this access.
type Op struct {
	Addr  uint64
	B     []byte
	Via   string
	Err   error
	Quiet bool
}

func (op *Op) tell(it *fabric.Item) {
	if op.Via != "" {
		it.Via = op.Via
	}
}

// Peer is one that lends memory.
type Peer interface {
	Name() string
	Via() string   // the transport really used
	Usable() error // why no call should be made now; at once
	// Reach makes the peer ready for calls, and says where its memory is.
	Reach(ctx context.Context) (Place, error)
	Read(ctx context.Context, ops []Op)
	Write(ctx context.Context, ops []Op)
}

// Lender is a Peer that knows at once whether it has lent memory.
type Lender interface{ Lends() bool }

type ident struct {
	ns  wire.Namespace
	key wire.Key
}

// entry is a block in a peer's memory.
type entry struct {
	ident
	h     fabric.Handle
	tier  wire.Tier
	att   wire.Attest
	head  wire.Header
	at    wire.Span
	of    *memory
	users int  // reads under way
	gone  bool // forgotten; its part is free after the last read
	wrong bool // other bytes were read than were written
}

// size is the payload's, in bytes.
func (e *entry) size() uint64 { return wire.HeaderLen + uint64(e.head.BodyLen) }

func (e *entry) addr() uint64 { return e.of.place.Base + e.at.Off }

// memory is a place, and what of it is given out.
type memory struct {
	place Place
	space *Space
}

// shelf is the blocks of one peer.
type shelf struct {
	Peer
	cfg *Config

	ended atomic.Bool // it is listed no more

	mu    sync.Mutex
	mem   *memory // nil: not reached yet
	byKey map[ident]*entry
	byH   map[fabric.Handle]*entry
	rests []rest
}

// rest is a part that is not given out before a time.
type rest struct {
	at    wire.Span
	until time.Time
}

func newShelf(p Peer, c *Config) *shelf {
	return &shelf{Peer: p, cfg: c, byKey: map[ident]*entry{}, byH: map[fabric.Handle]*entry{}}
}

func (s *shelf) error(code wire.Code, text string, cause error) *fabric.Error {
	return &fabric.Error{Code: code, Fabric: s.cfg.Label, Text: text, Cause: cause}
}

// said is an error of the peer as one of the contract.
func (s *shelf) said(ctx context.Context, err error) error {
	if ended := fabric.ContextError(ctx, s.cfg.Label); ended != nil {
		return ended
	}
	if s.ended.Load() {
		return s.unlisted()
	}
	return s.error(wire.CodeOf(err), "peer "+s.Name(), err)
}

func (s *shelf) unlisted() error {
	return s.error(wire.CodeUnreachable, "peer "+s.Name()+" is listed no more", nil)
}

// Usable is why no call should be made now.
func (s *shelf) Usable() error {
	if s.ended.Load() {
		return s.unlisted()
	}
	return s.Peer.Usable()
}

// rank is higher the more can be expected of the peer for a block that is to lie there.
func (s *shelf) rank() int {
	if s.Usable() != nil {
		return 0
	}
	if l, ok := s.Peer.(Lender); ok && !l.Lends() {
		return 1
	}
	return 2
}

// end is for a peer that is listed no more: its blocks are forgotten, and stay so.
func (s *shelf) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended.Store(true)
	s.lose()
}

// reach makes the peer's memory known. What lay in other memory is forgotten.
func (s *shelf) reach(ctx context.Context) (*memory, error) {
	if s.ended.Load() {
		return nil, s.unlisted()
	}
	place, err := s.Reach(ctx)
	if err != nil {
		return nil, s.said(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.Load() {
		return nil, s.unlisted()
	}
	if s.mem == nil || s.mem.place != place {
		s.lose()
		s.mem = &memory{place, NewSpace(place.Size)}
	}
	return s.mem, nil
}

// lose forgets all blocks, with the memory that they lay in. Under mu.
func (s *shelf) lose() {
	for _, e := range s.byH {
		e.gone = true
	}
	clear(s.byH)
	clear(s.byKey)
	s.mem, s.rests = nil, nil
}

func (s *shelf) failed(err error) {
	if err != nil && s.cfg.Failed != nil {
		s.cfg.Failed(s.Peer, err)
	}
}

// named is the entry that an item names.
func (s *shelf) named(it *fabric.Item) *entry {
	if it.H != (fabric.Handle{}) {
		return s.byH[it.H]
	}
	return s.byKey[ident{it.NS, it.Key}]
}

// find is named, unless other bytes were read than were written.
func (s *shelf) find(it *fabric.Item) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.named(it); e != nil && !e.wrong {
		return e
	}
	return nil
}

// use finds an entry and keeps its part from being given out until leave.
func (s *shelf) use(it *fabric.Item) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.named(it)
	if e != nil {
		e.users++
	}
	return e
}

func (s *shelf) leave(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.users--; e.users == 0 && e.gone {
		s.give(e)
	}
}

func (s *shelf) give(e *entry) {
	if e.of == s.mem {
		s.mem.space.Give(e.at)
	}
}

func (s *shelf) forget(e *entry) {
	delete(s.byH, e.h)
	delete(s.byKey, e.ident)
	if e.gone = true; e.users == 0 {
		s.give(e)
	}
}

// drop forgets what an item names.
func (s *shelf) drop(it *fabric.Item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.named(it)
	if e != nil {
		s.forget(e)
	}
	return e != nil
}

// reserve takes room for a payload, unless its key is there.
func (s *shelf) reserve(mem *memory, it *fabric.Item, head wire.Header) (*entry, error) {
	e := &entry{ident: ident{it.NS, it.Key}, tier: it.Tier, att: it.Att, head: head, of: mem}
	_, _ = rand.Read(e.h[:]) // never fails
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.byKey[e.ident]; was != nil && was.wrong {
		s.forget(was)
	} else if was != nil {
		it.H = was.h
		return nil, s.error(wire.CodeExists, "", nil)
	}
	switch {
	case mem != s.mem:
		return nil, s.error(wire.CodeLaneLost, "peer "+s.Name()+" has other memory by now", nil)
	case mem.place.Size == 0:
		return nil, s.error(wire.CodeFull, "peer "+s.Name()+" has lent no memory", nil)
	}
	s.wake()
	if n := len(s.byH) + len(s.rests); n >= s.cfg.MaxBlocks {
		return nil, s.error(wire.CodeFull, fmt.Sprintf("peer %s has %d blocks, limit %d", s.Name(), n, s.cfg.MaxBlocks), nil)
	}
	at, ok := mem.space.Take(e.size())
	if !ok {
		return nil, &fabric.Error{
			Code: wire.CodeFull, Fabric: s.cfg.Label, Have: mem.space.Size - mem.space.Used, Need: e.size(),
			Text: "memory of peer " + s.Name() + ", of which the longest free part is too short",
		}
	}
	e.at = at
	return e, nil
}

// wake gives out again what has rested.
func (s *shelf) wake() {
	now := time.Now()
	for len(s.rests) > 0 && !now.Before(s.rests[0].until) {
		s.mem.space.Give(s.rests[0].at)
		s.rests = s.rests[1:]
	}
}

// publish makes a written entry one that can be found, unless another push of the key
// was faster, or the memory was lost meanwhile.
func (s *shelf) publish(it *fabric.Item, e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.of != s.mem {
		return s.error(wire.CodeLaneLost, "peer "+s.Name()+" has other memory by now", nil)
	}
	if was := s.byKey[e.ident]; was != nil {
		it.H = was.h
		s.give(e)
		return s.error(wire.CodeExists, "", nil)
	}
	s.byKey[e.ident], s.byH[e.h] = e, e
	it.H, it.Head, it.Att = e.h, e.head, e.att
	return nil
}

// giveUp gives the room of a write that failed back: at once where nothing is under way.
func (s *shelf) giveUp(e *entry, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.of != s.mem:
	case quiet:
		s.give(e)
	default:
		s.rests = append(s.rests, rest{e.at, time.Now().Add(s.cfg.Rest)})
	}
}

func all(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// push writes payloads that were checked.
func (s *shelf) push(ctx context.Context, it []*fabric.Item, heads []wire.Header) []error {
	mem, err := s.reach(ctx)
	if err != nil {
		return all(len(it), err)
	}
	errs := make([]error, len(it))
	var ops []Op
	var entries []*entry
	var at []int
	for i := range it {
		e, err := s.reserve(mem, it[i], heads[i])
		if err != nil {
			errs[i] = err
			continue
		}
		ops = append(ops, Op{Addr: e.addr(), B: it[i].M.B})
		entries, at = append(entries, e), append(at, i)
	}
	s.Write(ctx, ops)
	var stored []Stored
	for k, e := range entries {
		i := at[k]
		ops[k].tell(it[i])
		if ops[k].Err != nil {
			s.giveUp(e, ops[k].Quiet)
			errs[i] = s.said(ctx, ops[k].Err)
			continue
		}
		if errs[i] = s.publish(it[i], e); errs[i] == nil {
			stored = append(stored, Stored{e.ns, e.key, e.addr(), e.size()})
		}
	}
	if len(stored) > 0 && s.cfg.Stored != nil {
		s.cfg.Stored(ctx, s.Peer, stored)
	}
	return errs
}

// pull reads the payloads of entries that are in use, and hashes each where it lies.
func (s *shelf) pull(ctx context.Context, it []*fabric.Item, entries []*entry) []error {
	mem, err := s.reach(ctx)
	if err != nil {
		return all(len(it), err)
	}
	errs := make([]error, len(it))
	var ops []Op
	var at []int
	for i, e := range entries {
		if e.of != mem {
			errs[i] = s.error(wire.CodeStale, "peer "+s.Name()+" has other memory by now", nil)
			continue
		}
		ops, at = append(ops, Op{Addr: e.addr(), B: it[i].M.B[:e.size()]}), append(at, i)
	}
	s.Read(ctx, ops)
	for k, i := range at {
		ops[k].tell(it[i])
		if ops[k].Err != nil {
			errs[i] = s.said(ctx, ops[k].Err)
		} else {
			errs[i] = s.check(it[i], entries[i], ops[k].B)
		}
	}
	return errs
}

// check compares what was read with what was written. An entry with other bytes is not
// found again; who names it still reads what is wrong with it.
func (s *shelf) check(it *fabric.Item, e *entry, b []byte) error {
	head, err := wire.ParseHeader(b, wire.Strict, wire.MaxBody)
	what := "the memory of peer " + s.Name() + " does not hold the header that was written"
	var proof wire.Verified
	if err == nil && head == e.head {
		proof = wire.Hash(b[wire.HeaderLen:])
		if err = head.Match(proof); err == nil {
			it.H, it.Head, it.Att, it.Proof = e.h, e.head, e.att, proof
			return nil
		}
		what = "the memory of peer " + s.Name() + " was changed"
	}
	s.mu.Lock()
	e.wrong = true
	s.mu.Unlock()
	return s.error(wire.CodeChecksum, what, err)
}

// count is how many blocks and bytes are given out, without what rests.
func (s *shelf) count() (blocks int, bytes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mem == nil {
		return 0, 0
	}
	bytes = s.mem.space.Used
	for _, r := range s.rests {
		bytes -= r.at.Len
	}
	return len(s.byH), bytes
}

// probe moves a block there and back, which the index never has.
func (s *shelf) probe(ctx context.Context) (took time.Duration, size int, err error) {
	const body = 64 << 10
	b := make([]byte, body)
	_, _ = rand.Read(b) // never fails
	payload, err := wire.AppendPayload(nil, wire.ThinkComplete, b)
	if err != nil {
		return 0, 0, err
	}
	mem, err := s.reach(ctx)
	if err != nil {
		return 0, 0, err
	}
	it := fabric.Item{M: fabric.Mem{B: payload}}
	e, err := s.reserve(mem, &it, wire.Header{BodyLen: body, Tier: wire.ThinkComplete, Sum: wire.SumOf(b)})
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	ops := []Op{{Addr: e.addr(), B: payload}}
	if s.Write(ctx, ops); ops[0].Err == nil {
		clear(payload)
		s.Read(ctx, ops)
	}
	took = time.Since(began)
	s.giveUp(e, ops[0].Err == nil || ops[0].Quiet)
	if ops[0].Err != nil {
		return 0, 0, s.said(ctx, ops[0].Err)
	}
	return took, 2 * len(payload), s.check(&it, e, payload)
}
