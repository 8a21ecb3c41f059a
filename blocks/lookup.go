package blocks

import (
	"encoding/binary"

	"meridian/wire"
)

// find returns the id for a key in a namespace: a slot, a remote record
// (remoteBit) or none.
func (c *Core) find(ns uint16, k *wire.Key) uint32 {
	return c.findTag(c.index.tag(ns, k), ns, k)
}

func (c *Core) findTag(tag uint32, ns uint16, k *wire.Key) uint32 {
	x := &c.index
	for i := tag & x.mask; ; i = x.next(i) {
		e := x.cells[i]
		if e == 0 {
			return none
		}
		if cellTag(e) == tag && c.is(cellID(e), ns, k) {
			return cellID(e)
		}
	}
}

// is reports whether an id of the index stands for the key in the namespace.
func (c *Core) is(id uint32, ns uint16, k *wire.Key) bool {
	if id >= remoteBit {
		r := &c.remotes.all[id&^remoteBit]
		return sameKey(&r.key, k) && r.ns == ns
	}
	s := c.slot(id)
	return sameKey(&s.key, k) && s.ns == ns
}

// sameKey compares by words, without a call and with one branch for its caller.
func sameKey(a, b *wire.Key) bool {
	le := binary.LittleEndian
	return (le.Uint64(a[0:])^le.Uint64(b[0:]))|(le.Uint64(a[8:])^le.Uint64(b[8:]))|
		(le.Uint64(a[16:])^le.Uint64(b[16:]))|(le.Uint64(a[24:])^le.Uint64(b[24:])) == 0
}

// chunk is how many keys of a chain are in flight between the passes of Lookup:
// enough misses to overlap, few enough that their slots are still in the first
// cache when the views are filled.
const chunk = 32

// Lookup fills v[i] for every key of the chain and returns the number of
// leading hits. Err is ABSENT where no bytes are in the arena; Where, Head and
// Tier are filled all the same if a copy outside is known. NS_UNKNOWN fills
// every view of a namespace that is not open. v nil only counts.
//
// Three passes over at most chunk keys each, so that the misses of one kind
// (table cell, then slot) overlap instead of following one another.
func (c *Core) Lookup(ns wire.Namespace, chain []wire.Key, v []View) (hits int) {
	nsi, ok := c.nsOf[ns]
	c.n.lookups += uint64(len(chain))
	if !ok {
		for i := range v {
			v[i] = View{NS: ns, Err: errNS}
		}
		return 0
	}
	leading := true
	for at := 0; at < len(chain); at += chunk {
		var ids [chunk]uint32
		keys := chain[at:min(at+chunk, len(chain))]
		n := c.findAll(nsi, keys, &ids)
		c.n.hits += uint64(n)
		for i := range keys {
			if ids[i] >= remoteBit {
				leading = false
			} else if leading {
				hits++
			}
			if at+i < len(v) {
				c.describe(&v[at+i], ids[i], ns, &keys[i])
			}
		}
	}
	return hits
}

// findAll finds up to chunk keys and returns how many have a slot. The passes
// that only load keep their loads independent of each other and of any branch,
// so the processor has many misses in flight.
func (c *Core) findAll(ns uint16, keys []wire.Key, ids *[chunk]uint32) (n int) {
	var tags [chunk]uint32
	var sink uint64
	x := &c.index
	for i := range keys { // cells on their way
		t := x.tag(ns, &keys[i])
		tags[i] = t
		sink += x.cells[t&x.mask]
	}
	for i := range keys { // first cell with the tag
		ids[i] = x.first(tags[i])
	}
	for _, id := range ids[:len(keys)] { // slots on their way, both lines
		if id < remoteBit {
			s := c.slot(id)
			sink += uint64(s.key[0]) + uint64(s.flags)
		}
	}
	for i := range keys {
		if id := ids[i]; id != none && !c.is(id, ns, &keys[i]) {
			ids[i] = c.findTag(tags[i], ns, &keys[i])
		}
		if ids[i] < remoteBit {
			n++
		}
	}
	c.sink = sink
	return n
}

