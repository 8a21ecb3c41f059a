package link

const releaseFixed = 4

// Release gives leases back.
type Release struct{ Leases [][16]byte }

// Length is the bytes that Append adds.
func (x Release) Length() int { return releaseFixed + len(x.Leases)*leaseLen }

// Append appends the payload.
func (x Release) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, uint32(len(x.Leases)))
	for i := range x.Leases {
		copy(p[releaseFixed+i*leaseLen:], x.Leases[i][:])
	}
	return b
}

// Parse sets x from a payload, in the memory of x.Leases.
func (x *Release) Parse(b []byte) error {
	c := cursor{b: b}
	n := c.count("n", MaxLeases)
	p := c.records("leases", n, leaseLen)
	if c.fail != nil {
		return c.end()
	}
	x.Leases = sized(x.Leases, n)
	for i := range x.Leases {
		x.Leases[i] = [leaseLen]byte(p[i*leaseLen:])
	}
	return c.end()
}
