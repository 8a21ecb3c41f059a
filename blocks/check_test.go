package blocks

import (
	"fmt"

	"meridian/blocks/quota"
	"meridian/wire"
)

// check recounts everything that the core keeps twice, and follows every list.
func (c *Core) check() error {
	if n := c.leaked(); n != 0 {
		return fmt.Errorf("leaked %d", n)
	}
	refs := map[uint32]int{}
	for _, check := range []func(map[uint32]int) error{
		c.checkLeases, c.checkPins, c.checkShares, c.checkExtents, c.checkPools, c.checkIndex, c.checkGroups, c.checkRemotes, c.checkTimers,
	} {
		if err := check(refs); err != nil {
			return err
		}
	}
	return nil
}

func (c *Core) checkLeases(refs map[uint32]int) error {
	pins, live := 0, 0
	for oi := range c.owners.all {
		w := &c.owners.all[oi]
		if !w.used {
			continue
		}
		n, aged, leased := 0, 0, 0
		var held uint64
		for l := w.leases; l != none; l = c.leases.all[l].next {
			r := &c.leases.all[l]
			if c.leases.of[r.token] != l || r.owner != uint32(oi) {
				return fmt.Errorf("lease %d of owner %d is not where its token says", l, oi)
			}
			for _, id := range r.slots {
				refs[id]++
				pins++
			}
			leased += len(r.slots)
			if r.hold {
				held += r.bytes
			}
			if r.aged {
				aged++
			}
			n++
		}
		if n != w.nleases || leased != w.nleased || held != w.holdBytes || aged != w.aged {
			return fmt.Errorf("owner %d: leases %d/%d of blocks %d/%d, hold bytes %d/%d, aged %d/%d", oi, n, w.nleases, leased, w.nleased, held, w.holdBytes, aged, w.aged)
		}
		live += n
	}
	holds, owners := map[uint32]uint64{}, map[uint32]int{}
	for oi := range c.owners.all {
		if w := &c.owners.all[oi]; w.used && w.client != none {
			holds[w.client] += w.holdBytes
			owners[w.client]++
		}
	}
	for i := range c.clients.all {
		if x := &c.clients.all[i]; x.holds != holds[uint32(i)] || x.owners != owners[uint32(i)] || x.owners > 0 && x.keeper != none && !c.owners.all[x.keeper].orphan {
			return fmt.Errorf("process %d: %d/%d bytes held by %d/%d owners, keeper %d", i, x.holds, holds[uint32(i)], x.owners, owners[uint32(i)], x.keeper)
		}
	}
	if live != len(c.leases.of) || pins+c.pins.n != c.leasePins {
		return fmt.Errorf("leases %d/%d, lease pins %d/%d", live, len(c.leases.of), pins+c.pins.n, c.leasePins)
	}
	return nil
}

// checkPins follows pins from their owners and from their slots.
func (c *Core) checkPins(refs map[uint32]int) error {
	seen, slots, bytes := 0, 0, uint64(0)
	for oi := range c.owners.all {
		w := &c.owners.all[oi]
		n, found := 0, 0
		for s := w.allSets; s != nil; s = s.next {
			if s.owner != uint32(oi) || s.acct != w.acct {
				return fmt.Errorf("owner %d lists a set of pins of owner %d", oi, s.owner)
			}
			if !s.detached {
				found++
			}
			if s.detached == (w.pinSets[s.num] == s) || s.pins == none && len(s.pulled) == 0 {
				return fmt.Errorf("set %d of owner %d: detached %v, first pin %d, %d pulled", s.num, oi, s.detached, s.pins, len(s.pulled))
			}
			for k := s.pins; k != none; k = c.pins.all[k].next {
				r := &c.pins.all[k]
				if at, ok := c.pins.find[pinKey{s, r.slot}]; !ok || at != k || r.set != s {
					return fmt.Errorf("pin %d of slot %d is not where its set says", k, r.slot)
				}
				refs[r.slot]++
				bytes += uint64(c.extent(r.slot).stride)
				n++
			}
		}
		if n != w.npins || found != len(w.pinSets) {
			return fmt.Errorf("owner %d: pins %d/%d, sets %d/%d", oi, n, w.npins, found, len(w.pinSets))
		}
		seen += n
	}
	for id, ends := range c.pins.of {
		last := none
		for k := ends[0]; k != none; last, k = k, c.pins.all[k].newer {
			if c.pins.all[k].slot != id || c.pins.all[k].older != last {
				return fmt.Errorf("slot %d lists pin %d of slot %d", id, k, c.pins.all[k].slot)
			}
			slots++
		}
		if s := c.slot(id); last != ends[1] || s.flags&flagPinned == 0 || s.state != published {
			return fmt.Errorf("slot %d in state %d with flags %x has pins, the newest %d/%d", id, s.state, s.flags, last, ends[1])
		}
	}
	if seen != slots || seen != c.pins.n || seen != len(c.pins.find) || bytes != c.pins.bytes {
		return fmt.Errorf("pins %d by owner, %d by slot, %d counted, %d found; bytes %d/%d", seen, slots, c.pins.n, len(c.pins.find), bytes, c.pins.bytes)
	}
	return nil
}

