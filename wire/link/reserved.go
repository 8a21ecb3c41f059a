package link

import "meridian/wire"

const reservedFixed = 12

// Reserved answers Reserve: a status for each item asked, in its order.
type Reserved struct {
	Rsv    uint64 // names the reservation; 0 where no item is OK
	Status []wire.Code
}

// Length is the bytes that Append adds.
func (x Reserved) Length() int { return reservedFixed + len(x.Status)*codeLen }

// Append appends the payload.
func (x Reserved) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint64(p, x.Rsv)
	le.PutUint32(p[8:], uint32(len(x.Status)))
	putCodes(p[reservedFixed:], x.Status)
	return b
}

// Parse sets x from a payload, in the memory of x.Status.
func (x *Reserved) Parse(b []byte) error {
	c := cursor{b: b}
	x.Rsv = c.u64("rsv")
	x.Status = c.codes("status", x.Status, c.count("n", MaxItems))
	return c.end()
}
