package blocks

import (
	"math"
	"time"

	"meridian/blocks/quota"
)

// Shares bound what holders may have of the arena, in reservations and leases
// together, in slots with the room of their size class. A fraction is of the
// capacity.
//
// Peer, Engine, Tenant and UserEnded are limits of a holder; 0, and 1 or more, is none. Peers
// is that of all peers together. For one holder a block counts once for each lease
// on it; for a tenant, and for all peers together, once.
//
// EngineGuaranteed is divided equally among the engines that are connected, and
// TenantGuaranteed among the tenants that have a namespace. What one of them does
// not use of its part is left free by the others, and by peers. So a single engine,
// or tenant, may have everything; of several, none starves the rest. Where engines
// connect, or tenants come, after another took more than its part, less is left than
// what is guaranteed: those that are below their parts share it. The daemon's own
// owners, whose reservations become an engine's blocks, leave an engine's part to no
// one.
type Shares struct {
	Peer, Peers, Engine, Tenant        float64
	UserEnded                          float64 // what processes of one user may hold of which the sessions have ended; beyond it the user's engines get no more hold leases
	EngineGuaranteed, TenantGuaranteed float64
	EngineStaging, TenantStaging       float64       // of Config.StagingBytes: what one process's rings, and one tenant's, may have
	ReserveTime                        time.Duration // a peer's reservation ends after it; 0: when it asked for
	LeaseAge                           time.Duration // a peer's lease ends at this age, whatever renews it; 0: never
}

// account is what one holder has, over all its owners.
type account struct {
	who    quota.Holder
	used   uint64
	owners int
}

// together is what several holders have, a slot once however many they are.
type together struct {
	held   uint64 // bytes reserved, being written or late
	pinned uint64 // bytes of slots that somebody references
	asked  uint64 // of the Acquire call that is being looked at
}

func (t *together) has() uint64 { return t.held + t.pinned + t.asked }

type accounts struct {
	all      []account
	free     []uint32
	of       map[quota.Holder]uint32
	limit    map[quota.Kind]uint64
	refused  map[quota.Rule]uint64
	peers    together
	everyone together
	engines  int // that have an account
	tenants  int // that have a namespace
}

func newAccounts(s Shares, capacity uint64) accounts {
	return accounts{of: map[quota.Holder]uint32{}, refused: map[quota.Rule]uint64{}, limit: limitsOf(s, capacity)}
}

// limitsOf are the bytes that one holder of each kind may have.
func limitsOf(s Shares, capacity uint64) map[quota.Kind]uint64 {
	bound := func(fraction float64) uint64 {
		if !(fraction > 0) || fraction >= 1 {
			return math.MaxUint64
		}
		return quota.Share(capacity, fraction)
	}
	return map[quota.Kind]uint64{
		quota.Peer: bound(s.Peer), quota.Peers: bound(s.Peers), quota.Engine: bound(s.Engine), quota.Tenant: bound(s.Tenant), quota.Source: bound(s.UserEnded),
	}
}

// SetShares changes what holders may have. One that has more keeps it, and gets no
// more until it has less; leases keep their time until they are renewed.
func (c *Core) SetShares(s Shares) {
	c.cfg.Shares, c.shares.limit = s, limitsOf(s, c.cfg.Capacity)
}

// openAccount returns a holder's account for one more owner; none for the daemon.
func (c *Core) openAccount(who quota.Holder) uint32 {
	if who.Kind == quota.All {
		return none
	}
	x := &c.shares
	a, ok := x.of[who]
	if !ok {
		if n := len(x.free); n > 0 {
			a, x.free = x.free[n-1], x.free[:n-1]
		} else {
			a, x.all = uint32(len(x.all)), append(x.all, account{})
		}
		x.all[a] = account{who: who}
		x.of[who] = a
		if who.Kind == quota.Engine {
			x.engines++
		}
	}
	x.all[a].owners++
	return a
}

// closeAccount ends an owner's use of its account. What owners had is given back
// before they end.
func (c *Core) closeAccount(a uint32) {
	if a == none {
		return
	}
	x := &c.shares
	if x.all[a].owners--; x.all[a].owners == 0 {
		if x.all[a].who.Kind == quota.Engine {
			x.engines--
		}
		delete(x.of, x.all[a].who)
		x.all[a] = account{}
		x.free = append(x.free, a)
	}
}

func (c *Core) isPeer(a uint32) bool { return a != none && c.shares.all[a].who.Kind == quota.Peer }

// worksForPeer reports whether a live owner works for a peer.
func (c *Core) worksForPeer(o Owner) bool {
	_, w := c.owner(o)
	return w != nil && c.isPeer(w.acct)
}

// charge adds n bytes to an account; -n, which wraps, takes them off.
func (c *Core) charge(a uint32, n uint64) {
	if a != none {
		c.shares.all[a].used += n
	}
}

