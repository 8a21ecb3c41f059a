package link

import "meridian/wire"

const grantFixed = 4

// Grant answers Push, an item a status: only items that are OK are sent.
type Grant struct{ Status []wire.Code }

// Length is the bytes that Append adds.
func (x Grant) Length() int { return grantFixed + len(x.Status)*codeLen }

// Append appends the payload.
func (x Grant) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, uint32(len(x.Status)))
	putCodes(p[grantFixed:], x.Status)
	return b
}

// Parse sets x from a payload, in the memory of x.Status.
func (x *Grant) Parse(b []byte) error {
	c := cursor{b: b}
	x.Status = c.codes("status", x.Status, c.count("n", MaxItems))
	return c.end()
}
