package blocks

import (
	"slices"
	"time"

	"meridian/internal/invariants"
	"meridian/wire"
)

// lease is a set of references with one deadline.
type lease struct {
	made  invariants.Stack
	token Lease
	slots []uint32 // kept when the record is reused, up to keptSlots
	at    time.Duration
	born  time.Duration
	bytes uint64
	owner uint32
	acct  uint32 // the owner's account, charged for bytes until the lease ends
	prev  uint32 // in the owner's list
	next  uint32 // likewise, or in the list of free records
	heap  int32
	hold  bool
	aged  bool
}

// keptSlots is how many slots' room a record keeps for its next use. A larger table
// is given back with its lease: 65,536 records of an owner could keep 1 GiB.
const keptSlots = 256

type leases struct {
	all   []lease
	of    map[Lease]uint32
	free  uint32
	holds int
}

func newLeases() leases { return leases{of: map[Lease]uint32{}, free: none} }

// Acquire pins the blocks that v names by Ref (with Gen above 0) or by Key, in
// v's NS, and fills each view. An item that is not there gets its own Err:
// ABSENT by key, STALE by reference, also where the block is of another
// namespace; a *quota.Error beyond the share of the owner's holder, of all peers
// or of the block's tenant, or within what is guaranteed to others. The lease is zero when no item was granted.
//
// Errors of the whole call grant nothing: INVALID, or BUSY for more leases than
// MaxLeases or references than MaxLeased, more hold bytes than the cap, or a hold while an earlier one of the
// owner is over its age.
func (c *Core) Acquire(now time.Duration, o Owner, v []View, ttl time.Duration, hold bool) (Lease, error) {
	c.expire(now)
	oi, w := c.owner(o)
	switch {
	case w == nil:
		return Lease{}, errOwner
	case ttl <= 0:
		return Lease{}, errTTL
	case w.nleases >= MaxLeases:
		return Lease{}, &LimitError{Code: wire.CodeBusy, What: "leases of one owner", Got: uint64(w.nleases) + 1, Limit: MaxLeases}
	case w.nleased+len(v) > MaxLeased:
		return Lease{}, &LimitError{Code: wire.CodeBusy, What: "leased blocks of one owner", Got: uint64(w.nleased + len(v)), Limit: MaxLeased}
	case hold && w.aged > 0:
		return Lease{}, &LimitError{Code: wire.CodeBusy, What: "hold leases over their age", Got: uint64(w.aged), Limit: 0}
	}
	if c.isPeer(w.acct) {
		ttl = atMost(ttl, c.cfg.Shares.LeaseAge)
	}
	ids := c.scratch[:0]
	var size uint64
	granted := 0
	for i := range v {
		id := c.resolve(oi, &v[i])
		if id != none {
			if v[i].Err = c.mayLease(w.acct, id, size); v[i].Err != nil {
				id = none
			} else {
				size += uint64(c.extent(id).stride)
				granted++
			}
		}
		ids = append(ids, id)
	}
	c.scratch = ids
	c.forgetAsked(ids)
	if hold {
		if err := c.mayKeep(w, size); err != nil {
			return Lease{}, err
		}
	}
	l := none
	for i, id := range ids {
		if id == none {
			continue
		}
		if l == none {
			l = c.newLease(oi, now, ttl, hold)
			r := &c.leases.all[l]
			r.slots = slices.Grow(r.slots, granted)
		}
		r := &c.leases.all[l]
		c.pinFor(r.acct, id)
		r.slots = append(r.slots, id)
		c.fill(&v[i], id)
	}
	if l == none {
		return Lease{}, nil
	}
	r := &c.leases.all[l]
	r.bytes = size
	w.nleased += len(r.slots)
	c.charge(r.acct, size)
	if hold {
		c.holdMore(w, size)
	}
	return r.token, nil
}

// resolve finds the slot that a view asks for, or sets its Err and returns none.
func (c *Core) resolve(oi uint32, v *View) uint32 {
	v.Err = nil
	ns, ok := c.nsOf[v.NS]
	if !ok {
		v.Err = errNS
		return none
	}
	if v.Ref.Gen != 0 {
		s := c.known(v.Ref.Slot)
		if s == nil || v.Ref.Agent != c.cfg.Agent || v.Ref.Inc != c.cfg.Incarnation || s.gen != v.Ref.Gen ||
			s.ns != ns || v.Key != (wire.Key{}) && v.Key != s.key || !c.findable(oi, s) {
			v.Err = errStale
			return none
		}
		return v.Ref.Slot
	}
	if id := c.find(ns, &v.Key); id < remoteBit {
		return id
	}
	if id, ok := c.owners.all[oi].private[privateKey{ns, v.Key}]; ok {
		return id
	}
	v.Err = errAbsent
	return none
}

// findable reports whether an owner may find a slot at all.
func (c *Core) findable(oi uint32, s *slot) bool {
	return s.state == published || s.state == transient && s.own == oi
}

