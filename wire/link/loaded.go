package link

const loadedFixed = 24

// Loaded is a part of the answer to Load: of the items from First on, in the order
// asked.
type Loaded struct {
	Lease [16]byte // of this part; zero where no item is OK
	First uint32
	Items []Place // at least one
}

// Length is the bytes that Append adds.
func (x Loaded) Length() int { return loadedFixed + len(x.Items)*placeLen }

// Append appends the payload.
func (x Loaded) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	copy(p, x.Lease[:])
	le.PutUint32(p[16:], x.First)
	le.PutUint32(p[20:], uint32(len(x.Items)))
	for i := range x.Items {
		x.Items[i].put(p[loadedFixed+i*placeLen:])
	}
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Loaded) Parse(b []byte) error {
	c := cursor{b: b}
	x.Lease = c.id("lease")
	x.First = c.u32("first")
	n := c.count("n", MaxItems)
	if c.fail == nil && n == 0 {
		c.refuse(errZero("n", loadedFixed-4))
	}
	p := c.records("items", n, placeLen)
	if c.fail != nil {
		return c.end()
	}
	x.Items = sized(x.Items, n)
	for i := range x.Items {
		x.Items[i].get(&c, p[i*placeLen:], loadedFixed+i*placeLen)
	}
	return c.end()
}
