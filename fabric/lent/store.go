package lent

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// Config is what a Store needs.
type Config struct {
	Label     string
	MaxItem   int           // bytes of a payload
	MaxBatch  int           // items of a call
	MaxBlocks int           // of one peer: the length of its memory is its own word
	Lanes     int           // calls that move bytes side by side
	Rest      time.Duration // of a part whose write may still be under way
	// Stored, where set, is called for blocks that now lie in a peer's memory, within the
	// call that wrote them.
	Stored func(ctx context.Context, p Peer, list []Stored)
	// Tenant is whose blocks of a namespace are, and Tenants are those whose blocks the
	// peers may have. Without Tenant they may have none that others bring.
	Tenant  func(ns wire.Namespace) (string, bool)
	Tenants []string
	// Failed, where set, is called for each item, or probe, that failed with a peer.
	Failed func(p Peer, err error)
}

// Stored is where a payload lies in a peer.
type Stored struct {
	NS   wire.Namespace
	Key  wire.Key
	Addr uint64
	Len  uint64
}

// Store is blocks in the memory of peers. It is used by Groups of them, and ended once.
type Store struct {
	cfg  Config
	list atomic.Pointer[[]*shelf] // ascending by name; never changed, Set puts another one in its place
	seed maphash.Seed

	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// New makes a store of peers, which have different names.
func New(cfg Config, peers []Peer) *Store {
	s := &Store{cfg: cfg, seed: maphash.MakeSeed()}
	s.life, s.end = context.WithCancel(context.Background())
	s.list.Store(&[]*shelf{})
	s.Set(peers)
	return s
}

// Set makes these the peers, which have different names. One that was there already keeps
// its blocks; those of one that is no more are forgotten, and its calls fail.
func (s *Store) Set(peers []Peer) {
	old := s.shelves()
	var now []*shelf
	for _, p := range peers {
		i := slices.IndexFunc(old, func(one *shelf) bool { return one.Peer == p })
		if i >= 0 {
			now = append(now, old[i])
		} else {
			now = append(now, newShelf(p, &s.cfg))
		}
	}
	slices.SortFunc(now, func(a, b *shelf) int { return cmp.Compare(a.Name(), b.Name()) })
	s.list.Store(&now)
	for _, one := range old {
		if !slices.Contains(now, one) {
			one.end()
		}
	}
}

func (s *Store) shelves() []*shelf { return *s.list.Load() }

// Close ends the calls under way, and waits for them.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.calls.Wait()
}

// Count is how many blocks there are, and how many bytes are given out for them and for
// writes under way.
func (s *Store) Count() (blocks int, bytes uint64) {
	for _, one := range s.shelves() {
		n, b := one.count()
		blocks, bytes = blocks+n, bytes+b
	}
	return blocks, bytes
}

// Forget is for a peer that was seen to have lost its memory: so are the blocks in it.
func (s *Store) Forget(name string) {
	for _, one := range s.shelves() {
		if one.Name() == name {
			one.mu.Lock()
			one.lose()
			one.mu.Unlock()
		}
	}
}

// Group is some of a store's peers as one fabric.
type Group struct {
	store *Store
	some  []*shelf // where it is not all that there are
	all   bool
}

// All are all peers that there are at the time of a call.
func (s *Store) All() Group { return Group{store: s, all: true} }

// One is the peer that has the name now.
func (s *Store) One(name string) Group {
	return Group{store: s, some: slices.DeleteFunc(slices.Clone(s.shelves()), func(one *shelf) bool { return one.Name() != name })}
}

func (g Group) shelves() []*shelf {
	if g.all {
		return g.store.shelves()
	}
	return g.some
}

// Label is the store's.
func (g Group) Label() string { return g.store.cfg.Label }

// Caps says that blocks are verified when they are pulled.
func (g Group) Caps() fabric.Caps {
	c := &g.store.cfg
	return fabric.Caps{Verified: true, MaxItem: c.MaxItem, MaxBatch: c.MaxBatch, Lanes: c.Lanes}
}

func (g Group) error(code wire.Code, text string) *fabric.Error {
	return &fabric.Error{Code: code, Fabric: g.store.cfg.Label, Text: text}
}

func (g Group) enter() error {
	s := g.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return g.error(wire.CodeUnreachable, "the fabric is closed")
	}
	s.calls.Add(1)
	return nil
}