// checkShares recounts what the accounts of holders and tenants say.
func (c *Core) checkShares(map[uint32]int) error {
	used := map[uint32]uint64{}
	held, pinned, owners := make([]uint64, len(c.tenants)), make([]uint64, len(c.tenants)), map[uint32]int{}
	for oi := range c.owners.all {
		w := &c.owners.all[oi]
		if !w.used {
			continue
		}
		owners[w.acct]++
		for l := w.leases; l != none; l = c.leases.all[l].next {
			used[c.leases.all[l].acct] += c.leases.all[l].bytes
		}
		for p := w.allSets; p != nil; p = p.next {
			for k := p.pins; k != none; k = c.pins.all[k].next {
				used[p.acct] += uint64(c.extent(c.pins.all[k].slot).stride)
			}
		}
		for g := w.groups; g != none; g = c.groups.all[g].next {
			for id := c.groups.all[g].slots.head; id != none; id = c.slot(id).next {
				if s := c.slot(id); s.state != transient {
					used[c.groups.all[g].acct] += uint64(c.extent(id).stride)
					held[c.ns[s.ns].tenant] += uint64(c.extent(id).stride)
				}
			}
		}
	}
	for i := range c.ext {
		for j := range c.ext[i].slots {
			if s := &c.ext[i].slots[j]; s.refs > 0 {
				pinned[c.ns[s.ns].tenant] += uint64(c.ext[i].stride)
			}
		}
	}
	uses := make([]int, len(c.ns))
	for i := range c.ext {
		for j := range c.ext[i].slots {
			if s := &c.ext[i].slots[j]; s.state != free {
				uses[s.ns]++
			}
		}
	}
	for i := c.remotes.head; i != none; i = c.remotes.all[i].next {
		uses[c.remotes.all[i].ns]++
	}
	for i := range c.ns {
		if c.ns[i].uses != uses[i] {
			return fmt.Errorf("namespace %d: %d/%d uses", i, uses[i], c.ns[i].uses)
		}
	}
	for i := range c.shares.all {
		if a := &c.shares.all[i]; a.used != used[uint32(i)] || a.owners != owners[uint32(i)] {
			return fmt.Errorf("account of %v: %d/%d bytes, %d/%d owners", a.who, used[uint32(i)], a.used, owners[uint32(i)], a.owners)
		}
	}
	if err := c.checkTogether(held, pinned); err != nil {
		return err
	}
	for i := range c.tenants {
		if t := &c.tenants[i]; t.held != held[i] || t.pinned != pinned[i] || t.asked != 0 {
			return fmt.Errorf("tenant %d: held %d/%d, pinned %d/%d, asked %d", i, held[i], t.held, pinned[i], t.pinned, t.asked)
		}
	}
	return nil
}

// checkTogether recounts what everybody has, what peers have, and who there is.
func (c *Core) checkTogether(held, pinned []uint64) error {
	var everyone, peers together
	leased := map[uint32]uint32{}
	for oi := range c.owners.all {
		w := &c.owners.all[oi]
		if !w.used || !c.isPeer(w.acct) {
			continue
		}
		for l := w.leases; l != none; l = c.leases.all[l].next {
			for _, id := range c.leases.all[l].slots {
				if leased[id]++; leased[id] == 1 {
					peers.pinned += uint64(c.extent(id).stride)
				}
			}
		}
		for p := w.allSets; p != nil; p = p.next {
			for k := p.pins; k != none; k = c.pins.all[k].next {
				id := c.pins.all[k].slot
				if leased[id]++; leased[id] == 1 {
					peers.pinned += uint64(c.extent(id).stride)
				}
			}
		}
		for g := w.groups; g != none; g = c.groups.all[g].next {
			for id := c.groups.all[g].slots.head; id != none; id = c.slot(id).next {
				if c.slot(id).state != transient {
					peers.held += uint64(c.extent(id).stride)
				}
			}
		}
	}
	for i := range c.tenants {
		everyone.held += held[i]
		everyone.pinned += pinned[i]
	}
	if c.shares.everyone != everyone || c.shares.peers != peers {
		return fmt.Errorf("everyone has %+v, want %+v; peers have %+v, want %+v", c.shares.everyone, everyone, c.shares.peers, peers)
	}
	for i := range c.ext {
		for j := range c.ext[i].slots {
			n, id := uint32(0), uint32(i)<<c.geo.slotBits|uint32(j)
			if c.ext[i].peers != nil {
				n = c.ext[i].peers[j]
			}
			if n != leased[id] {
				return fmt.Errorf("slot %d: %d leases of peers, want %d", id, n, leased[id])
			}
		}
	}
	engines := 0
	for who := range c.shares.of {
		if who.Kind == quota.Engine {
			engines++
		}
	}
	spaces := make([]int, len(c.tenants))
	for _, ns := range c.nsOf {
		spaces[c.ns[ns].tenant]++
	}
	tenants := 0
	for i, n := range spaces {
		if n > 0 {
			tenants++
		}
		if c.tenants[i].spaces != n {
			return fmt.Errorf("tenant %d: %d namespaces, want %d", i, c.tenants[i].spaces, n)
		}
	}
	if c.shares.engines != engines || c.shares.tenants != tenants {
		return fmt.Errorf("%d engines, want %d; %d tenants, want %d", c.shares.engines, engines, c.shares.tenants, tenants)
	}
	return nil
}

