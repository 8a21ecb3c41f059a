package link

const putAtFixed = 8

// PutAt is Put with positions and pins.
type PutAt struct {
	DeadlineMS uint32
	Items      []StoreItem
}

// Length is the bytes that Append adds.
func (x PutAt) Length() int { return putAtFixed + len(x.Items)*storeItemLen }

// Append appends the payload.
func (x PutAt) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.DeadlineMS)
	le.PutUint32(p[4:], uint32(len(x.Items)))
	putStoreItems(p[putAtFixed:], x.Items)
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *PutAt) Parse(b []byte) error {
	c := cursor{b: b}
	x.DeadlineMS = c.u32("deadline_ms")
	x.Items = c.storeItems(x.Items, c.count("n", MaxItems))
	return c.end()
}
