package think

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"meridian/bench/trace"
	"meridian/blocks"
	"meridian/wire"
)

// memory is the engine's KV memory: the bookkeeping of the block store, of blocks without
// bodies. A block is reserved when the queue gives it to a request, published under its
// key when all its tokens are computed, and referenced until the request ends or leaves;
// then it is idle, and its prefix can be hit until it is evicted.
//
// A request's blocks, in order:
//
//	published   [0, full): by key, referenced
//	reserved    [full, len(slots)): the last one is filled by the tokens to come
type memory struct {
	core  *blocks.Core
	owner blocks.Owner
	ns    wire.Namespace
	size  int  // tokens of a block
	tiers bool // as doc.go's table says; false: all blocks are alike
	keeps bool // blocks of thinking stay when their request ends

	holds  []holding          // by request
	in     map[uint32]block   // what is published in a slot
	users  map[wire.Key]int   // requests that have not ended, by block of shared content
	gone   [wire.Tiers]uint64 // evicted blocks, by the tier that the table gives them
	grants []grant
	sizes  []uint32
	views  []blocks.View
	keys   []wire.Key
	one    [1]blocks.Commit
	ready  blocks.Ready
}

// holding is what a request has.
type holding struct {
	slots  []uint32
	full   int
	think  []int32 // published blocks of thinking, by place, in order
	cold   int     // of them, those that went cold
	copied []bool  // by place: a copy is outside, or on its way
	ended  bool    // thinking has
	over   bool    // the request is complete
}

// block is what lies in a slot.
type block struct {
	request int32
	think   bool
}

// grant is blocks that the queue has given to a request.
type grant struct{ request, blocks int }

// The replay is about which blocks are kept, so it has small ones: of one size, as many in
// each extent.
const (
	bodyBytes      = 1000
	extentBytes    = 8192
	blocksAnExtent = 8
	forEver        = time.Duration(math.MaxInt64) / 4
	outside        = "outside" // the name of where copies go
)

// kvBlocks is how many blocks the cache has: whole extents of the store.
func (o *Options) kvBlocks() int { return o.KVTokens / o.BlockTokens / blocksAnExtent * blocksAnExtent }

var errStore = errors.New("the store and the queue disagree")

func newMemory(capacity, blockTokens, requests int, tiers, keeps bool) (*memory, error) {
	bytes := uint64(capacity / blocksAnExtent * extentBytes)
	core, err := blocks.NewCore(blocks.CoreConfig{
		// Who thinks gets what the queue gives it: the share of thinking is for memory of
		// which no queue decides.
		Capacity: bytes, ExtentBytes: extentBytes, ThinkFraction: 1, HoldBytes: bytes, RemoteBlocks: math.MaxInt32,
		Agent: [16]byte{1}, Incarnation: 1, Rand: repeatable{rand.New(rand.NewPCG(1, 2))},
	})
	if err != nil {
		return nil, err
	}
	m := &memory{core: core, ns: wire.Namespace{1}, size: blockTokens, tiers: tiers, keeps: keeps, holds: make([]holding, requests), in: map[uint32]block{}, users: map[wire.Key]int{}}
	tenant := [32]byte{1}
	if err := core.AddNamespace(m.ns, tenant); err != nil {
		return nil, err
	}
	for n := core.SegmentExtents(); n > 0; n = core.SegmentExtents() {
		core.AddSegment(tenant, n)
	}
	m.owner = core.NewOwner(false)
	return m, nil
}

// repeatable gives the same bytes in each run.
type repeatable struct{ r *rand.Rand }

func (x repeatable) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(x.r.Uint32())
	}
	return len(p), nil
}

// Kinds of keys.
const (
	ownBlock    = 1 + iota // of one request
	sharedBlock            // of a prompt that others may have too
	partBlock              // one that was not full when its request left
)