// describe fills a view of what find returned.
func (c *Core) describe(v *View, id uint32, ns wire.Namespace, k *wire.Key) {
	switch {
	case id == none:
		*v = View{NS: ns, Key: *k, Err: errAbsent}
	case id >= remoteBit:
		r := &c.remotes.all[id&^remoteBit]
		*v = View{
			NS: ns, Key: *k, Tier: r.tier, Att: r.att, Where: c.remotes.loc(r), Err: errAbsent,
			Head: wire.Header{BodyLen: r.size, Tier: r.htier, Sum: r.sum},
		}
	default:
		c.fill(v, id)
	}
}

// fill describes a slot. It assigns field by field: a composite literal is built
// on the stack in small stores and copied in large loads, which stalls.
func (c *Core) fill(v *View, id uint32) {
	e := c.extent(id)
	j := id & c.slotMask
	s := &e.slots[j]
	v.NS = c.ns[s.ns].id
	v.Key = s.key
	v.Ref.Agent = c.cfg.Agent
	v.Ref.Inc = c.cfg.Incarnation
	v.Ref.Slot, v.Ref.Gen = id, s.gen
	v.Seg, v.Off, v.GenOff = e.seg, e.off+uint64(j)*uint64(e.stride)+slotHead, e.genBase+j*8
	v.Tier, v.Att, v.Refs, v.Pins, v.Err = s.tier, s.att, int(s.refs), 0, nil
	if s.flags&flagPinned != 0 {
		v.Pins = c.pinned(id)
	}
	if s.remote != none {
		v.Where = c.remotes.loc(&c.remotes.all[s.remote])
	} else {
		v.Where = Loc{}
	}
	if s.state == published || s.state == transient {
		v.Cap = e.room
		v.Head.BodyLen, v.Head.Tier = s.size, s.htier
		v.Head.Sum = s.sum
	} else {
		v.Cap = s.size
		v.Head.BodyLen, v.Head.Tier = 0, 0
		v.Head.Sum = wire.Sum{}
	}
}

// Touch marks the leading hits of a chain as used, front to back, and returns
// their number. A caller that will reserve room for the rest of the chain
// touches (or better, acquires) first, so that it cannot evict its own hits.
func (c *Core) Touch(ns wire.Namespace, chain []wire.Key) (hits int) {
	nsi, ok := c.nsOf[ns]
	if !ok {
		return 0
	}
	for at := 0; at < len(chain); at += chunk {
		var ids [chunk]uint32
		keys := chain[at:min(at+chunk, len(chain))]
		c.findAll(nsi, keys, &ids)
		for i := range keys {
			if ids[i] >= remoteBit {
				return hits
			}
			c.touch(ids[i])
			hits++
		}
	}
	return hits
}

func (c *Core) touch(id uint32) {
	s := c.slot(id)
	if s.refs > 0 {
		c.use(id, s)
		s.flags |= flagUsed
		return
	}
	c.unidle(id, s)
	c.use(id, s)
	s.flags |= flagUsed
	c.idle(id, s)
}

// Stat describes a key in whatever namespace it is published: for the operator,
// who may see all of them. A published block comes first, then a copy outside.
func (c *Core) Stat(k wire.Key) (View, error) {
	found := View{Key: k, Err: errAbsent}
	for nsi := range c.ns {
		id := c.find(uint16(nsi), &k)
		if id == none {
			continue
		}
		c.describe(&found, id, c.ns[nsi].id, &k)
		if found.Err == nil {
			return found, nil
		}
	}
	return found, found.Err
}

// List appends to dst the published and transient slots from slot number *at
// on, at most up to dst's capacity, and moves *at on. It returns an empty slice
// at the end.
func (c *Core) List(at *uint32, dst []View) []View {
	for uint64(*at>>c.geo.slotBits) < uint64(len(c.ext)) && len(dst) < cap(dst) {
		s := c.known(*at)
		if s == nil {
			*at = (*at>>c.geo.slotBits + 1) << c.geo.slotBits
			continue
		}
		if s.state == published || s.state == transient {
			dst = dst[:len(dst)+1]
			c.fill(&dst[len(dst)-1], *at)
		}
		*at++
	}
	return dst
}
