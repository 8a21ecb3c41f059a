package link

import "meridian/wire"

const pushFixed = 8

// PushItem is one item of Push.
type PushItem struct {
	NS   uint16
	Key  wire.Key
	Have Have // Slot and Gen are the pusher's own, for its logs
}

// Push offers bodies; as TypeDeliver it goes with them, where Standing told of homes.
type Push struct {
	DeadlineMS uint32
	Items      []PushItem
}

// Length is the bytes that Append adds.
func (x Push) Length() int { return pushFixed + len(x.Items)*pushItemLen }

// Append appends the payload.
func (x Push) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.DeadlineMS)
	le.PutUint32(p[4:], uint32(len(x.Items)))
	for i := range x.Items {
		it, q := &x.Items[i], p[pushFixed+i*pushItemLen:]
		le.PutUint16(q, it.NS)
		le.PutUint16(q[2:], 0)
		copy(q[4:36], it.Key[:])
		it.Have.put(q[36:])
	}
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Push) Parse(b []byte) error {
	c := cursor{b: b}
	x.DeadlineMS = c.u32("deadline_ms")
	n := c.count("n", MaxItems)
	p := c.records("items", n, pushItemLen)
	if c.fail != nil {
		return c.end()
	}
	x.Items = sized(x.Items, n)
	for i := range x.Items {
		at := i * pushItemLen
		it, q := &x.Items[i], p[at:]
		it.NS = le.Uint16(q)
		if r := le.Uint16(q[2:]); r != 0 {
			c.refuse(errValue("reserved", pushFixed+at+2, uint64(r), 0))
		}
		copy(it.Key[:], q[4:36])
		it.Have.get(&c, q[36:], pushFixed+at+36)
	}
	return c.end()
}
