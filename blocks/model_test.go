package blocks

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"meridian/wire"
)

// model is the naive oracle of Core: maps, linear searches, no shortcuts. It
// drives a core with an op stream and compares every answer.
//
// With exact set there is one tenant and one size class, and it predicts which
// block is evicted and whether a call is FULL. Else it only demands that what
// was evicted was idle, since extents change their class by rules of their own.
type model struct {
	c     *Core
	exact bool
	now   time.Duration
	tick  int
	slots int // exact: of the whole capacity

	owners [4]Owner
	wasPid [4]bool
	gone   []Owner // dropped with holds

	blocks map[mKey]*mBlock   // published
	bySlot map[uint32]*mBlock // every slot that is not free
	resv   []*mGroup
	leases []*mLease
	loose  []*mLoose
	copies []mKey // of remembered copies, oldest first
	where  map[mKey]Loc
	words  map[[2]uint32]uint64
	past   map[[2]uint32]map[uint64]wire.Key // word under which something was published
	evict  [3]uint64
	full   uint64
}

type mKey struct {
	ns  int
	key wire.Key
}

type mBlock struct {
	id                      uint32
	gen                     uint32
	k                       mKey
	state                   state
	tier                    wire.Tier
	live                    bool
	pin                     bool
	moved                   bool
	roomed, cancel, expired bool
	refs                    int
	use                     int
	size                    uint32
	owner                   Owner
	group                   *mGroup
	trans                   bool
	write                   *Commit
}

type mGroup struct {
	owner Owner
	at    time.Duration
	slots []*mBlock
	tier  wire.Tier
	ended bool
}

type mLease struct {
	token Lease
	owner Owner
	at    time.Duration
	hold  bool
	aged  bool
	held  []*mBlock
	bytes uint64
}

type mLoose struct {
	quiet func()
	held  []*mBlock
}

const (
	mNamespaces = 3
	mHold       = 20000
	mRemote     = 8
)

func newModel(exact bool) *model {
	cfg := CoreConfig{Capacity: 3 * 8192, ExtentBytes: 8192, ThinkFraction: 0.5, HoldBytes: mHold, RemoteBlocks: mRemote, Rand: seeded(3)}
	if exact {
		cfg.Capacity = 4 * 8192
	}
	c, err := NewCore(cfg)
	if err != nil {
		panic(err)
	}
	m := &model{
		c: c, exact: exact, slots: 4 * 8, blocks: map[mKey]*mBlock{}, bySlot: map[uint32]*mBlock{},
		where: map[mKey]Loc{}, words: map[[2]uint32]uint64{}, past: map[[2]uint32]map[uint64]wire.Key{},
	}
	for i := range mNamespaces {
		tenant := tenantOf("t")
		if !exact && i == 2 {
			tenant = tenantOf("u")
		}
		if err := c.AddNamespace(mNS(i), tenant); err != nil {
			panic(err)
		}
	}
	for i := range m.owners {
		m.newOwner(i)
	}
	return m
}

func mNS(i int) wire.Namespace { return nsOf(fmt.Sprint(i)) }

func (m *model) newOwner(i int) {
	m.wasPid[i] = i == 0
	m.owners[i] = m.c.NewOwner(i == 0)
}

// op is one step of a stream: a kind and three arguments.
type op [4]byte

func (o op) String() string { return fmt.Sprintf("{%d,%d,%d,%d}", o[0], o[1], o[2], o[3]) }

var opNames = []func(*model, op) error{
	(*model).opReserve, (*model).opReserve, (*model).opReserve, (*model).opCommit, (*model).opCommit, (*model).opCommit,
	(*model).opBegin, (*model).opFinish, (*model).opAbort, (*model).opLookup, (*model).opTouch,
	(*model).opAcquire, (*model).opAcquire, (*model).opRenew, (*model).opRelease, (*model).opRetier, (*model).opPin,
	(*model).opDiscard, (*model).opForget, (*model).opLoose, (*model).opQuiet, (*model).opMoved, (*model).opStep,
	(*model).opStep, (*model).opDrop, (*model).opGone, (*model).opVerify, (*model).opRoom, (*model).opFree, (*model).opLate,
}

