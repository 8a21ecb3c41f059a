package blocks

import (
	"meridian/blocks/quota"
	"meridian/wire"
)

// owner is a session: the head of lists of what it holds.
type owner struct {
	gen       uint32
	family    uint64 // owners with one number renew and release each other's leases
	used      bool
	client    uint32 // the process that it works for: its holds outlive it until Gone; none: no process
	orphan    bool   // dropped, with the holds of its process, and waiting for Gone
	leases    uint32
	groups    uint32
	nleases   int
	nleased   int // references of its leases
	holdBytes uint64
	npins     int
	pinSets   map[uint64]*pinSet // by number, without those that are detached
	allSets   *pinSet
	aged      int    // holds past their time
	acct      uint32 // of its holder; none: the daemon's own, without a share
	private   map[privateKey]uint32
}

// privateKey finds an owner's transient blocks.
type privateKey struct {
	ns  uint16
	key wire.Key
}

type owners struct {
	all      []owner
	free     []uint32
	live     int
	families uint64 // given out
}

func newOwners() owners { return owners{} }

// NewOwner makes an owner of the daemon's own, which has no share; see NewOwnerFor.
func (c *Core) NewOwner(process bool) Owner { return c.NewOwnerFor(quota.Total, process) }

// NewOwnerFor makes an owner that works for a holder and counts against its share,
// together with the holder's other owners. With process true its hold leases
// survive Drop until Gone, and SetClient says whose they are. It returns 0 when MaxOwners exist.
func (c *Core) NewOwnerFor(who quota.Holder, process bool) Owner {
	c.owners.families++
	return c.newOwner(c.owners.families, who, process)
}

// NewMember makes an owner that works for the same holder as another one and is of
// its family: each renews and releases the leases of the others, as long as those
// are not dropped. It returns 0 when the other one is not there, and when MaxOwners
// exist.
func (c *Core) NewMember(of Owner, process bool) Owner {
	_, w := c.owner(of)
	if w == nil {
		return 0
	}
	who := quota.Total
	if w.acct != none {
		who = c.shares.all[w.acct].who
	}
	return c.newOwner(w.family, who, process)
}

func (c *Core) newOwner(family uint64, who quota.Holder, process bool) Owner {
	o := &c.owners
	var i uint32
	switch {
	case len(o.free) > 0:
		i = o.free[len(o.free)-1]
		o.free = o.free[:len(o.free)-1]
	case len(o.all) < MaxOwners:
		i = uint32(len(o.all))
		o.all = append(o.all, owner{})
	default:
		return 0
	}
	o.all[i] = owner{gen: o.all[i].gen + 1, family: family, used: true, client: none, leases: none, groups: none, acct: c.openAccount(who)}
	if process {
		o.all[i].client = c.openClient(Client{})
	}
	o.live++
	return Owner(uint64(o.all[i].gen)<<32 | uint64(i))
}

// owner returns the record of a live owner, or nil.
func (c *Core) owner(o Owner) (uint32, *owner) {
	i := uint32(o)
	if uint64(i) >= uint64(len(c.owners.all)) {
		return 0, nil
	}
	w := &c.owners.all[i]
	if !w.used || w.orphan || w.gen != uint32(o>>32) {
		return 0, nil
	}
	return i, w
}

// Drop ends an owner: reservations are aborted, timed leases released. Hold
// leases of a process stay; for the first such owner of a process Drop returns true,
// and the driver calls Gone once the process is really gone. It has those of later
// ones too: they count for the user then, and another owner of the process may
// release them. Dropping twice does nothing.
func (c *Core) Drop(o Owner) (holds bool) {
	i, w := c.owner(o)
	if w == nil {
		return false
	}
	for w.groups != none {
		c.dropGroup(w.groups)
	}
	for w.allSets != nil {
		c.unpinSet(w.allSets, PinDropped)
	}
	for l := w.leases; l != none; {
		next := c.leases.all[l].next
		if w.client == none || !c.leases.all[l].hold {
			c.endLease(l)
		}
		l = next
	}
	c.owners.live--
	if w.leases != none {
		return c.keep(i)
	}
	c.freeOwner(i)
	return false
}

// Holds reports whether a live owner has hold leases.
func (c *Core) Holds(o Owner) bool {
	_, w := c.owner(o)
	return w != nil && w.holdBytes > 0
}

// EndHolds releases the hold leases of a live owner whose process has ended: it no longer
// maps anything.
func (c *Core) EndHolds(o Owner) {
	_, w := c.owner(o)
	if w == nil {
		return
	}
	for l := w.leases; l != none; {
		next := c.leases.all[l].next
		if c.leases.all[l].hold {
			c.endLease(l)
		}
		l = next
	}
}

// Gone releases what the dropped owners of a process still held: it no longer maps
// anything.
func (c *Core) Gone(o Owner) {
	i := uint32(o)
	if uint64(i) >= uint64(len(c.owners.all)) {
		return
	}
	w := &c.owners.all[i]
	if !w.used || !w.orphan || w.gen != uint32(o>>32) {
		return
	}
	for w.leases != none {
		c.endLease(w.leases)
	}
	c.n.orphans--
	c.clients.all[w.client].keeper = none
	c.freeOwner(i)
}

func (c *Core) freeOwner(i uint32) {
	w := &c.owners.all[i]
	c.closeAccount(w.acct)
	c.closeClient(w.client)
	w.used, w.orphan, w.private = false, false, nil
	c.owners.free = append(c.owners.free, i)
}