// chargeSlot counts a slot of a reservation (by 1), or no longer (by -1).
func (c *Core) chargeSlot(id uint32, s *slot, by int) {
	n := uint64(c.extent(id).stride)
	if by < 0 {
		n = -n
	}
	g := &c.groups.all[s.group]
	if g.think {
		c.thinkHeld += n
	}
	c.charge(g.acct, n)
	c.tenants[c.ns[s.ns].tenant].held += n
	c.shares.everyone.held += n
	if c.isPeer(g.acct) {
		c.shares.peers.held += n
	}
}

// pinFor is pin for a lease of an account.
func (c *Core) pinFor(a, id uint32) {
	c.holdFor(a, id)
	if a != none { // what the daemon itself reads, to copy it elsewhere, is no use
		c.slot(id).flags |= flagUsed
	}
}

// holdFor is pinFor for who does not use the block.
func (c *Core) holdFor(a, id uint32) {
	c.pin(id)
	c.leasePins++
	if !c.isPeer(a) {
		return
	}
	e := c.extent(id)
	if e.peers == nil {
		e.peers = make([]uint32, len(e.slots))
	}
	n := &e.peers[id&c.slotMask]
	if *n == 0 {
		c.shares.peers.pinned += uint64(e.stride)
	}
	*n++
}

func (c *Core) leasedByPeer(id uint32) bool {
	e := c.extent(id)
	return e.peers != nil && e.peers[id&c.slotMask] > 0
}

// unpinFor undoes pinFor and holdFor.
func (c *Core) unpinFor(a, id uint32) {
	if c.isPeer(a) {
		e := c.extent(id)
		n := &e.peers[id&c.slotMask]
		if *n--; *n == 0 {
			c.shares.peers.pinned -= uint64(e.stride)
		}
	}
	c.leasePins--
	c.unpin(id)
}

// mayReserve refuses what would take the owner's holder, all peers or the tenant
// above its share, or would take what is guaranteed to others.
func (c *Core) mayReserve(a uint32, ti uint16, need uint64) error {
	if err := c.mayHold(a, 0, need); err != nil {
		return err
	}
	if c.isPeer(a) {
		if err := c.within(quota.AllPeers, c.shares.peers.has(), need); err != nil {
			return err
		}
	}
	return c.mayTake(a, ti, 0, need)
}

// mayLease is mayReserve for a block that an Acquire call wants on top of the
// asked bytes that it has so far.
func (c *Core) mayLease(a, id uint32, asked uint64) error {
	x, s, n := &c.shares, c.slot(id), uint64(c.extent(id).stride)
	if err := c.mayHold(a, asked, n); err != nil {
		return err
	}
	toPeers := c.isPeer(a) && !c.leasedByPeer(id)
	if toPeers {
		if err := c.within(quota.AllPeers, x.peers.has(), n); err != nil {
			return err
		}
	}
	if s.refs == 0 { // else it is out of reach already
		ti := c.ns[s.ns].tenant
		if err := c.mayTake(a, ti, asked, n); err != nil {
			return err
		}
		c.tenants[ti].asked += n
		x.everyone.asked += n
	}
	if toPeers {
		x.peers.asked += n
	}
	return nil
}

// forgetAsked ends what mayLease remembered of an Acquire call.
func (c *Core) forgetAsked(ids []uint32) {
	for _, id := range ids {
		if id != none {
			c.tenants[c.ns[c.slot(id).ns].tenant].asked = 0
		}
	}
	c.shares.everyone.asked, c.shares.peers.asked = 0, 0
}

func (c *Core) mayHold(a uint32, asked, need uint64) error {
	if a == none {
		return nil
	}
	x := &c.shares.all[a]
	return c.within(x.who, x.used+asked, need)
}

func (c *Core) within(who quota.Holder, used, need uint64) error {
	limit, ok := c.shares.limit[who.Kind]
	if !ok || used <= limit && need <= limit-used {
		return nil
	}
	return c.beyond(quota.Rule{Resource: quota.ArenaBytes, Kind: who.Kind}, who, used, need, limit)
}

func (c *Core) beyond(r quota.Rule, who quota.Holder, used, need, limit uint64) error {
	c.shares.refused[r]++
	return &quota.Error{Rule: r, Holder: who, InUse: used, Want: need, Limit: limit}
}

// mayTake looks at bytes of a tenant that nobody holds or references yet.
func (c *Core) mayTake(a uint32, ti uint16, asked, need uint64) error {
	x, t := &c.shares, &c.tenants[ti]
	if err := c.within(t.who, t.has(), need); err != nil {
		return err
	}
	if err := c.leaves(t.who, t.has(), need, c.cfg.Shares.TenantGuaranteed, func() uint64 { return c.unusedByTenants(ti) }); err != nil {
		return err
	}
	if a == none {
		return nil
	}
	h := &x.all[a]
	return c.leaves(h.who, h.used+asked, need, c.cfg.Shares.EngineGuaranteed, func() uint64 { return c.unusedByEngines(a) })
}