// run applies a stream and returns the first disagreement.
func (m *model) run(ops []op) error {
	for i, o := range ops {
		if err := opNames[int(o[0])%len(opNames)](m, o); err != nil {
			return fmt.Errorf("op %d %v: %w", i, o, err)
		}
		if err := m.settle(); err != nil {
			return fmt.Errorf("op %d %v: %w", i, o, err)
		}
		if i%16 == 0 || i == len(ops)-1 {
			if err := m.c.check(); err != nil {
				return fmt.Errorf("op %d %v: %w", i, o, err)
			}
			if err := m.compare(); err != nil {
				return fmt.Errorf("op %d %v: %w", i, o, err)
			}
		}
	}
	return m.end()
}

func (m *model) touch(b *mBlock) { m.tick++; b.use = m.tick }

func (m *model) key(o op) mKey {
	return mKey{int(o[2]) % mNamespaces, wire.Key{1, o[3] % 24}}
}

// free is what the core does with a slot nobody needs.
func (m *model) free(b *mBlock) {
	if b.refs > 0 {
		b.state = doomed
		return
	}
	b.state = free
	delete(m.bySlot, b.id)
}

func (m *model) unpublish(b *mBlock) { delete(m.blocks, b.k) }

func (m *model) unpin(b *mBlock) {
	if b.refs--; b.refs > 0 {
		return
	}
	switch b.state {
	case published:
		m.touch(b)
		if b.moved {
			m.unpublish(b)
			m.free(b)
		}
	case transient:
		m.leave(b)
		m.free(b)
	case doomed:
		m.free(b)
	}
}

func (m *model) leave(b *mBlock) {
	g := b.group
	if g == nil {
		return
	}
	b.group = nil
	for i, s := range g.slots {
		if s == b {
			g.slots = append(g.slots[:i], g.slots[i+1:]...)
			break
		}
	}
}

func (m *model) abandon(b *mBlock) {
	m.leave(b)
	if b.state == transient && b.refs > 0 {
		return
	}
	m.free(b)
}

func (m *model) abort(b *mBlock) {
	if b.state == writing {
		b.cancel = true
		m.leave(b)
		return
	}
	m.abandon(b)
}

// expire lets go what is due, earliest first.
func (m *model) expire() {
	for {
		var g *mGroup
		var l *mLease
		at := m.now + 1
		for _, r := range m.resv {
			if !r.ended && len(r.slots) > 0 && r.at < at {
				g, l, at = r, nil, r.at
			}
		}
		for _, r := range m.leases {
			if !r.aged && r.at < at {
				g, l, at = nil, r, r.at
			}
		}
		switch {
		case g != nil:
			g.ended = true
			for _, b := range slices.Clone(g.slots) {
				switch {
				case b.state == writing:
					b.expired = true
					m.leave(b)
				case b.state == reserved && b.roomed:
					b.state = late
				default:
					m.abandon(b)
				}
			}
		case l != nil && l.hold:
			l.aged = true
		case l != nil:
			m.endLease(l)
		default:
			return
		}
	}
}

func (m *model) endLease(l *mLease) {
	for i, r := range m.leases {
		if r == l {
			m.leases = append(m.leases[:i], m.leases[i+1:]...)
			break
		}
	}
	for i := len(l.held) - 1; i >= 0; i-- {
		m.unpin(l.held[i])
	}
}

// order is the idle blocks in the order of eviction, up to a tier.
func (m *model) order(highest wire.Tier) (idle []*mBlock) {
	for _, b := range m.blocks {
		if b.refs == 0 && b.tier <= highest {
			idle = append(idle, b)
		}
	}
	sort.Slice(idle, func(i, j int) bool {
		if idle[i].tier != idle[j].tier {
			return idle[i].tier < idle[j].tier
		}
		return idle[i].use < idle[j].use
	})
	return idle
}

func (m *model) sizes(n int, o op) []uint32 {
	sizes := make([]uint32, n)
	for i := range sizes {
		sizes[i] = 1000
		if !m.exact {
			sizes[i] = []uint32{0, 300, 500, 1000, 2100, 8192}[(int(o[3])+i*int(o[2]))%6]
		}
	}
	return sizes
}

