package link

import "meridian/wire"

const acquiredFixed = 20

// Place is one granted block of Acquired. Off is the body's offset in segment
// Seg; the header lies in the HeaderLen bytes before it.
type Place struct {
	Status    wire.Code
	Tier      wire.Tier
	Att       wire.Attest
	Slot, Gen uint32
	Seg       uint32
	Len       uint32 // bytes of body
	Off       uint64
	GenOff    uint32 // byte offset of the slot's generation word in segment Seg's generation table
}

func (x *Place) put(p []byte) {
	_ = p[placeLen-1]
	le.PutUint16(p, uint16(Outward(x.Status)))
	p[2] = byte(x.Tier)
	p[3] = byte(x.Att)
	le.PutUint32(p[4:], x.Slot)
	le.PutUint32(p[8:], x.Gen)
	le.PutUint32(p[12:], x.Seg)
	le.PutUint32(p[16:], x.Len)
	le.PutUint32(p[20:], x.GenOff)
	le.PutUint64(p[24:], x.Off)
}

// get takes the record at offset at of c.
func (x *Place) get(c *cursor, p []byte, at int) {
	_ = p[placeLen-1]
	x.Status = Outward(wire.Code(le.Uint16(p)))
	x.Tier, x.Att = c.tier(p[2], at+2), c.attest(p[3], at+3)
	x.Slot = le.Uint32(p[4:])
	x.Gen = le.Uint32(p[8:])
	x.Seg = le.Uint32(p[12:])
	x.Len = le.Uint32(p[16:])
	x.GenOff = le.Uint32(p[20:])
	x.Off = le.Uint64(p[24:])
}

// Acquired answers Acquire: an entry for each item asked, in its order.
type Acquired struct {
	Lease [16]byte
	Items []Place
}

// Length is the bytes that Append adds.
func (x Acquired) Length() int { return acquiredFixed + len(x.Items)*placeLen }

// Append appends the payload.
func (x Acquired) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	copy(p, x.Lease[:])
	le.PutUint32(p[16:], uint32(len(x.Items)))
	for i := range x.Items {
		x.Items[i].put(p[acquiredFixed+i*placeLen:])
	}
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Acquired) Parse(b []byte) error {
	c := cursor{b: b}
	x.Lease = c.id("lease")
	n := c.count("n", MaxItems)
	p := c.records("items", n, placeLen)
	if c.fail != nil {
		return c.end()
	}
	x.Items = sized(x.Items, n)
	for i := range x.Items {
		x.Items[i].get(&c, p[i*placeLen:], acquiredFixed+i*placeLen)
	}
	return c.end()
}