func (c *Core) checkExtents(refs map[uint32]int) error {
	var count [states]int
	var bytes [states]uint64
	var tiers [3]int
	total, other := 0, 0
	for i := range c.ext {
		e := &c.ext[i]
		if e.pool < 0 {
			if e.slots != nil {
				return fmt.Errorf("extent %d is uncut and has slots", i)
			}
			continue
		}
		nfree, busy, idle, kept := uint32(0), uint32(0), [3]uint32{}, [3]uint32{}
		for j := range e.slots {
			s, id := &e.slots[j], uint32(i)<<c.geo.slotBits|uint32(j)
			count[s.state]++
			bytes[s.state] += uint64(e.stride)
			total += int(s.refs)
			other += int(s.refs) - refs[id]
			switch {
			case s.state == free:
				nfree++
			case s.state == published && s.refs == 0:
				if idle[s.tier]++; s.flags&flagUsed != 0 {
					kept[s.tier]++
				}
			default:
				busy++
			}
			if s.state == published {
				tiers[s.tier]++
			}
			if wants := s.flags&flagFollowed != 0; wants && s.state != published || !wants && s.state == published && len(c.follows.more[id]) > 0 {
				return fmt.Errorf("slot %d in state %d with flags %x, %d more follow it", id, s.state, s.flags, len(c.follows.more[id]))
			}
			if s.state == free && s.refs != 0 || s.state == doomed && s.refs == 0 {
				return fmt.Errorf("slot %d: state %d with %d references", id, s.state, s.refs)
			}
			if stable := s.gen%2 == 0; (s.state == published || s.state == transient) && !stable ||
				(s.state == reserved || s.state == writing || s.state == late) && stable {
				return fmt.Errorf("slot %d: state %d with generation %d", id, s.state, s.gen)
			}
		}
		if nfree != e.nfree || busy != e.busy || idle != e.idle || kept != e.kept {
			return fmt.Errorf("extent %d: free %d/%d busy %d/%d idle %v/%v kept %v/%v", i, nfree, e.nfree, busy, e.busy, idle, e.idle, kept, e.kept)
		}
	}
	if n := uint64(c.extents)*c.geo.extent + c.aside; n > c.cfg.Capacity {
		return fmt.Errorf("segments and what is set aside have %d bytes of %d", n, c.cfg.Capacity)
	}
	if count != c.count || bytes != c.bytes || tiers != c.tierCount || total != c.refs || other != c.otherPins {
		return fmt.Errorf("counts %v/%v bytes %v/%v tiers %v/%v pins %d/%d other %d/%d",
			count, c.count, bytes, c.bytes, tiers, c.tierCount, total, c.refs, other, c.otherPins)
	}
	return nil
}

func (c *Core) checkPools(map[uint32]int) error {
	for pi := range c.pools {
		p := &c.pools[pi]
		nfree, empty := 0, 0
		for i := p.part.head; i != none; i = c.ext[i].next {
			if c.ext[i].nfree == 0 || c.ext[i].pool != int32(pi) {
				return fmt.Errorf("pool %d lists extent %d", pi, i)
			}
			nfree += int(c.ext[i].nfree)
			if c.ext[i].nfree == p.per {
				empty++
			}
			seen := uint32(0)
			for j := c.ext[i].freeHead; j != none; j = c.ext[i].slots[j].next {
				if seen++; c.ext[i].slots[j].state != free {
					return fmt.Errorf("extent %d: slot %d is on the free list", i, j)
				}
			}
			if seen+p.per-c.ext[i].fresh != c.ext[i].nfree {
				return fmt.Errorf("extent %d: free list of %d, fresh %d, free %d", i, seen, c.ext[i].fresh, c.ext[i].nfree)
			}
		}
		if nfree != p.nfree || empty != p.empty || empty > 1 || p.need != 0 {
			return fmt.Errorf("pool %d: free %d/%d empty %d/%d need %d", pi, nfree, p.nfree, empty, p.empty, p.need)
		}
		for t := range p.idle {
			for kept, l := range map[bool]*slotList{false: &p.idle[t].fresh, true: &p.idle[t].kept} {
				n, last := 0, uint64(0)
				for id := l.head; id != none; id = c.slot(id).next {
					s := c.slot(id)
					if s.state != published || s.refs != 0 || int(s.tier) != t || s.stamp <= last || c.extent(id).pool != int32(pi) || kept != (s.flags&flagUsed != 0) {
						return fmt.Errorf("pool %d tier %d lists slot %d", pi, t, id)
					}
					n, last = n+1, s.stamp
				}
				if n != l.n {
					return fmt.Errorf("pool %d tier %d: %d/%d idle, kept %v", pi, t, n, l.n, kept)
				}
			}
		}
	}
	return nil
}