func (m *model) thinkBytes() (n uint64) {
	for _, b := range m.bySlot {
		st := uint64(m.c.extent(b.id).stride)
		switch {
		case b.state == published && b.tier == wire.ThinkActive,
			b.group != nil && b.group.tier == wire.ThinkActive && b.state != transient:
			n += st
		}
	}
	return n
}

func (m *model) opReserve(o op) error {
	m.expire()
	n, tier := 1+int(o[1])%6, wire.Tier(o[2]>>4%3)
	if o[2]%4 != 0 {
		tier = wire.OutputCritical
	}
	owner, ns, sizes := m.owners[o[3]>>5%4], int(o[2])%mNamespaces, m.sizes(n, o)
	ttl := time.Duration(1+o[1])*time.Millisecond*7 + time.Duration(m.tick+1)
	m.tick++
	var need uint64
	for _, s := range sizes {
		_, room := m.c.geo.class(s)
		need += stride(room)
	}
	highest := wire.OutputCritical
	if tier != wire.OutputCritical && m.thinkBytes()+need > m.c.thinkMax {
		highest = wire.ThinkActive
	}
	var want []*mBlock // predicted evictions
	idle := m.order(highest)
	room := m.slots - len(m.bySlot)
	if n > room && n <= room+len(idle) {
		want = idle[:n-room]
	}
	var v []View
	var err error
	for {
		v, err = m.c.Reserve(m.now, owner, mNS(ns), tier, sizes, ttl, true, nil)
		var g *GrowError
		if !errors.As(err, &g) {
			break
		}
		m.c.AddSegment(g.Tenant, m.c.SegmentExtents())
	}
	if err := m.evictions(want, highest); err != nil {
		return err
	}
	if err != nil {
		m.full++
		var f *FullError
		if !errors.As(err, &f) || f.Need != need || len(v) != 0 {
			return fmt.Errorf("Reserve: %v with %d views", err, len(v))
		}
		if m.exact && n <= room+len(idle) {
			return fmt.Errorf("Reserve of %d is %v, with %d free and %d idle", n, err, room, len(idle))
		}
		return nil
	}
	if m.exact && n > room+len(idle) {
		return fmt.Errorf("Reserve of %d granted, with %d free and %d idle", n, room, len(idle))
	}
	g := &mGroup{owner: owner, at: m.now + ttl, tier: tier}
	m.resv = append(m.resv, g)
	for i := range v {
		if m.bySlot[v[i].Ref.Slot] != nil {
			return fmt.Errorf("slot %d granted twice", v[i].Ref.Slot)
		}
		if v[i].Ref.Gen%2 == 0 || v[i].Cap != sizes[i] || v[i].Off%slotAlign != 0 {
			return fmt.Errorf("bad view %+v", v[i])
		}
		b := &mBlock{id: v[i].Ref.Slot, gen: v[i].Ref.Gen, k: mKey{ns: ns}, state: reserved, tier: tier, owner: owner, group: g, size: sizes[i]}
		g.slots = append(g.slots, b)
		m.bySlot[b.id] = b
	}
	return nil
}

// evictions takes what the core evicted since the last call into the model.
func (m *model) evictions(want []*mBlock, highest wire.Tier) error {
	got := m.c.evicted
	m.c.evicted = nil
	if m.exact && len(got) != len(want) {
		return fmt.Errorf("%d evictions, want %d", len(got), len(want))
	}
	for i, e := range got {
		b := m.bySlot[e.Ref.Slot]
		if b == nil || b.state != published || b.refs != 0 || b.gen != e.Ref.Gen || b.tier != e.Tier || m.exact && b.tier > highest {
			return fmt.Errorf("evicted %+v, which is %+v", e, b)
		}
		if e.Live != (b.live && b.tier == wire.OutputCritical) {
			return fmt.Errorf("evicted %+v, live %v", e, b.live)
		}
		if m.exact && b != want[i] {
			return fmt.Errorf("evicted slot %d, want %d", b.id, want[i].id)
		}
		m.evict[b.tier]++
		m.unpublish(b)
		m.free(b)
	}
	return nil
}

