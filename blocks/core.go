package blocks

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"time"
	"unsafe"

	"meridian/blocks/quota"
	"meridian/wire"
)

// Limits of the core. All but MaxNamespaces can only be met by defects or attacks.
const (
	MaxNamespaces = 1024    // open at a time
	MaxOwners     = 1 << 20 // sessions that hold something
	MaxLeases     = 1 << 16 // live leases an owner
	MaxLeased     = 1 << 22 // references of all leases of an owner, of 4 B each
	MaxEvents     = 4096    // entries of each list of Ready between two Steps
	maxFabrics    = 256     // distinct labels of remote locations
)

// CoreConfig is what a Core needs; see Config for defaults and meaning.
type CoreConfig struct {
	Capacity, ExtentBytes uint64
	ThinkFraction         float64
	Agent                 [16]byte
	Incarnation           uint64
	HoldBytes             uint64
	RemoteBlocks          int
	Ahead                 uint64 // of the capacity, kept for SetAside from the start
	Shares                Shares
	Rand                  io.Reader // mints leases and the index's secret; must not fail

	// Advise is told of each large table before its first use: n bytes at p.
	// The Store asks for huge pages there. nil: nobody needs to know.
	Advise func(p unsafe.Pointer, n uintptr)
}

// GenWrite is a generation word that the driver must store, atomically and in
// order, before it lets anybody act on the call that produced it.
type GenWrite struct {
	Seg, Off uint32
	Word     uint64
}

// noNS is the namespace of a slot that is free.
const noNS = ^uint16(0)

type namespace struct {
	id     wire.Namespace
	tenant uint16
	uses   int // slots and remembered copies of it
}

type tenant struct {
	id  [32]byte
	who quota.Holder
	together
	spaces int // namespaces that are open
	uncut  extentList
	pools  [maxClasses]int32 // by class: pool number + 1
	used   []int32           // the pools that exist
}

// Core is the bookkeeping of all slots: pure, deterministic, single-threaded.
// Time is an argument; effects on memory are lists that the driver takes.
type Core struct {
	cfg      CoreConfig
	geo      geometry
	slotMask uint32
	thinkMax uint64 // bytes of ThinkActive blocks beyond which they take no output block's place

	index    index
	nsOf     map[wire.Namespace]uint16
	ns       []namespace
	nsFree   []uint16
	tenantOf map[[32]byte]uint16
	tenants  []tenant
	segs     []segment
	ext      []extent
	pools    []pool
	extents  int    // that have memory
	places   int    // of segs that are vacant
	lastSeg  uint32 // number given last
	aside    uint64 // of the capacity, for memory that is not the arena's
	slots    int    // cut
	tick     uint64

	remotes remotes
	owners  owners
	clients clients
	shares  accounts
	leases  leases
	pins    pins // hand-off pins
	follows follows
	groups  groups
	timers  timers
	freed   freed
	random  [16 * 16]byte // leases minted ahead, 16 at a time
	randPos int

	count     [states]int
	bytes     [states]uint64
	refs      int // of all slots
	otherPins int // those of Loose and Verify
	leasePins int // those of leases, and of pins
	tierCount [3]int
	tierBytes [3]uint64
	idleBytes [3]uint64
	thinkHeld uint64 // bytes reserved for ThinkActive blocks
	n         counters
	gens      []GenWrite
	returned  []uint32
	evicted   []Evict
	lapsed    []Lease
	aged      []Lease
	scratch   []uint32
	lastPool  int32 // of poolLike
	watched   bool  // what is published is listed in news
	news      []Published
	sink      uint64 // keeps loads that only warm the cache from being removed
}

// NewCore returns an empty core. It fails if the capacity cannot be cut.
func NewCore(cfg CoreConfig) (*Core, error) {
	g, err := newGeometry(cfg.Capacity, cfg.ExtentBytes)
	if err != nil {
		return nil, err
	}
	if cfg.ThinkFraction <= 0 || cfg.ThinkFraction > 1 || math.IsNaN(cfg.ThinkFraction) {
		return nil, fmt.Errorf("think fraction %v is not in (0, 1]: %w", cfg.ThinkFraction, wire.CodeConfig)
	}
	segs := (g.extents + g.segExtents - 1) / g.segExtents
	c := &Core{
		cfg: cfg, geo: g, slotMask: 1<<g.slotBits - 1,
		thinkMax: uint64(cfg.ThinkFraction * float64(cfg.Capacity)),
		nsOf:     map[wire.Namespace]uint16{}, tenantOf: map[[32]byte]uint16{},
		segs: make([]segment, segs), places: segs, ext: make([]extent, segs*g.segExtents),
		remotes: newRemotes(cfg.RemoteBlocks), owners: newOwners(), clients: clients{of: map[string]uint32{}}, leases: newLeases(), pins: newPins(), groups: groups{free: none},
		shares: newAccounts(cfg.Shares, cfg.Capacity),
	}
	c.randPos = len(c.random)
	var seed [32]byte
	if _, err := io.ReadFull(cfg.Rand, seed[:]); err != nil {
		return nil, fmt.Errorf("random source: %w", err)
	}
	c.index = newIndex([4]uint64{
		binary.LittleEndian.Uint64(seed[0:]), binary.LittleEndian.Uint64(seed[8:]),
		binary.LittleEndian.Uint64(seed[16:]), binary.LittleEndian.Uint64(seed[24:]),
	}, c.advise)
	for i := range c.ext {
		c.ext[i].pool = -1
	}
	return c, nil
}

