package link

const hasFixed = 8

// Has asks which blocks exist, and STAT the same without counting as a use.
type Has struct {
	DeadlineMS uint32
	Items      []Want
}

// Length is the bytes that Append adds.
func (x Has) Length() int { return hasFixed + len(x.Items)*wantLen }

// Append appends the payload.
func (x Has) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.DeadlineMS)
	le.PutUint32(p[4:], uint32(len(x.Items)))
	putWants(p[hasFixed:], x.Items)
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Has) Parse(b []byte) error {
	c := cursor{b: b}
	x.DeadlineMS = c.u32("deadline_ms")
	x.Items = c.wants(x.Items, c.count("n", MaxItems))
	return c.end()
}
