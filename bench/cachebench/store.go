package cachebench

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/wire"
)

// store is the bookkeeping of the block store, used as an engine uses it: the hits of a
// prompt are leased, what is missing is put, the lease is released.
type store struct {
	core  *blocks.Core
	owner blocks.Owner
	ns    wire.Namespace
	keys  []wire.Key
	views []blocks.View
}

// The replay is about which blocks are kept, so it has small ones: of one size, as many
// in each extent.
const (
	blockBytes     = 1000
	extentBytes    = 8192
	BlocksAnExtent = 8 // a cache is a multiple of it
	replayTTL      = time.Hour
)

func newStore(capacity int) (*store, error) {
	if capacity <= 0 || capacity%BlocksAnExtent != 0 {
		return nil, fmt.Errorf("a cache of %d blocks is not a multiple of %d", capacity, BlocksAnExtent)
	}
	bytes := uint64(capacity / BlocksAnExtent * extentBytes)
	core, err := blocks.NewCore(blocks.CoreConfig{
		Capacity: bytes, ExtentBytes: extentBytes, ThinkFraction: 0.4, HoldBytes: bytes,
		Agent: [16]byte{1}, Incarnation: 1, Rand: repeatable{rand.New(rand.NewPCG(1, 2))},
	})
	if err != nil {
		return nil, err
	}
	s := &store{core: core, ns: wire.Namespace{1}}
	tenant := [32]byte{1}
	if err := core.AddNamespace(s.ns, tenant); err != nil {
		return nil, err
	}
	for n := core.SegmentExtents(); n > 0; n = core.SegmentExtents() {
		core.AddSegment(tenant, n)
	}
	s.owner = core.NewOwnerFor(quota.Holder{Kind: quota.Engine, Name: "replay"}, false)
	return s, nil
}

// repeatable gives the same bytes in each run.
type repeatable struct{ r *rand.Rand }

func (x repeatable) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(x.r.Uint32())
	}
	return len(p), nil
}

func keyOf(id int) (k wire.Key) {
	binary.LittleEndian.PutUint64(k[:], uint64(id)+1)
	k[31] = 1 // never zero
	return k
}

// take leases the leading hits of a prompt and puts the rest, with what each block that
// is put is for. The lease is released at the end.
func (s *store) take(prompt []int, k blocks.Commit, put func(id int, slot uint32)) (hits int, err error) {
	keys := s.named(prompt)
	hits = s.core.Lookup(s.ns, keys, nil)
	s.views = s.views[:0]
	for _, key := range keys[:hits] {
		s.views = append(s.views, blocks.View{NS: s.ns, Key: key})
	}
	lease, err := s.core.Acquire(0, s.owner, s.views, replayTTL, false)
	if err != nil {
		return 0, err
	}
	defer s.core.Release(s.owner, lease)
	for i := hits; i < len(prompt); i++ {
		if s.core.Touch(s.ns, keys[i:i+1]) == 1 {
			continue
		}
		slot, ok, err := s.put(prompt[i], k)
		if err != nil {
			return hits, err
		}
		if ok && put != nil {
			put(prompt[i], slot)
		}
	}
	return hits, nil
}

// put stores a block; not ok: the rest of the cache is leased.
func (s *store) put(id int, k blocks.Commit) (slot uint32, ok bool, err error) {
	v, err := s.core.Reserve(0, s.owner, s.ns, k.Tier, []uint32{blockBytes}, replayTTL, false, nil)
	if wire.CodeOf(err) == wire.CodeFull {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	k.Slot, k.Key, k.Len = v[0].Ref.Slot, keyOf(id), blockBytes
	c := []blocks.Commit{k}
	s.core.Commit(0, s.owner, c)
	return k.Slot, true, c[0].Err
}

// named are the keys of ids; good until the next call.
func (s *store) named(ids []int) []wire.Key {
	s.keys = s.keys[:0]
	for _, id := range ids {
		s.keys = append(s.keys, keyOf(id))
	}
	return s.keys
}

// engine is a store as a policy to compare.
type engine struct {
	store *store
	err   error // the first
}

func (e *engine) serve(prompt []int) int {
	hits, err := e.store.take(prompt, blocks.Commit{Tier: wire.OutputCritical}, nil)
	if e.err == nil {
		e.err = err
	}
	return hits
}