// begin says of each item why it cannot be looked at, and keeps the rules of Item. The
// context ends with the store too.
func (g Group) begin(ctx context.Context, it []fabric.Item) (within context.Context, leave func()) {
	within, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.store.life, cancel)
	entered := g.enter()
	ended, list := fabric.ContextError(ctx, g.store.cfg.Label), g.shelves()
	for i := range it {
		err := cmp.Or(entered, ended)
		if limit := g.store.cfg.MaxBatch; err == nil && i >= limit {
			err = &fabric.Error{Code: wire.CodeTooMany, Fabric: g.store.cfg.Label, Have: uint64(limit), Need: uint64(len(it))}
		}
		via := "none"
		if len(list) > 0 {
			via = list[0].Via()
		}
		it[i].Via, it[i].Loose, it[i].Err = via, false, err
	}
	return within, func() {
		stop()
		cancel()
		for i := range it {
			if it[i].Err != nil {
				it[i].Head = wire.Header{}
			}
		}
		if entered == nil {
			g.store.calls.Done()
		}
	}
}

// part is what one peer has of a batch.
type part struct {
	items   []*fabric.Item
	heads   []wire.Header
	entries []*entry
}

func partOf(parts map[*shelf]*part, s *shelf) *part {
	if parts[s] == nil {
		parts[s] = &part{}
	}
	return parts[s]
}

// together runs f for each peer's part at the same time, and sets what it says.
func together(parts map[*shelf]*part, f func(s *shelf, of *part) []error) {
	var wg sync.WaitGroup
	for s, of := range parts {
		wg.Go(func() {
			for _, it := range of.items {
				it.Via = s.Via()
			}
			for i, err := range f(s, of) {
				of.items[i].Err = err
				s.failed(err)
			}
		})
	}
	wg.Wait()
}

// Push writes each payload that passes the strict reader into the memory of its peer.
func (g Group) Push(ctx context.Context, it []fabric.Item) {
	for i := range it {
		it[i].H = fabric.Handle{}
	}
	ctx, leave := g.begin(ctx, it)
	defer leave()
	parts := map[*shelf]*part{}
	for i := range it {
		if it[i].Err == nil {
			it[i].Err = g.accept(&it[i], parts)
		}
	}
	together(parts, func(s *shelf, of *part) []error { return s.push(ctx, of.items, of.heads) })
}

// accept checks a payload and adds it to its peer's part.
func (g Group) accept(it *fabric.Item, parts map[*shelf]*part) error {
	if limit := g.store.cfg.MaxItem; len(it.M.B) > limit {
		return &fabric.Error{Code: wire.CodeTooLarge, Fabric: g.store.cfg.Label, Have: uint64(limit), Need: uint64(len(it.M.B))}
	}
	head, _, err := wire.Decode(it.M.B, wire.Strict, wire.MaxBody)
	if err != nil {
		return err
	}
	s := g.home(it.NS, it.Key)
	if s == nil {
		return g.error(wire.CodeUnreachable, "no peer is listed")
	}
	of := partOf(parts, s)
	of.items, of.heads = append(of.items, it), append(of.heads, head)
	return nil
}

// home is the peer that a block goes to: the one with the highest hash of those that can
// be used now and may have room, else of those that can be used, else of all.
func (g Group) home(ns wire.Namespace, key wire.Key) (best *shelf) {
	var most uint64
	rank := 0
	for _, s := range g.shelves() {
		r, h := s.rank(), g.weight(ns, key, s.Name())
		if best == nil || r > rank || r == rank && h > most {
			best, rank, most = s, r, h
		}
	}
	return best
}

func (g Group) weight(ns wire.Namespace, key wire.Key, name string) uint64 {
	var h maphash.Hash
	h.SetSeed(g.store.seed)
	_, _ = h.Write(ns[:])
	_, _ = h.Write(key[:])
	_, _ = h.WriteString(name)
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(name))))
	return h.Sum64()
}

// Choose names the peer that a block would go to now.
func (g Group) Choose(ns wire.Namespace, key wire.Key) string {
	if s := g.home(ns, key); s != nil {
		return s.Name()
	}
	return ""
}

func (g Group) absent() error { return g.error(wire.CodeAbsent, "") }

// Pull reads each payload out of the memory of its peer, and hashes it where it lies.
func (g Group) Pull(ctx context.Context, it []fabric.Item) {
	ctx, leave := g.begin(ctx, it)
	defer leave()
	parts := map[*shelf]*part{}
	for i := range it {
		it[i].Proof = wire.Verified{}
		if it[i].Err == nil {
			it[i].Err = g.want(&it[i], parts)
		}
	}
	together(parts, func(s *shelf, of *part) []error {
		defer func() {
			for _, e := range of.entries {
				s.leave(e)
			}
		}()
		return s.pull(ctx, of.items, of.entries)
	})
}

