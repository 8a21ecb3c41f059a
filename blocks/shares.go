package blocks

import (
	"encoding/hex"
	"math"
	"time"

	"meridian/blocks/quota"
)

// Shares bound what holders may have of the arena, in reservations and leases
// together: slots with the room of their size class, a block once for each lease
// on it. A fraction is of the capacity; 0, and 1 or more, is no bound of its own.
type Shares struct {
	Peer        float64       // all sessions of one peer
	Engine      float64       // one engine session
	Tenant      float64       // all blocks of a tenant that are reserved or leased, each once
	ReserveTime time.Duration // a peer's reservation ends after it; 0: when it asked for
	LeaseAge    time.Duration // a peer's lease ends at this age, whatever renews it; 0: never
}

// The keys of the configuration that set the shares.
var shareKeys = map[quota.Kind]string{
	quota.Peer: "quota.peer_arena_share", quota.Engine: "quota.engine_arena_share", quota.Tenant: "quota.tenant_arena_share",
}

// account is what one holder has, over all its owners.
type account struct {
	who    quota.Holder
	used   uint64
	owners int
}

type accounts struct {
	all     []account
	free    []uint32
	of      map[quota.Holder]uint32
	limit   map[quota.Kind]uint64
	refused map[quota.Kind]uint64
}

func newAccounts(s Shares, capacity uint64) accounts {
	bound := func(fraction float64) uint64 {
		if !(fraction > 0) || fraction >= 1 {
			return math.MaxUint64
		}
		return quota.Share(capacity, fraction)
	}
	return accounts{
		of: map[quota.Holder]uint32{}, refused: map[quota.Kind]uint64{},
		limit: map[quota.Kind]uint64{quota.Peer: bound(s.Peer), quota.Engine: bound(s.Engine), quota.Tenant: bound(s.Tenant)},
	}
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
}

// mayReserve refuses what would take the owner's holder or the tenant above its share.
func (c *Core) mayReserve(a uint32, ti uint16, need uint64) error {
	if err := c.mayHold(a, 0, need); err != nil {
		return err
	}
	return c.tenantMay(ti, need)
}

// mayLease is mayReserve for a block that an Acquire call wants on top of the
// asked bytes that it has so far.
func (c *Core) mayLease(a, id uint32, asked uint64) error {
	s, n := c.slot(id), uint64(c.extent(id).stride)
	if err := c.mayHold(a, asked, n); err != nil {
		return err
	}
	if s.refs > 0 {
		return nil // the tenant has it already
	}
	ti := c.ns[s.ns].tenant
	if err := c.tenantMay(ti, n); err != nil {
		return err
	}
	c.tenants[ti].asked += n
	return nil
}

// forgetAsked ends what mayLease remembered of an Acquire call.
func (c *Core) forgetAsked(ids []uint32) {
	for _, id := range ids {
		if id != none {
			c.tenants[c.ns[c.slot(id).ns].tenant].asked = 0
		}
	}
}

func (c *Core) mayHold(a uint32, asked, need uint64) error {
	if a == none {
		return nil
	}
	x := &c.shares.all[a]
	return c.within(x.who, x.used+asked, need)
}

func (c *Core) tenantMay(ti uint16, need uint64) error {
	if c.shares.limit[quota.Tenant] == math.MaxUint64 {
		return nil
	}
	t := &c.tenants[ti]
	return c.within(quota.Holder{Kind: quota.Tenant, Name: hex.EncodeToString(t.id[:8])}, t.held+t.pinned+t.asked, need)
}

func (c *Core) within(who quota.Holder, used, need uint64) error {
	limit, ok := c.shares.limit[who.Kind]
	if !ok || used <= limit && need <= limit-used {
		return nil
	}
	c.shares.refused[who.Kind]++
	return &quota.Error{Resource: quota.ArenaBytes, Holder: who, InUse: used, Want: need, Limit: limit, Key: shareKeys[who.Kind]}
}

// Quota returns the state of the shares, for the metrics.
func (c *Core) Quota() []quota.Row {
	rows := []quota.Row{{Kind: quota.Peer}, {Kind: quota.Tenant}, {Kind: quota.Engine}}
	for i := range rows {
		r := &rows[i]
		r.Resource, r.Limit, r.Refused = quota.ArenaBytes, c.shares.limit[r.Kind], c.shares.refused[r.Kind]
		if r.Limited = r.Limit != math.MaxUint64; !r.Limited {
			r.Limit = 0
		}
	}
	add := func(r *quota.Row, used uint64) {
		if used > 0 {
			r.Used, r.Holders = max(r.Used, used), r.Holders+1
		}
	}
	for i := range c.shares.all {
		switch a := &c.shares.all[i]; a.who.Kind {
		case quota.Peer:
			add(&rows[0], a.used)
		case quota.Engine:
			add(&rows[2], a.used)
		}
	}
	for i := range c.tenants {
		add(&rows[1], c.tenants[i].held+c.tenants[i].pinned)
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