func (c *Core) advise(p unsafe.Pointer, n uintptr) {
	if c.cfg.Advise != nil {
		c.cfg.Advise(p, n)
	}
}

// AddNamespace opens a namespace for a tenant. It may be repeated; a namespace
// cannot change its tenant (INVALID), and there are at most MaxNamespaces, and as
// many tenants (TOO_MANY).
func (c *Core) AddNamespace(ns wire.Namespace, tenantID [32]byte) error {
	if i, ok := c.nsOf[ns]; ok {
		if c.tenants[c.ns[i].tenant].id != tenantID {
			return &ArgError{What: "tenant: the namespace belongs to another"}
		}
		return nil
	}
	if len(c.nsOf) >= MaxNamespaces {
		return &LimitError{Code: wire.CodeTooMany, What: "namespaces", Got: uint64(len(c.nsOf)) + 1, Limit: MaxNamespaces}
	}
	t, ok := c.tenantOf[tenantID]
	if !ok {
		if len(c.tenants) >= MaxNamespaces {
			return &LimitError{Code: wire.CodeTooMany, What: "tenants", Got: uint64(len(c.tenants)) + 1, Limit: MaxNamespaces}
		}
		t = uint16(len(c.tenants))
		c.tenants = append(c.tenants, tenant{id: tenantID, who: quota.Holder{Kind: quota.Tenant, Name: hex.EncodeToString(tenantID[:8])}, uncut: extentList{none, none}})
		c.tenantOf[tenantID] = t
	}
	i := uint16(len(c.ns))
	if n := len(c.nsFree); n > 0 {
		i, c.nsFree = c.nsFree[n-1], c.nsFree[:n-1]
	} else {
		c.ns = append(c.ns, namespace{})
	}
	c.nsOf[ns], c.ns[i] = i, namespace{id: ns, tenant: t}
	if c.tenants[t].spaces++; c.tenants[t].spaces == 1 {
		c.shares.tenants++
	}
	return nil
}

// RemoveNamespace forgets a namespace of which nothing is here: no block, no
// reservation, no copy outside that is remembered. It reports whether the
// namespace is gone, or never was.
func (c *Core) RemoveNamespace(ns wire.Namespace) bool {
	i, ok := c.nsOf[ns]
	if !ok {
		return true
	}
	if c.ns[i].uses > 0 {
		return false
	}
	delete(c.nsOf, ns)
	t := &c.tenants[c.ns[i].tenant]
	if t.spaces--; t.spaces == 0 {
		c.shares.tenants--
	}
	c.ns[i] = namespace{}
	c.nsFree = append(c.nsFree, i)
	return true
}

// setNS says whose block a slot is for from now on.
func (c *Core) setNS(s *slot, ns uint16) {
	if s.ns != noNS {
		c.ns[s.ns].uses--
	}
	if s.ns = ns; ns != noNS {
		c.ns[ns].uses++
	}
}

// Gens returns the generation words to store since the last call. The slice is
// valid until the next call of the core.
func (c *Core) Gens() []GenWrite {
	g := c.gens
	c.gens = c.gens[:0]
	return g
}

// Returned returns the segments that no block lies in any more since the last
// call. The driver unmaps them; the core never names them again.
func (c *Core) Returned() []uint32 {
	r := c.returned
	c.returned = nil
	return r
}

// freeBytes is what the capacity leaves beside slots in use and what is set aside.
func (c *Core) freeBytes() uint64 {
	return c.cfg.Capacity - min(c.usedBytes()+c.kept(), c.cfg.Capacity)
}

func (c *Core) usedBytes() (n uint64) {
	for st := reserved; st < states; st++ {
		n += c.bytes[st]
	}
	return n
}

// mint returns a lease id that nobody can guess.
func (c *Core) mint() (l Lease) {
	if c.randPos == len(c.random) {
		if _, err := io.ReadFull(c.cfg.Rand, c.random[:]); err != nil {
			panic("blocks: random source failed: " + err.Error()) // a guessable lease is worse than none
		}
		c.randPos = 0
	}
	copy(l[:], c.random[c.randPos:])
	clear(c.random[c.randPos : c.randPos+len(l)])
	c.randPos += len(l)
	return l
}

// place implements placer.
func (c *Core) place(ref uint32, at int32) {
	switch {
	case ref&groupBit != 0:
		c.groups.all[ref&^groupBit].heap = at
	case ref&pinBit != 0:
		c.pins.all[ref&^pinBit].heap = at
	default:
		c.leases.all[ref].heap = at
	}
}

// expire lets everything go whose time has passed. Every call that grants or
// looks at time begins with it.
func (c *Core) expire(now time.Duration) {
	for len(c.timers.h) > 0 && c.timers.h[0].at <= now {
		switch ref := c.timers.h[0].ref; {
		case ref&groupBit != 0:
			c.expireGroup(ref &^ groupBit)
		case ref&pinBit != 0:
			c.endPin(ref&^pinBit, PinLapsed)
		default:
			c.expireLease(ref)
		}
	}
}