func (c *Core) newLease(oi uint32, now, ttl time.Duration, hold bool) uint32 {
	ls := &c.leases
	l := ls.free
	if l == none {
		l = uint32(len(ls.all))
		ls.all = append(ls.all, lease{})
	} else {
		ls.free = ls.all[l].next
	}
	r, w := &ls.all[l], &c.owners.all[oi]
	*r = lease{made: invariants.Here(1), token: c.mint(), slots: r.slots[:0], at: now + ttl, born: now, owner: oi, acct: w.acct, prev: none, next: w.leases, hold: hold}
	if w.leases != none {
		ls.all[w.leases].prev = l
	}
	w.leases = l
	w.nleases++
	if hold {
		ls.holds++
	}
	ls.of[r.token] = l
	c.timers.push(c, timer{at: r.at, ref: l})
	c.n.leasesGranted++
	return l
}

// endLease gives all references of a lease back, the last block first, so that
// of a chain the end is evicted before the beginning.
func (c *Core) endLease(l uint32) {
	ls := &c.leases
	r, w := &ls.all[l], &c.owners.all[ls.all[l].owner]
	if r.heap >= 0 {
		c.timers.remove(c, int(r.heap))
	}
	delete(ls.of, r.token)
	if r.prev == none {
		w.leases = r.next
	} else {
		ls.all[r.prev].next = r.next
	}
	if r.next != none {
		ls.all[r.next].prev = r.prev
	}
	w.nleases--
	w.nleased -= len(r.slots)
	if r.hold {
		ls.holds--
		c.holdMore(w, -r.bytes)
		if r.aged {
			w.aged--
			c.n.agedHolds--
		}
	}
	c.charge(r.acct, -r.bytes)
	for i := len(r.slots) - 1; i >= 0; i-- {
		c.unpinFor(r.acct, r.slots[i])
	}
	if r.slots = r.slots[:0]; cap(r.slots) > keptSlots {
		r.slots = nil
	}
	r.token = Lease{}
	r.next, ls.free = ls.free, l
}

// expireLease ends a timed lease; a hold lease only ages.
func (c *Core) expireLease(l uint32) {
	r := &c.leases.all[l]
	if r.hold {
		c.timers.remove(c, int(r.heap))
		r.aged = true
		c.owners.all[r.owner].aged++
		c.n.agedHolds++
		c.n.holdsAged++
		if len(c.aged) < MaxEvents {
			c.aged = append(c.aged, r.token)
		}
		return
	}
	c.n.leasesLapsed++
	if len(c.lapsed) < MaxEvents {
		c.lapsed = append(c.lapsed, r.token)
	}
	c.endLease(l)
}

// owned returns the lease's record if o holds it, or an owner of its family that
// is not dropped.
func (c *Core) owned(o Owner, token Lease) uint32 {
	_, w := c.owner(o)
	l, ok := c.leases.of[token]
	if w == nil || !ok {
		return none
	}
	if h := &c.owners.all[c.leases.all[l].owner]; h.family != w.family || h.orphan {
		return none
	}
	return l
}

// Renew sets a lease's remaining time. LEASE_LOST: it lapsed, was released, or
// is of another family. BUSY: a peer's lease would get older than Shares.LeaseAge;
// it keeps the time that it has.
func (c *Core) Renew(now time.Duration, o Owner, token Lease, ttl time.Duration) error {
	c.expire(now)
	if ttl <= 0 {
		return errTTL
	}
	l := c.owned(o, token)
	if l == none {
		return errLost
	}
	r := &c.leases.all[l]
	if most := c.cfg.Shares.LeaseAge; most > 0 && c.isPeer(r.acct) && now+ttl > r.born+most {
		return &LimitError{
			Code: wire.CodeBusy, What: "age of a peer's lease in milliseconds (quota.peer_lease_age)",
			Got: uint64((now + ttl - r.born).Milliseconds()), Limit: uint64(most.Milliseconds()),
		}
	}
	r.at = now + ttl
	if r.aged {
		r.aged = false
		c.owners.all[r.owner].aged--
		c.n.agedHolds--
		c.timers.push(c, timer{at: r.at, ref: l})
		return nil
	}
	c.timers.h[r.heap].at = r.at
	c.timers.fix(c, int(r.heap))
	return nil
}

// Release ends a lease. A lease that is gone already, or of another family, is left
// alone, and so is a hold of an owner that was dropped, but for the process's own.
func (c *Core) Release(o Owner, token Lease) {
	l := c.owned(o, token)
	if l == none {
		l = c.keptFor(o, token)
	}
	if l != none {
		c.endLease(l)
	}
}

// refuse takes one reference that a lease has out of it, if the lease still lives.
func (c *Core) refuse(o Owner, token Lease, id uint32) {
	l := c.owned(o, token)
	if l == none {
		return
	}
	r := &c.leases.all[l]
	i := slices.Index(r.slots, id)
	r.slots = slices.Delete(r.slots, i, i+1)
	c.owners.all[r.owner].nleased--
	c.unpinFor(r.acct, id)
}
