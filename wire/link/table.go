package link

const tableFixed = 20

// Table answers Has, Stat and Pull: an entry for each item asked, in its order.
type Table struct {
	Lease [16]byte // PULL only; zero: none
	Items []Have
}

// Length is the bytes that Append adds.
func (x Table) Length() int { return tableFixed + len(x.Items)*haveLen }

// Append appends the payload.
func (x Table) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	copy(p, x.Lease[:])
	le.PutUint32(p[16:], uint32(len(x.Items)))
	for i := range x.Items {
		x.Items[i].put(p[tableFixed+i*haveLen:])
	}
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Table) Parse(b []byte) error {
	c := cursor{b: b}
	x.Lease = c.id("lease")
	n := c.count("n", MaxItems)
	p := c.records("items", n, haveLen)
	if c.fail != nil {
		return c.end()
	}
	x.Items = sized(x.Items, n)
	for i := range x.Items {
		x.Items[i].get(&c, p[i*haveLen:], tableFixed+i*haveLen)
	}
	return c.end()
}
