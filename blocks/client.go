package blocks

import (
	"meridian/blocks/quota"
	"meridian/wire"
)

// Client is the process that an owner works for. What its sessions hold is counted
// together, also once they have ended: a process can end a session and begin
// another one, again and again.
type Client struct {
	Process string       // a name that no other process has which lives; "": unknown
	User    quota.Holder // whose share (Shares.UserEnded) counts what ended sessions hold; zero: nobody's
}

// client is what a process has. One whose name is unknown is made for each owner.
type client struct {
	Client
	owners int    // that work for it, with the keeper
	holds  uint64 // bytes of hold leases of all of them
	keeper uint32 // the dropped owner that has the hold leases of all that were; none: none was
}

type clients struct {
	all  []client
	free []uint32
	of   map[string]uint32
}

// SetClient says which process an owner works for: its hold leases survive Drop
// until Gone, and count together with those of the process's other owners.
func (c *Core) SetClient(o Owner, who Client) {
	_, w := c.owner(o)
	if w == nil {
		return
	}
	was := w.client
	w.client = c.openClient(who)
	if was != none {
		c.clients.all[was].holds -= w.holdBytes
		c.closeClient(was)
	}
	c.clients.all[w.client].holds += w.holdBytes
}

// openClient returns the record of a process for one more owner.
func (c *Core) openClient(who Client) uint32 {
	x := &c.clients
	i, ok := x.of[who.Process]
	if !ok {
		if n := len(x.free); n > 0 {
			i, x.free = x.free[n-1], x.free[:n-1]
		} else {
			i, x.all = uint32(len(x.all)), append(x.all, client{})
		}
		x.all[i] = client{Client: who, keeper: none}
		if who.Process != "" {
			x.of[who.Process] = i
		}
	}
	r := &x.all[i]
	if r.User == (quota.Holder{}) && r.keeper == none {
		r.User = who.User
	}
	r.owners++
	return i
}

func (c *Core) closeClient(i uint32) {
	x := &c.clients
	if i == none {
		return
	}
	r := &x.all[i]
	if r.owners--; r.owners > 0 {
		return
	}
	if r.Process != "" {
		delete(x.of, r.Process)
	}
	*r = client{}
	x.free = append(x.free, i)
}

// holdMore counts bytes of a hold lease; -n, which wraps, takes them off.
func (c *Core) holdMore(w *owner, n uint64) {
	w.holdBytes += n
	c.n.holdBytes += n
	if w.client != none {
		c.clients.all[w.client].holds += n
	}
}

// mayKeep refuses a hold lease beyond what a process, or what the ended sessions of
// its user, may hold.
func (c *Core) mayKeep(w *owner, need uint64) error {
	has, user := w.holdBytes, quota.Holder{}
	if w.client != none {
		x := &c.clients.all[w.client]
		has, user = x.holds, x.User
	}
	if has+need > c.cfg.HoldBytes {
		return &LimitError{Code: wire.CodeBusy, What: "hold bytes of one process, with those of its ended sessions (arena.hold_bytes)", Got: has + need, Limit: c.cfg.HoldBytes}
	}
	a, ok := c.shares.of[user]
	if limit := c.shares.limit[quota.Source]; ok {
		if used := c.shares.all[a].used; used > limit || need > limit-used {
			return c.beyond(quota.Rule{Resource: quota.EndedBytes, Kind: quota.Source}, user, used, need, limit)
		}
	}
	return nil
}

// keep gives the hold leases of an owner that was dropped to the keeper of its
// process. It reports whether the owner is the keeper now, and else is free: however
// often a process comes and goes, one owner stays of it.
func (c *Core) keep(i uint32) bool {
	w := &c.owners.all[i]
	x := &c.clients.all[w.client]
	if x.keeper == none {
		x.keeper, w.orphan = i, true
		c.n.orphans++
		if x.User != (quota.Holder{}) {
			c.recharge(w, c.openAccount(x.User))
		}
		return true
	}
	k := &c.owners.all[x.keeper]
	for w.leases != none {
		l := w.leases
		r := &c.leases.all[l]
		w.leases = r.next
		c.charge(r.acct, -r.bytes)
		r.owner, r.acct, r.prev, r.next = x.keeper, k.acct, none, k.leases
		c.charge(r.acct, r.bytes)
		if k.leases != none {
			c.leases.all[k.leases].prev = l
		}
		k.leases = l
	}
	k.nleases, k.nleased, k.holdBytes, k.aged = k.nleases+w.nleases, k.nleased+w.nleased, k.holdBytes+w.holdBytes, k.aged+w.aged
	w.nleases, w.nleased, w.holdBytes, w.aged = 0, 0, 0, 0
	c.freeOwner(i)
	return false
}

// recharge makes an owner one of another account, with its leases.
func (c *Core) recharge(w *owner, a uint32) {
	for l := w.leases; l != none; l = c.leases.all[l].next {
		r := &c.leases.all[l]
		c.charge(r.acct, -r.bytes)
		c.charge(a, r.bytes)
		r.acct = a
	}
	c.closeAccount(w.acct)
	w.acct = a
}

// keptFor returns the record of a lease that an earlier owner of o's process held.
func (c *Core) keptFor(o Owner, token Lease) uint32 {
	_, w := c.owner(o)
	l, ok := c.leases.of[token]
	if w == nil || !ok || w.client == none || c.clients.all[w.client].keeper != c.leases.all[l].owner {
		return none
	}
	return l
}