// pick chooses a slot that was reserved, also one that no longer is.
func (m *model) pick(o op) *mBlock {
	var all []*mBlock
	for _, g := range m.resv {
		all = append(all, g.slots...)
	}
	if len(all) == 0 {
		return nil
	}
	return all[(int(o[1])+int(o[2])<<8)%len(all)]
}

func (m *model) commitOf(b *mBlock, o op) Commit {
	k := m.key(o)
	return Commit{
		Slot: b.id, Gen: b.gen, NS: mNS(b.k.ns), Key: k.key, Tier: wire.Tier(o[1]>>3) % 3, Len: b.size / 2,
		Live: o[1]&64 != 0, Transient: o[1]&7 == 7, Att: wire.AttestProducer,
	}
}

func (m *model) opCommit(o op) error {
	m.expire()
	b := m.pick(o)
	if b == nil || b.state != reserved && b.state != late {
		return nil
	}
	k := []Commit{m.commitOf(b, o)}
	wasLate := b.state == late
	m.c.Commit(m.now, b.owner, k)
	if wasLate {
		m.abandon(b)
		return wantErr("Commit of a late slot", k[0].Err, wire.CodeDeadline)
	}
	return m.published(b, &k[0])
}

// published takes the outcome of a finished commit into the model.
func (m *model) published(b *mBlock, k *Commit) error {
	key := mKey{b.k.ns, k.Key}
	old := m.blocks[key]
	if old == nil && k.Transient {
		old = m.private(b.owner, key)
	}
	switch {
	case b.expired || b.cancel || old != nil:
		m.leave(b)
		m.free(b)
		switch {
		case b.expired:
			return wantErr("Finish", k.Err, wire.CodeDeadline)
		case b.cancel:
			return wantErr("Finish", k.Err, wire.CodeCancelled)
		}
		if old.state == published {
			m.touch(old)
		}
		return wantErr("Finish", k.Err, wire.CodeExists)
	}
	if k.Err != nil {
		return fmt.Errorf("commit: %w", k.Err)
	}
	b.k, b.tier, b.live, b.gen = key, k.Tier, k.Live, b.gen+1
	b.moved, b.pin = false, false
	if k.Transient {
		b.state, b.trans = transient, true
		return nil
	}
	m.leave(b)
	b.state = published
	m.blocks[key] = b
	m.touch(b)
	return nil
}