// key names the block of a request at a place.
func (m *memory) key(q *request, i, at int) (k wire.Key) {
	kind, who, n := ownBlock, i, at
	piece, end := at*m.size/trace.BlockTokens, (at+1)*m.size
	if piece < len(q.content) && end <= q.prompt && piece == (end-1)/trace.BlockTokens {
		kind, who, n = sharedBlock, q.content[piece], at*m.size%trace.BlockTokens
	}
	return keyOf(kind, who, n)
}

func keyOf(kind, who, n int) (k wire.Key) {
	binary.LittleEndian.PutUint64(k[:], uint64(who))
	binary.LittleEndian.PutUint64(k[8:], uint64(n))
	k[31] = byte(kind)
	return k
}

// named are the keys of a run of a request's blocks; good until the next call.
func (m *memory) named(q *request, i, from, to int) []wire.Key {
	m.keys = m.keys[:0]
	for at := from; at < to; at++ {
		m.keys = append(m.keys, m.key(q, i, at))
	}
	return m.keys
}

func (m *memory) need(tokens int) int { return (tokens + m.size - 1) / m.size }

// arrive counts the users of shared content.
func (m *memory) arrive(q *request, i int) {
	if q.content != nil {
		for _, k := range m.named(q, i, 0, q.prompt/m.size) {
			if k[31] == sharedBlock {
				m.users[k]++
			}
		}
	}
}

// hits is how many tokens of a request that is admitted the prefix cache has; never the
// last one.
func (m *memory) hits(q *request, i int) int {
	return m.core.Lookup(m.ns, m.named(q, i, 0, (q.context-1)/m.size), nil) * m.size
}

// enter references the hits of a request that was admitted, and says how many tokens they
// have. It comes before anything is reserved, so that nothing can evict a hit.
func (m *memory) enter(q *request, i int) (tokens int, err error) {
	h := &m.holds[i]
	n := m.hits(q, i) / m.size
	for at := range n {
		if err := m.refer(h, i, m.key(q, i, at), at); err != nil {
			return 0, err
		}
	}
	h.full = n
	return n * m.size, nil
}

// refer references the published block of a key, which becomes the request's at a place.
func (m *memory) refer(h *holding, i int, k wire.Key, at int) error {
	v := blocks.View{NS: m.ns, Key: k}
	if err := m.core.Borrow(m.owner, &v); err != nil {
		return fmt.Errorf("%w: a block that is there cannot be referenced: %w", errStore, err)
	}
	if at == len(h.slots) {
		h.slots = append(h.slots, 0)
	}
	h.slots[at] = v.Ref.Slot
	if k[31] == sharedBlock {
		m.in[v.Ref.Slot] = block{request: int32(i)}
	}
	h.copy(at, v.Where != blocks.Loc{})
	return nil
}

func (h *holding) copy(at int, is bool) {
	for len(h.copied) <= at {
		h.copied = append(h.copied, false)
	}
	h.copied[at] = is
}

// grow notes that a request is to have blocks for so many tokens.
func (m *memory) grow(i, tokens int) {
	if n := m.need(tokens) - len(m.holds[i].slots); n > 0 {
		m.grants = append(m.grants, grant{i, n})
	}
}

// reserve takes the blocks of all grants.
func (m *memory) reserve(now time.Duration) error {
	m.sizes = m.sizes[:0]
	for _, g := range m.grants {
		for range g.blocks {
			m.sizes = append(m.sizes, bodyBytes)
		}
	}
	if len(m.sizes) == 0 {
		return nil
	}
	v, err := m.core.Reserve(now, m.owner, m.ns, wire.OutputCritical, m.sizes, forEver, false, m.views[:0])
	if err != nil {
		return fmt.Errorf("%w: no room for %d blocks that the queue has given: %w", errStore, len(m.sizes), err)
	}
	m.views = v
	m.core.Step(now, blocks.Input{}, &m.ready)
	for _, e := range m.ready.Evicted {
		b := m.in[e.Ref.Slot]
		m.gone[m.tier(&m.holds[b.request], b.think)]++
	}
	for _, g := range m.grants {
		h := &m.holds[g.request]
		for _, x := range v[:g.blocks] {
			h.slots = append(h.slots, x.Ref.Slot)
		}
		v = v[g.blocks:]
	}
	m.grants = m.grants[:0]
	m.core.Gens() // of memory that is none
	return nil
}

