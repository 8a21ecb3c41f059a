package link

const acquireFixed = 16

// Acquire asks for leases on mapped bytes.
type Acquire struct {
	DeadlineMS, LeaseMS uint32
	Hold                bool // never lapses while the process lives; LeaseMS is not looked at
	Items               []Want
}

// Length is the bytes that Append adds.
func (x Acquire) Length() int { return acquireFixed + len(x.Items)*wantLen }

// Append appends the payload.
func (x Acquire) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.DeadlineMS)
	le.PutUint32(p[4:], x.LeaseMS)
	le.PutUint32(p[8:], flagByte(x.Hold))
	le.PutUint32(p[12:], uint32(len(x.Items)))
	putWants(p[acquireFixed:], x.Items)
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Acquire) Parse(b []byte) error {
	c := cursor{b: b}
	x.DeadlineMS, x.LeaseMS = c.u32("deadline_ms"), c.u32("lease_ms")
	x.Hold = c.flag("hold")
	c.zero(3)
	x.Items = c.wants(x.Items, c.count("n", MaxItems))
	return c.end()
}

// flagByte is a flag and the three reserved bytes after it.
func flagByte(v bool) uint32 {
	if v {
		return 1
	}
	return 0
}
