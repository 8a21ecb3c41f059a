package link

const renewLen = 20

// Renew prolongs a lease to MS milliseconds from its arrival.
type Renew struct {
	Lease [16]byte
	MS    uint32
}

// Length is the bytes that Append adds.
func (x Renew) Length() int { return renewLen }

// Append appends the payload.
func (x Renew) Append(b []byte) []byte { return le.AppendUint32(append(b, x.Lease[:]...), x.MS) }

// Parse sets x from a payload.
func (x *Renew) Parse(b []byte) error {
	c := cursor{b: b}
	x.Lease = c.id("lease")
	x.MS = c.u32("ms")
	return c.end()
}