func (c *Core) checkIndex(map[uint32]int) error {
	cells := 0
	for _, e := range c.index.cells {
		if e == 0 {
			continue
		}
		cells++
		id := cellID(e)
		var ns uint16
		var key wire.Key
		if id >= remoteBit {
			r := &c.remotes.all[id&^remoteBit]
			ns, key = r.ns, r.key
			if r.slot != none {
				return fmt.Errorf("the index names remote record %d, which has slot %d", id&^remoteBit, r.slot)
			}
		} else {
			s := c.slot(id)
			ns, key = s.ns, s.key
			if s.state != published {
				return fmt.Errorf("the index names slot %d in state %d", id, s.state)
			}
		}
		if c.find(ns, &key) != id {
			return fmt.Errorf("the index does not find %d", id)
		}
	}
	lone := 0
	for i := c.remotes.head; i != none; i = c.remotes.all[i].next {
		if c.remotes.all[i].slot == none {
			lone++
		}
	}
	if cells != c.index.n || cells != c.count[published]+lone {
		return fmt.Errorf("index: %d cells, n %d, %d published and %d outside", cells, c.index.n, c.count[published], lone)
	}
	return nil
}

func (c *Core) checkGroups(map[uint32]int) error {
	var think uint64
	slots := 0
	for oi := range c.owners.all {
		if !c.owners.all[oi].used {
			continue
		}
		for g := c.owners.all[oi].groups; g != none; g = c.groups.all[g].next {
			r := &c.groups.all[g]
			n := 0
			for id := r.slots.head; id != none; id = c.slot(id).next {
				s := c.slot(id)
				if s.group != g || s.own != uint32(oi) {
					return fmt.Errorf("group %d lists slot %d of group %d", g, id, s.group)
				}
				if r.think && s.state != transient {
					think += uint64(c.extent(id).stride)
				}
				n++
			}
			if n == 0 || n != r.slots.n {
				return fmt.Errorf("group %d has %d/%d slots", g, n, r.slots.n)
			}
			slots += n
		}
		for k, id := range c.owners.all[oi].private {
			if s := c.slot(id); s.state != transient || s.key != k.key || s.own != uint32(oi) {
				return fmt.Errorf("owner %d: private entry for slot %d in state %d", oi, id, s.state)
			}
		}
	}
	if think != c.thinkHeld || slots < c.count[reserved]+c.count[late] {
		return fmt.Errorf("think held %d/%d, %d slots in groups, %d reserved, %d late", think, c.thinkHeld, slots, c.count[reserved], c.count[late])
	}
	return nil
}

func (c *Core) checkRemotes(map[uint32]int) error {
	n := 0
	for i := c.remotes.head; i != none; i = c.remotes.all[i].next {
		if m := &c.remotes.all[i]; m.slot != none && c.slot(m.slot).remote != i {
			return fmt.Errorf("remote record %d names slot %d, which does not know it", i, m.slot)
		}
		n++
	}
	if n != c.remotes.n || n > c.remotes.limit {
		return fmt.Errorf("remote records %d/%d, limit %d", n, c.remotes.n, c.remotes.limit)
	}
	return nil
}

func (c *Core) checkTimers(map[uint32]int) error {
	for i, t := range c.timers.h {
		if i > 0 && t.at < c.timers.h[(i-1)/2].at {
			return fmt.Errorf("timer %d is before its parent", i)
		}
		var heap int32
		switch {
		case t.ref&groupBit != 0:
			heap = c.groups.all[t.ref&^groupBit].heap
		case t.ref&pinBit != 0:
			heap = c.pins.all[t.ref&^pinBit].heap
		default:
			heap = c.leases.all[t.ref].heap
		}
		if heap != int32(i) {
			return fmt.Errorf("timer %d believes to be at %d", i, heap)
		}
	}
	return nil
}
