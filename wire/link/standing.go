package link

import "meridian/wire"

const standingLen = 12

// Standing tells how many homes are reserved for pushes in one flight: Deliver
// may bring that many bodies of namespace NS without a Grant of their own.
type Standing struct {
	NS   uint16    // the number that the sender's OPENED gave
	Tier wire.Tier // the lowest that a body may have
	N    uint32    // homes, at most MaxItems
	Len  uint32    // bytes of each
}

// Length is the bytes that Append adds.
func (x Standing) Length() int { return standingLen }

// Append appends the payload.
func (x Standing) Append(b []byte) []byte {
	b = le.AppendUint16(b, x.NS)
	b = append(b, byte(x.Tier), 0)
	b = le.AppendUint32(b, x.N)
	return le.AppendUint32(b, x.Len)
}

// Parse sets x from a payload.
func (x *Standing) Parse(b []byte) error {
	c := cursor{b: b}
	x.NS = c.u16("ns")
	x.Tier = c.tier(c.u8("tier"), c.off-1)
	c.zero(1)
	x.N = uint32(c.count("n", MaxItems))
	x.Len = c.u32("len")
	return c.end()
}