// leaves refuses a holder what would take the unused bytes of a guaranteed share.
// They are summed up only where they may be met.
func (c *Core) leaves(who quota.Holder, used, need uint64, share float64, unused func() uint64) error {
	room := c.cfg.Capacity - min(c.aside, c.cfg.Capacity)
	left := room - min(c.shares.everyone.has(), room)
	if !(share > 0) || need <= left-min(quota.Share(room, share), left) {
		return nil
	}
	others := unused()
	if others == 0 || need <= left-min(others, left) {
		return nil // without others the arena itself is the limit
	}
	kind, most := quota.Engine, used+left-min(others, used+left)
	if who.Kind == quota.Tenant {
		kind = quota.Tenant
	}
	if who.Kind == kind { // no peer is due anything
		if most = max(most, c.stillDue(who, used, left)); used+need <= most {
			return nil
		}
	}
	return c.beyond(quota.Rule{Resource: quota.GuaranteedBytes, Kind: kind}, who, used, need, most)
}

// stillDue is what an engine, or a tenant, may have of its guaranteed part where less is
// left than all parts of its kind together, because others took more while there were
// fewer: what is left is shared by those below their parts. Without it those that came
// later, and use nothing, would keep the rest from everybody.
func (c *Core) stillDue(who quota.Holder, used, left uint64) uint64 {
	part := c.guaranteed(c.cfg.Shares.EngineGuaranteed, c.shares.engines)
	if who.Kind == quota.Tenant {
		part = c.guaranteed(c.cfg.Shares.TenantGuaranteed, c.shares.tenants)
	}
	if used >= part {
		return 0
	}
	n, has := uint64(1), used
	other := func(uses uint64) {
		if uses < part {
			n++
			has += uses
		}
	}
	if who.Kind == quota.Tenant {
		for i := range c.tenants {
			if t := &c.tenants[i]; t.spaces > 0 && t.who != who {
				other(t.has())
			}
		}
	} else {
		for i := range c.shares.all {
			if h := &c.shares.all[i]; h.who.Kind == quota.Engine && h.who != who {
				other(h.used)
			}
		}
	}
	return min(part, (left+has)/n)
}

// guaranteed is the part of one of n holders in a guaranteed share.
func (c *Core) guaranteed(share float64, n int) uint64 {
	return quota.Share(c.cfg.Capacity-min(c.aside, c.cfg.Capacity), share) / uint64(max(n, 1))
}

// unusedByTenants is what tenants other than ti do not use of their guaranteed parts.
func (c *Core) unusedByTenants(ti uint16) (n uint64) {
	part := c.guaranteed(c.cfg.Shares.TenantGuaranteed, c.shares.tenants)
	for i := range c.tenants {
		if t := &c.tenants[i]; i != int(ti) && t.spaces > 0 {
			n += part - min(t.has(), part)
		}
	}
	return n
}

// unusedByEngines is what engines other than a do not use of their guaranteed parts.
func (c *Core) unusedByEngines(a uint32) (n uint64) {
	part := c.guaranteed(c.cfg.Shares.EngineGuaranteed, c.shares.engines)
	for i := range c.shares.all {
		if h := &c.shares.all[i]; uint32(i) != a && h.who.Kind == quota.Engine {
			n += part - min(h.used, part)
		}
	}
	return n
}

// Quota returns the state of the shares, for the metrics.
func (c *Core) Quota() []quota.Row {
	x := &c.shares
	most := map[quota.Kind]quota.Row{}
	add := func(k quota.Kind, used uint64) {
		if used > 0 {
			r := most[k]
			r.Used, r.Holders = max(r.Used, used), r.Holders+1
			most[k] = r
		}
	}
	for i := range x.all {
		add(x.all[i].who.Kind, x.all[i].used)
	}
	for i := range c.tenants {
		add(quota.Tenant, c.tenants[i].has())
	}
	add(quota.Peers, x.peers.has())
	var rows []quota.Row
	for _, k := range []quota.Kind{quota.Peers, quota.Peer, quota.Tenant, quota.Engine, quota.Source} {
		r := most[k]
		r.Rule = quota.Rule{Resource: quota.ArenaBytes, Kind: k}
		if k == quota.Source {
			r.Resource = quota.EndedBytes
		}
		r.Refused = x.refused[r.Rule]
		if x.limit[k] < math.MaxUint64 {
			r.Limit, r.Limited = x.limit[k], true
		}
		rows = append(rows, r)
	}
	for _, g := range []struct {
		k     quota.Kind
		share float64
		n     int
	}{{quota.Tenant, c.cfg.Shares.TenantGuaranteed, x.tenants}, {quota.Engine, c.cfg.Shares.EngineGuaranteed, x.engines}} {
		r := most[g.k]
		r.Rule = quota.Rule{Resource: quota.GuaranteedBytes, Kind: g.k}
		r.Limit, r.Limited, r.Refused = c.guaranteed(g.share, g.n), g.share > 0, x.refused[r.Rule]
		r.Used = min(r.Used, r.Limit)
		rows = append(rows, r)
	}
	return rows
}

// atMost bounds a time by a limit, where there is one.
func atMost(d, limit time.Duration) time.Duration {
	if limit > 0 {
		return min(d, limit)
	}
	return d
}
