package link

import "meridian/wire"

const evictedFixed = 4

// EvictedItem is a block that went.
type EvictedItem struct {
	Req uint32 // the generation request that it belonged to
	NS  uint16
	Key wire.Key
}

// Evicted tells an engine which blocks of its running requests were evicted.
type Evicted struct{ Items []EvictedItem }

// Length is the bytes that Append adds.
func (x Evicted) Length() int { return evictedFixed + len(x.Items)*evictedItemLen }

// Append appends the payload.
func (x Evicted) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, uint32(len(x.Items)))
	for i := range x.Items {
		q := p[evictedFixed+i*evictedItemLen:][:evictedItemLen]
		le.PutUint32(q, x.Items[i].Req)
		le.PutUint16(q[4:], x.Items[i].NS)
		le.PutUint16(q[6:], 0)
		copy(q[8:], x.Items[i].Key[:])
	}
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Evicted) Parse(b []byte) error {
	c := cursor{b: b}
	n := c.count("n", MaxItems)
	p := c.records("items", n, evictedItemLen)
	if c.fail != nil {
		return c.end()
	}
	x.Items = sized(x.Items, n)
	for i := range x.Items {
		at := i * evictedItemLen
		q := p[at:][:evictedItemLen]
		x.Items[i] = EvictedItem{Req: le.Uint32(q), NS: le.Uint16(q[4:]), Key: wire.Key(q[8:])}
		if r := le.Uint16(q[6:]); r != 0 {
			c.refuse(errValue("reserved", evictedFixed+at+6, uint64(r), 0))
		}
	}
	return c.end()
}
