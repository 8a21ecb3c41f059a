package blocks

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"meridian/blocks/quota"
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
	cfg   CoreConfig
	exact bool
	aside []uint64 // what rings took of the capacity
	now   time.Duration
	tick  int
	slots int // exact: of the whole capacity

	owners  [4]Owner
	wasPid  [4]bool
	changed int // owners that came
	who     map[Owner]quota.Holder
	gone    []Owner // dropped with holds

	blocks map[mKey]*mBlock   // published
	bySlot map[uint32]*mBlock // every slot that is not free
	resv   []*mGroup
	leases []*mLease
	loose  []*mLoose
	sets   []*mSet // of pins, by age
	pinned []*mPin // of all sets, by age
	copies []mKey  // of remembered copies, oldest first
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
	moved                   bool
	roomed, cancel, expired bool
	refs                    int
	use                     int
	used                    bool
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
	born  time.Duration
	hold  bool
	aged  bool
	held  []*mBlock
	bytes uint64
}

type mLoose struct {
	quiet func()
	held  []*mBlock
}

const mNamespaces = 3

// mConfig are the limits and sizes of a model. Draw 0 is tight enough that random
// streams meet each share; any other draw takes each limit from its edges and some
// values between.
func mConfig(exact bool, draw uint64) CoreConfig {
	cfg := CoreConfig{
		Capacity: 3 * 8192, ExtentBytes: 8192, ThinkFraction: 0.5, HoldBytes: 20000, RemoteBlocks: 8, Rand: seeded(3),
		Shares: Shares{
			Peer: 0.25, Peers: 0.35, Engine: 0.5, Tenant: 0.75, EngineGuaranteed: 0.7, TenantGuaranteed: 0.6,
			ReserveTime: 300 * time.Millisecond, LeaseAge: 400 * time.Millisecond,
		},
	}
	if exact {
		cfg.Capacity = 4 * 8192
	}
	if draw == 0 {
		return cfg
	}
	r := rand.New(rand.NewPCG(draw, 0))
	share := func() float64 { return []float64{0, 0.01, 0.25, 0.5, 0.75, 1}[r.IntN(6)] }
	span := func() time.Duration {
		return []time.Duration{time.Nanosecond, 50 * time.Millisecond, time.Hour}[r.IntN(3)]
	}
	// Arenas of one extent, of one that is not whole, and of segments with several.
	cfg.ExtentBytes = []uint64{4096, 8192, 65536}[r.IntN(3)]
	cfg.Capacity = cfg.ExtentBytes*[]uint64{1, 2, 3, 5, 17, 40}[r.IntN(6)] + []uint64{0, 1, cfg.ExtentBytes - 1}[r.IntN(3)]
	cfg.ThinkFraction = []float64{0.01, 0.25, 0.5, 1}[r.IntN(4)]
	cfg.HoldBytes = []uint64{0, 1, 1024, 1025, 20000, 1 << 40}[r.IntN(6)]
	cfg.RemoteBlocks = []int{1, 2, 8, 1000}[r.IntN(4)]
	cfg.Shares = Shares{
		Peer: share(), Peers: share(), Engine: share(), Tenant: share(), EngineGuaranteed: share(), TenantGuaranteed: share(),
		ReserveTime: span(), LeaseAge: span(),
	}
	return cfg
}