// want finds what an item names and adds it to its peer's part.
func (g Group) want(it *fabric.Item, parts map[*shelf]*part) error {
	for _, s := range g.shelves() {
		e := s.use(it)
		if e == nil {
			continue
		}
		if uint64(len(it.M.B)) < e.size() {
			s.leave(e)
			return &fabric.Error{Code: wire.CodeTooLarge, Fabric: g.store.cfg.Label, Have: uint64(len(it.M.B)), Need: e.size()}
		}
		of := partOf(parts, s)
		of.items, of.entries = append(of.items, it), append(of.entries, e)
		return nil
	}
	return g.absent()
}

// Find looks into the index.
func (g Group) Find(ctx context.Context, it []fabric.Item) {
	_, leave := g.begin(ctx, it)
	defer leave()
	for i := range it {
		if it[i].Err != nil {
			continue
		}
		it[i].Err = g.absent()
		for _, s := range g.shelves() {
			if e := s.find(&it[i]); e != nil {
				it[i].H, it[i].Head, it[i].Att, it[i].Via, it[i].Err = e.h, e.head, e.att, s.Via(), nil
				break
			}
		}
	}
}

// Drop forgets blocks; their memory is used again.
func (g Group) Drop(ctx context.Context, it []fabric.Item) {
	_, leave := g.begin(ctx, it)
	defer leave()
	for i := range it {
		if it[i].Err == nil && !slices.ContainsFunc(g.shelves(), func(s *shelf) bool { return s.drop(&it[i]) }) {
			it[i].Err = g.absent()
		}
	}
}

// List calls f for each block of the index.
func (g Group) List(ctx context.Context, f func(fabric.Item) bool) error {
	if err := g.enter(); err != nil {
		return err
	}
	defer g.store.calls.Done()
	for _, s := range g.shelves() {
		for _, e := range s.all() {
			if err := fabric.ContextError(ctx, g.store.cfg.Label); err != nil {
				return err
			}
			if !f(fabric.Item{NS: e.ns, Key: e.key, Tier: e.tier, H: e.h, Head: e.head, Att: e.att, Via: s.Via()}) {
				return nil
			}
		}
	}
	return nil
}

func (s *shelf) all() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*entry, 0, len(s.byH))
	for _, e := range s.byH {
		if !e.wrong {
			out = append(out, e)
		}
	}
	return out
}

// Usable says whether one peer at least can be asked.
func (g Group) Usable(wire.Namespace) error {
	var last error = g.error(wire.CodeUnreachable, "no peer is listed")
	for _, s := range g.shelves() {
		if last = s.Usable(); last == nil {
			return nil
		}
	}
	return last
}

// MayHave implements fabric.Tenanted.
func (g Group) MayHave(ns wire.Namespace) error {
	if ns == (wire.Namespace{}) && len(g.store.cfg.Tenants) > 0 {
		return nil
	}
	if of := g.store.cfg.Tenant; of != nil {
		if tenant, ok := of(ns); ok && slices.Contains(g.store.cfg.Tenants, tenant) {
			return nil
		}
	}
	return g.error(wire.CodeNSUnknown, "the tenant is not in tenants of the fabric's table")
}

// Keeps says that the block is still in the index, and that its peer can be asked.
func (g Group) Keeps(h fabric.Handle) bool {
	return slices.ContainsFunc(g.shelves(), func(s *shelf) bool {
		return s.find(&fabric.Item{H: h}) != nil && s.Usable() == nil
	})
}

// Quiesce has nothing to wait for: memory of a call is touched only while it runs.
func (g Group) Quiesce(ctx context.Context) error {
	return fabric.ContextError(ctx, g.store.cfg.Label)
}

// Probe writes 64 KiB into the memory of a peer, reads them back and compares them; ""
// is the first peer.
func (g Group) Probe(ctx context.Context, name string) (via string, gbps float64, err error) {
	for _, s := range g.shelves() {
		if s.Name() != name && name != "" {
			continue
		}
		if err := g.enter(); err != nil {
			return "", 0, err
		}
		defer g.store.calls.Done()
		if err := fabric.ContextError(ctx, g.store.cfg.Label); err != nil {
			return "", 0, err
		}
		took, size, err := s.probe(ctx)
		s.failed(err)
		if err != nil || took <= 0 {
			return s.Via(), 0, err
		}
		return s.Via(), float64(size) / took.Seconds() / 1e9, nil
	}
	return "", 0, g.error(wire.CodeUnreachable, "no peer "+strconv.Quote(name)+" is listed")
}

// Where is where the payload of a handle lies; zero: there is none.
func (s *Store) Where(h fabric.Handle) Stored {
	for _, one := range s.shelves() {
		if e := one.find(&fabric.Item{H: h}); e != nil {
			return Stored{e.ns, e.key, e.addr(), e.size()}
		}
	}
	return Stored{}
}
