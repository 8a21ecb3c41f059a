package link

const pullFixed = 12

// Pull asks for bodies. It is sent only when room for Max bytes of every item
// is reserved: that is its credit.
type Pull struct {
	DeadlineMS, LeaseMS uint32
	Items               []Want
}

// Length is the bytes that Append adds.
func (x Pull) Length() int { return pullFixed + len(x.Items)*wantLen }

// Append appends the payload.
func (x Pull) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.DeadlineMS)
	le.PutUint32(p[4:], x.LeaseMS)
	le.PutUint32(p[8:], uint32(len(x.Items)))
	putWants(p[pullFixed:], x.Items)
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Pull) Parse(b []byte) error {
	c := cursor{b: b}
	x.DeadlineMS, x.LeaseMS = c.u32("deadline_ms"), c.u32("lease_ms")
	x.Items = c.wants(x.Items, c.count("n", MaxItems))
	return c.end()
}