// tier is that of doc.go's table.
func (m *memory) tier(h *holding, think bool) wire.Tier {
	switch {
	case h.over, think && h.ended:
		return wire.ThinkComplete
	case think:
		return wire.ThinkActive
	}
	return wire.OutputCritical
}

// publish makes blocks up to a place findable; think says which are of thinking. It returns
// how many of them are new ones of thinking.
func (m *memory) publish(now time.Duration, q *request, i, to int, think func(at int) bool) (thought int, err error) {
	h := &m.holds[i]
	for ; h.full < to; h.full++ {
		at := h.full
		t := think(at)
		if err := m.commit(now, h, i, at, m.key(q, i, at), t); err != nil {
			return thought, err
		}
		if t && (len(h.think) == 0 || h.think[len(h.think)-1] < int32(at)) {
			h.think = append(h.think, int32(at))
			thought++
		}
	}
	return thought, nil
}

// commit publishes a reserved slot and references it. Where another request has published
// the same content meanwhile, that block is referenced in its place.
func (m *memory) commit(now time.Duration, h *holding, i, at int, k wire.Key, think bool) error {
	tier := wire.OutputCritical
	if m.tiers {
		tier = m.tier(h, think)
	}
	m.one[0] = blocks.Commit{Slot: h.slots[at], Key: k, Tier: tier, Len: bodyBytes, Live: true}
	m.core.Commit(now, m.owner, m.one[:])
	if err := m.one[0].Err; err == nil {
		m.in[h.slots[at]] = block{int32(i), think}
	} else if wire.CodeOf(err) != wire.CodeExists {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	return m.refer(h, i, k, at)
}

// leave gives a request's references back, the last block first, and what it had reserved.
func (m *memory) leave(i int) {
	h := &m.holds[i]
	m.core.Abort(m.owner, h.slots[h.full:])
	for at := h.full - 1; at >= 0; at-- {
		m.core.GiveBack(h.slots[at], false)
	}
	h.slots, h.full = h.slots[:0], 0
}

// exit lowers the blocks of a thinking that is over.
func (m *memory) exit(q *request, i int) {
	h := &m.holds[i]
	h.ended = true
	if m.tiers {
		m.core.Retier(m.ns, m.thoughts(q, i, 0, len(h.think)), wire.ThinkComplete)
	}
}

// thoughts are the keys of some of a request's blocks of thinking; good until the next call.
func (m *memory) thoughts(q *request, i, from, to int) []wire.Key {
	m.keys = m.keys[:0]
	for _, at := range m.holds[i].think[from:to] {
		m.keys = append(m.keys, m.key(q, i, int(at)))
	}
	return m.keys
}

// end is a request's completion: its blocks go first from now on, and those of thinking
// that no history keeps go at once, as all copies outside do.
func (m *memory) end(q *request, i int) {
	h := &m.holds[i]
	h.over = true
	all := h.full
	m.leave(i)
	if m.tiers {
		own := m.named(q, i, 0, all)
		last := own[:0]
		for _, k := range own {
			if k[31] != sharedBlock || m.users[k] == 1 {
				last = append(last, k)
			}
		}
		m.core.Retier(m.ns, last, wire.ThinkComplete)
		if !m.keeps {
			m.core.Forget(m.ns, last)
			m.core.Discard(m.ns, m.thoughts(q, i, 0, len(h.think)))
		}
	}
	if q.content != nil {
		for _, k := range m.named(q, i, 0, q.prompt/m.size) {
			if m.users[k]--; m.users[k] <= 0 {
				delete(m.users, k)
			}
		}
	}
	h.think, h.copied = nil, nil
}

// cool says that the next n blocks of a request's thinking went cold, and which places
// they have: from, to in order. It returns how many of them have no copy yet.
func (m *memory) cool(i, n int) (from, to, copies int) {
	h := &m.holds[i]
	from = h.cold
	to = min(from+n, len(h.think))
	h.cold = to
	for _, at := range h.think[from:to] {
		if int(at) < h.full && !h.copied[at] {
			h.copied[at] = true
			copies++
		}
	}
	return from, to, copies
}

// cooled notes that cold blocks have a copy outside.
func (m *memory) cooled(q *request, i, from, to int) {
	if h := &m.holds[i]; !h.over {
		m.moved(m.thoughts(q, i, from, to))
	}
}

// moved tells the store that published blocks have a copy outside: they are freed with
// their last reference.
func (m *memory) moved(keys []wire.Key) {
	m.views = m.views[:0]
	for range keys {
		m.views = append(m.views, blocks.View{})
	}
	m.core.Peek(m.ns, keys, m.views)
	var done []blocks.Moved
	for k := range m.views {
		if v := &m.views[k]; v.Err == nil {
			done = append(done, blocks.Moved{Slot: v.Ref.Slot, Gen: v.Ref.Gen, Loc: blocks.Loc{Fabric: outside, H: keys[k]}})
		}
	}
	m.core.Moved(done)
}

// away publishes the block that is not full of a request that is to leave, and returns how
// many of its tokens have no copy outside.
func (m *memory) away(now time.Duration, q *request, i int) (tokens int, err error) {
	h := &m.holds[i]
	if over := q.kept() - h.full*m.size; over > 0 {
		if err := m.commit(now, h, i, h.full, keyOf(partBlock, i, h.full), false); err != nil {
			return 0, err
		}
		h.copied[h.full] = true
		h.full++
		tokens = over
	}
	for at, is := range h.copied[:h.full] {
		if !is {
			h.copied[at] = true
			tokens += m.size
		}
	}
	return tokens, nil
}

// left frees the blocks of a request that has a copy of all of them outside.
func (m *memory) left(q *request, i int) {
	h := &m.holds[i]
	keys := m.named(q, i, 0, q.kept()/m.size)
	if len(keys) < h.full {
		m.keys = append(keys, keyOf(partBlock, i, len(keys)))
		keys = m.keys
	}
	m.moved(keys)
	m.leave(i)
}

// back references what is still here of a request that comes back, and returns how many
// tokens are to be loaded.
func (m *memory) back(q *request, i int) (tokens int, err error) {
	had, err := m.enter(q, i)
	m.grow(i, q.context)
	return max(q.kept()-had, 0), err
}

// arrived publishes what has been loaded.
func (m *memory) arrived(now time.Duration, q *request, i int, think func(at int) bool) error {
	_, err := m.publish(now, q, i, q.kept()/m.size, think)
	m.core.Forget(m.ns, []wire.Key{keyOf(partBlock, i, q.kept()/m.size)})
	return err
}

// sample counts what the blocks of the cache are.
func (m *memory) sample(second int) Tiers {
	t := Tiers{Second: second}
	for i := range m.holds {
		h := &m.holds[i]
		if len(h.slots) == 0 {
			continue
		}
		think := 0
		for think < len(h.think) && int(h.think[think]) < h.full {
			think++
		}
		if t.Output += len(h.slots) - think; h.ended {
			t.Thought += think
		} else {
			t.Thinking += think
		}
	}
	st := m.core.Stats()
	for tier, n := range st.IdleBytes {
		if st.Blocks[tier] > 0 {
			t.Idle += int(n / (st.BlockBytes[tier] / uint64(st.Blocks[tier])))
		}
	}
	t.Outside = st.Remote
	return t
}