func newModel(exact bool, draw uint64) *model {
	cfg := mConfig(exact, draw)
	c, err := NewCore(cfg)
	if err != nil {
		panic(err)
	}
	m := &model{
		c: c, cfg: cfg, exact: exact, slots: c.geo.extents * int(c.geo.pitch/stride(1024)), blocks: map[mKey]*mBlock{}, bySlot: map[uint32]*mBlock{},
		where: map[mKey]Loc{}, words: map[[2]uint32]uint64{}, past: map[[2]uint32]map[uint64]wire.Key{}, who: map[Owner]quota.Holder{},
	}
	for i := range mNamespaces {
		if err := c.AddNamespace(mNS(i), tenantOf(m.tenant(i))); err != nil {
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
	who := [4]quota.Holder{{Kind: quota.Engine, Name: "e"}, quota.Total, {Kind: quota.Peer, Name: "p"}, {Kind: quota.Peer, Name: []string{"p", "q"}[m.changed%2]}}[i]
	m.changed++
	m.owners[i] = m.c.NewOwnerFor(who, i == 0)
	m.who[m.owners[i]] = who
}

// op is one step of a stream: a kind and three arguments.
type op [4]byte

func (o op) String() string { return fmt.Sprintf("{%d,%d,%d,%d}", o[0], o[1], o[2], o[3]) }

// opKinds are the operations by number; some are listed again to happen more often.
var opKinds = []func(*model, op) error{
	(*model).opReserve, (*model).opReserve, (*model).opReserve, (*model).opCommit, (*model).opCommit, (*model).opCommit,
	(*model).opBegin, (*model).opFinish, (*model).opAbort, (*model).opLookup, (*model).opTouch,
	(*model).opAcquire, (*model).opAcquire, (*model).opRenew, (*model).opRelease, (*model).opRetier, (*model).opRetier,
	(*model).opDiscard, (*model).opForget, (*model).opLoose, (*model).opQuiet, (*model).opMoved, (*model).opStep,
	(*model).opStep, (*model).opDrop, (*model).opGone, (*model).opVerify, (*model).opRoom, (*model).opFree, (*model).opLate,
	(*model).opAside, (*model).opPin, (*model).opPin, (*model).opPulled, (*model).opUnpin,
}

// run applies a stream and returns the first disagreement.
func (m *model) run(ops []op) error {
	for i, o := range ops {
		if err := opKinds[int(o[0])%len(opKinds)](m, o); err != nil {
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

// reuse is what a use by an engine or a peer does.
func (m *model) reuse(b *mBlock) {
	b.used = true
	m.touch(b)
}

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
		var p *mPin
		var set *mSet
		for _, s := range m.sets {
			for _, r := range s.pins {
				if r.at < at {
					g, l, p, set, at = nil, nil, r, s, r.at
				}
			}
		}
		switch {
		case p != nil:
			m.endPin(set, p, false)
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
	for t := range highest + 1 {
		var fresh, kept []*mBlock
		for _, b := range m.blocks {
			switch {
			case b.refs > 0 || b.tier != t:
			case b.used:
				kept = append(kept, b)
			default:
				fresh = append(fresh, b)
			}
		}
		for _, l := range [][]*mBlock{fresh, kept} {
			sort.Slice(l, func(i, j int) bool { return l[i].use < l[j].use })
		}
		for len(fresh)+len(kept) > 0 {
			if old := len(kept)*keptPart > len(fresh)+len(kept); len(fresh) == 0 || old && kept[0].use < fresh[0].use {
				idle, kept = append(idle, kept[0]), kept[1:]
				continue
			}
			idle, fresh = append(idle, fresh[0]), fresh[1:]
		}
	}
	return idle
}

func wantErr(what string, got error, want wire.Code) error {
	if !errors.Is(got, want) {
		return fmt.Errorf("%s: want %s, got %w", what, want.String(), got)
	}
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
	if st.Pins != len(m.pinned) || st.PinBytes != m.pinBytes(func(Owner) bool { return true }) {
		return fmt.Errorf("%d pins with %d bytes, want %d with %d", st.Pins, st.PinBytes, len(m.pinned), m.pinBytes(func(Owner) bool { return true }))
	}
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
	if st.Leases != 0 || st.Reserved != 0 || st.Transient != 0 || st.Quarantined != 0 || st.Owners != 0 || st.Orphans != 0 || st.HoldBytes != 0 || m.c.refs != 0 || len(m.c.timers.h) != 0 {
		return fmt.Errorf("something is left at the end: %+v", st)
	}
	return nil
}