func wantErr(what string, got error, want wire.Code) error {
	if !errors.Is(got, want) {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return nil
}

func (m *model) private(o Owner, k mKey) *mBlock {
	for _, b := range m.bySlot {
		if b.state == transient && b.owner == o && b.k == k {
			return b
		}
	}
	return nil
}

func (m *model) opBegin(o op) error {
	m.expire()
	b := m.pick(o)
	if b == nil {
		return nil
	}
	k := m.commitOf(b, o)
	err := m.c.Begin(m.now, b.owner, &k)
	switch b.state {
	case reserved:
		b.state, b.write = writing, &k
		return err
	case late:
		m.abandon(b)
		return wantErr("Begin", err, wire.CodeDeadline)
	}
	return wantErr("Begin", err, wire.CodeStale)
}

func (m *model) opFinish(o op) error {
	m.expire()
	var open []*mBlock
	for _, b := range m.bySlot {
		if b.state == writing {
			open = append(open, b)
		}
	}
	if len(open) == 0 {
		return nil
	}
	sort.Slice(open, func(i, j int) bool { return open[i].id < open[j].id })
	b := open[int(o[1])%len(open)]
	k := b.write
	var failed error
	if o[2]%8 == 0 {
		failed = wire.CodeChecksum
	}
	m.c.Finish(m.now, k, wire.Header{BodyLen: k.Len, Tier: k.Tier}, failed)
	if failed != nil && !b.expired && !b.cancel {
		m.leave(b)
		m.free(b)
		return wantErr("Finish", k.Err, wire.CodeChecksum)
	}
	return m.published(b, k)
}

func (m *model) opAbort(o op) error {
	ids := []uint32{uint32(o[3]), 1 << 30}
	b := m.pick(o)
	if b != nil {
		ids = append(ids, b.id, b.id)
	}
	owner := m.owners[o[2]%4]
	m.c.Abort(owner, ids)
	for _, id := range ids {
		if b := m.bySlot[id]; b != nil && b.owner == owner && b.group != nil {
			m.abort(b)
		}
	}
	return nil
}

func (m *model) opRoom(o op) error {
	b := m.pick(o)
	if b == nil {
		return nil
	}
	ok := m.c.Room(View{Ref: wire.Ref{Slot: b.id, Gen: b.gen}})
	if ok != (b.state == reserved) {
		return fmt.Errorf("Room of state %d: %v", b.state, ok)
	}
	b.roomed = b.roomed || ok
	return nil
}

// opLate acts on a slot by a reference that is no longer right.
func (m *model) opLate(o op) error {
	b := m.pick(o)
	if b == nil || b.gen < 2 {
		return nil
	}
	k := m.commitOf(b, o)
	k.Gen -= 2
	if err := m.c.Begin(m.now, b.owner, &k); !errors.Is(err, wire.CodeStale) {
		return fmt.Errorf("Begin of an older reservation: %v", err)
	}
	m.expire()
	return nil
}

func (m *model) opLookup(o op) error {
	keys := make([]wire.Key, 1+o[1]%12)
	for i := range keys {
		keys[i] = wire.Key{1, (o[3] + byte(i)*(1+o[1]>>6)) % 24}
	}
	ns := int(o[2]) % mNamespaces
	v := make([]View, len(keys))
	hits, lead := 0, true
	got := m.c.Lookup(mNS(ns), keys, v)
	for i, k := range keys {
		key := mKey{ns, k}
		b := m.blocks[key]
		if lead = lead && b != nil; lead {
			hits++
		}
		if err := m.sameView(&v[i], b, key); err != nil {
			return err
		}
	}
	if got != hits {
		return fmt.Errorf("Lookup: %d hits, want %d", got, hits)
	}
	return nil
}

func (m *model) sameView(v *View, b *mBlock, k mKey) error {
	if v.Where != m.where[k] {
		return fmt.Errorf("%v: copy at %v, want %v", k, v.Where, m.where[k])
	}
	if b == nil {
		if v.Seg != 0 || v.Ref != (wire.Ref{}) {
			return fmt.Errorf("%v: bytes where none are: %+v", k, v)
		}
		return wantErr("look-up", v.Err, wire.CodeAbsent)
	}
	if v.Err != nil || v.Ref.Slot != b.id || v.Ref.Gen != b.gen || v.Tier != b.tier || v.Refs != b.refs ||
		v.Key != b.k.key || v.NS != mNS(b.k.ns) || v.Head.BodyLen != b.size/2 || v.Cap < b.size {
		return fmt.Errorf("view %+v of %+v", v, b)
	}
	return nil
}

func (m *model) opTouch(o op) error {
	k := m.key(o)
	keys := []wire.Key{k.key, {1, (k.key[1] + 1) % 24}}
	hits := 0
	for _, key := range keys {
		b := m.blocks[mKey{k.ns, key}]
		if b == nil {
			break
		}
		m.touch(b)
		hits++
	}
	if got := m.c.Touch(mNS(k.ns), keys); got != hits {
		return fmt.Errorf("Touch: %d, want %d", got, hits)
	}
	return nil
}

func (m *model) opAcquire(o op) error {
	m.expire()
	oi := int(o[1]) % 4
	owner, k, hold := m.owners[oi], m.key(o), o[1]&32 != 0
	keys := []wire.Key{k.key, {1, (k.key[1] + 1) % 24}}
	v := make([]View, len(keys))
	want := make([]*mBlock, len(keys))
	var size, heldBytes uint64
	aged := 0
	for i, key := range keys {
		v[i] = View{NS: mNS(k.ns), Key: key}
		want[i] = m.blocks[mKey{k.ns, key}]
		if want[i] == nil {
			want[i] = m.private(owner, mKey{k.ns, key})
		}
		if want[i] != nil {
			size += uint64(m.c.extent(want[i].id).stride)
			if o[1]&64 != 0 {
				v[i].Ref = wire.Ref{Slot: want[i].id, Gen: want[i].gen}
			}
		}
	}
	for _, l := range m.leases {
		if l.owner == owner && l.hold {
			heldBytes += l.bytes
			if l.aged {
				aged++
			}
		}
	}
	ttl := time.Duration(1+o[3])*5*time.Millisecond + time.Duration(m.tick+1)*time.Nanosecond
	m.tick++
	l, err := m.c.Acquire(m.now, owner, v, ttl, hold)
	if hold && (aged > 0 || heldBytes+size > mHold) {
		return wantErr("Acquire", err, wire.CodeBusy)
	}
	if err != nil {
		return err
	}
	r := &mLease{token: l, owner: owner, at: m.now + ttl, hold: hold, bytes: size}
	for i, b := range want {
		if b == nil {
			if err := wantErr("Acquire", v[i].Err, wire.CodeAbsent); err != nil {
				return err
			}
			continue
		}
		b.refs++
		r.held = append(r.held, b)
		refs := b.refs
		if v[i].Refs != refs || v[i].Err != nil || v[i].Ref.Slot != b.id {
			return fmt.Errorf("Acquire: view %+v of %+v", v[i], b)
		}
	}
	if (len(r.held) == 0) != (l == Lease{}) {
		return fmt.Errorf("Acquire: lease %x with %d blocks", l, len(r.held))
	}
	if len(r.held) > 0 {
		m.leases = append(m.leases, r)
	}
	return nil
}

func (m *model) lease(o op) *mLease {
	if len(m.leases) == 0 {
		return nil
	}
	return m.leases[(int(o[1])+int(o[2])<<8)%len(m.leases)]
}

func (m *model) opRenew(o op) error {
	m.expire()
	l := m.lease(o)
	if l == nil {
		return nil
	}
	owner := m.owners[o[3]%4]
	ttl := time.Duration(1+o[3])*3*time.Millisecond + time.Duration(m.tick+1)*time.Nanosecond
	m.tick++
	err := m.c.Renew(m.now, owner, l.token, ttl)
	if l.owner != owner {
		return wantErr("Renew of another's lease", err, wire.CodeLeaseLost)
	}
	l.at, l.aged = m.now+ttl, false
	return err
}

func (m *model) opRelease(o op) error {
	l := m.lease(o)
	if l == nil {
		return nil
	}
	owner := m.owners[o[3]%4]
	m.c.Release(owner, l.token)
	if l.owner == owner {
		m.endLease(l)
		m.c.Release(owner, l.token)
	}
	return nil
}

func (m *model) opRetier(o op) error {
	k, t := m.key(o), wire.Tier(o[1]%3)
	m.c.Retier(mNS(k.ns), []wire.Key{k.key}, t)
	if b := m.blocks[k]; b != nil && !b.pin {
		if t == wire.ThinkComplete {
			b.live = false
		}
		if t < b.tier {
			b.tier = t
			m.touch(b)
		}
	}
	return nil
}

func (m *model) opPin(o op) error {
	k := m.key(o)
	b := m.blocks[k]
	if o[1]%2 == 0 {
		m.c.Unpin(mNS(k.ns), []wire.Key{k.key})
		if b != nil {
			b.pin = false
		}
		return nil
	}
	m.c.Pin(mNS(k.ns), []wire.Key{k.key})
	if b != nil {
		b.pin = true
		if b.tier != wire.OutputCritical {
			b.tier = wire.OutputCritical
			m.touch(b)
		}
	}
	return nil
}

func (m *model) forget(k mKey) {
	if _, ok := m.where[k]; !ok {
		return
	}
	delete(m.where, k)
	for i, c := range m.copies {
		if c == k {
			m.copies = append(m.copies[:i], m.copies[i+1:]...)
			break
		}
	}
	if b := m.blocks[k]; b != nil {
		b.moved = false
	}
}

func (m *model) opDiscard(o op) error {
	k := m.key(o)
	if o[1]%4 != 0 { // rarely, or the store stays empty
		return nil
	}
	m.c.Discard(mNS(k.ns), []wire.Key{k.key})
	m.forget(k)
	if b := m.blocks[k]; b != nil {
		m.unpublish(b)
		m.free(b)
	}
	return nil
}

func (m *model) opForget(o op) error {
	k := m.key(o)
	m.c.Forget(mNS(k.ns), []wire.Key{k.key})
	m.forget(k)
	return nil
}

func (m *model) opLoose(o op) error {
	b := m.pick(o)
	if o[3]%2 == 0 {
		b = m.blocks[m.key(o)]
	}
	if b == nil || len(m.loose) > 8 {
		return nil
	}
	m.loose = append(m.loose, &mLoose{quiet: m.c.Loose([]uint32{b.id, 1 << 30}), held: []*mBlock{b}})
	b.refs++
	return nil
}

func (m *model) opQuiet(o op) error {
	if len(m.loose) == 0 {
		return nil
	}
	i := int(o[1]) % len(m.loose)
	l := m.loose[i]
	m.loose = append(m.loose[:i], m.loose[i+1:]...)
	l.quiet()
	l.quiet()
	for _, b := range l.held {
		m.unpin(b)
		if b.refs > 0 {
			continue
		}
		b.roomed = false
		if b.state == late {
			m.abandon(b)
		}
	}
	return nil
}

func (m *model) opMoved(o op) error {
	m.expire()
	k := m.key(o)
	b := m.blocks[k]
	if b == nil || o[1]%2 == 0 {
		return nil
	}
	in := Moved{Slot: b.id, Gen: b.gen, Loc: Loc{Fabric: fmt.Sprint("f", o[1]%3), H: [32]byte{o[1], 1}}}
	if o[1]%16 == 1 {
		in.Err = wire.CodeUnreachable
	}
	var r Ready
	m.c.Step(m.now, Input{Moved: []Moved{in, {Slot: b.id, Gen: b.gen + 2, Loc: in.Loc}}}, &r)
	if in.Err != nil {
		return nil
	}
	if _, ok := m.where[k]; ok {
		for i, c := range m.copies {
			if c == k {
				m.copies = append(m.copies[:i], m.copies[i+1:]...)
				break
			}
		}
	} else if len(m.copies) >= mRemote {
		m.forget(m.copies[0])
	}
	m.copies, m.where[k] = append(m.copies, k), in.Loc
	if b.moved = true; b.refs == 0 {
		m.unpublish(b)
		m.free(b)
	}
	return nil
}

func (m *model) opStep(o op) error {
	m.now += time.Duration(o[1]) * time.Millisecond
	m.expire()
	var r Ready
	m.c.Step(m.now, Input{}, &r)
	for _, v := range r.PullBack {
		if v.Where == (Loc{}) {
			return fmt.Errorf("pull back of nothing: %+v", v)
		}
	}
	return nil
}

func (m *model) opFree(o op) error {
	m.expire()
	n := uint64(o[1]) * 16
	var want []*mBlock
	free := m.c.freeBytes()
	for _, b := range m.order(wire.OutputCritical) {
		if free >= n {
			break
		}
		want = append(want, b)
		free = m.c.cfg.Capacity - min(m.c.cfg.Capacity, m.c.usedBytes()-uint64(len(want))*stride(1000+24))
	}
	c := m.c
	m.c.freeUp(n)
	if !m.exact {
		want = nil
	}
	_ = c
	return m.evictions(want, wire.OutputCritical)
}

func (m *model) opDrop(o op) error {
	i := int(o[1]) % 4
	if o[2]%4 != 0 {
		return nil
	}
	owner := m.owners[i]
	holds := m.c.Drop(owner)
	m.c.Drop(owner)
	for _, g := range m.resv {
		if g.owner != owner {
			continue
		}
		for _, b := range slices.Clone(g.slots) {
			m.abort(b)
		}
	}
	left := false
	for _, l := range m.newestFirst() {
		if l.owner != owner {
			continue
		}
		if m.wasPid[i] && l.hold {
			left = true
			continue
		}
		m.endLease(l)
	}
	if left != holds {
		return fmt.Errorf("Drop: holds %v, want %v", holds, left)
	}
	if holds {
		m.gone = append(m.gone, owner)
	}
	m.newOwner(i)
	return nil
}

func (m *model) newestFirst() []*mLease {
	l := slices.Clone(m.leases)
	slices.Reverse(l)
	return l
}

func (m *model) opGone(o op) error {
	if len(m.gone) == 0 || o[1]%2 == 0 {
		return nil
	}
	owner := m.gone[0]
	m.gone = m.gone[1:]
	m.c.Gone(owner)
	m.c.Gone(owner)
	for _, l := range m.newestFirst() {
		if l.owner == owner {
			m.endLease(l)
		}
	}
	return nil
}

func (m *model) opVerify(o op) error {
	k, bad := m.key(o), o[1]%8 == 0
	v := View{NS: mNS(k.ns), Key: k.key}
	b := m.blocks[k]
	o2 := m.c.NewOwner(false)
	err := m.c.Hold(o2, &v)
	m.c.Drop(o2)
	if b == nil {
		return wantErr("Hold", err, wire.CodeAbsent)
	}
	if err != nil {
		return err
	}
	b.refs++
	m.c.Unhold(v.Ref.Slot, bad)
	if bad {
		m.unpublish(b)
		b.state = doomed
	}
	m.unpin(b)
	return nil
}

// settle applies generation words: a word under which something was published
// never returns for anything else, and is stored before the core lets go.
func (m *model) settle() error {
	for _, g := range m.c.Gens() {
		m.words[[2]uint32{g.Seg, g.Off}] = g.Word
	}
	for _, seg := range m.c.Returned() {
		for at := range m.words {
			if at[0] == seg {
				delete(m.words, at)
			}
		}
	}
	live := m.resv[:0]
	for _, g := range m.resv {
		if len(g.slots) > 0 {
			live = append(live, g)
		}
	}
	m.resv = live
	return nil
}

// compare looks at every slot that is in use.
func (m *model) compare() error {
	for id, b := range m.bySlot {
		s := m.c.known(id)
		if s == nil || s.state != b.state || int(s.refs) != b.refs {
			return fmt.Errorf("slot %d is %+v, want %+v", id, s, b)
		}
		e := m.c.extent(id)
		at := [2]uint32{e.seg, e.genBase + (id&m.c.slotMask)*8}
		if m.words[at] != uint64(s.gen) {
			return fmt.Errorf("slot %d: word %d, generation %d", id, m.words[at], s.gen)
		}
		if b.state != published && b.state != transient {
			continue
		}
		if m.past[at] == nil {
			m.past[at] = map[uint64]wire.Key{}
		}
		if k, ok := m.past[at][m.words[at]]; ok && k != b.k.key {
			return fmt.Errorf("slot %d: word %d was published for two keys", id, m.words[at])
		}
		m.past[at][m.words[at]] = b.k.key
	}
	used := 0
	for st := reserved; st < states; st++ {
		used += m.c.count[st]
	}
	if used != len(m.bySlot) {
		return fmt.Errorf("%d slots in use, want %d", used, len(m.bySlot))
	}
	st := m.c.Stats()
	if st.Evictions != m.evict || st.Remote != len(m.copies) || st.Leases != len(m.leases) || st.Full != m.full || st.Leaked != 0 {
		return fmt.Errorf("stats %+v: want evictions %v, %d copies, %d leases, %d full", st, m.evict, len(m.copies), len(m.leases), m.full)
	}
	return nil
}

// end drops everything: all counts return to zero (I3).
func (m *model) end() error {
	for _, b := range m.bySlot {
		if b.state == writing {
			m.c.Finish(m.now, b.write, wire.Header{}, wire.CodeCancelled)
		}
	}
	for _, l := range m.loose {
		l.quiet()
	}
	for i := range m.owners {
		if m.c.Drop(m.owners[i]) {
			m.c.Gone(m.owners[i])
		}
	}
	for _, o := range m.gone {
		m.c.Gone(o)
	}
	if err := m.c.check(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	st := m.c.Stats()
	if st.Leases != 0 || st.Reserved != 0 || st.Transient != 0 || st.Quarantined != 0 || st.Owners != 0 || st.Orphans != 0 || st.HoldBytes != 0 || m.c.pins != 0 || len(m.c.timers.h) != 0 {
		return fmt.Errorf("something is left at the end: %+v", st)
	}
	return nil
}
