package link

const reserveFixed = 12

// Reserve asks for room for blocks whose bytes come by Fill.
type Reserve struct {
	DeadlineMS uint32
	TTLms      uint32 // how long the room is kept; 0 and more than MaxLease: MaxLease
	Items      []StoreItem
}

// Length is the bytes that Append adds.
func (x Reserve) Length() int { return reserveFixed + len(x.Items)*storeItemLen }

// Append appends the payload.
func (x Reserve) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.DeadlineMS)
	le.PutUint32(p[4:], x.TTLms)
	le.PutUint32(p[8:], uint32(len(x.Items)))
	putStoreItems(p[reserveFixed:], x.Items)
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Reserve) Parse(b []byte) error {
	c := cursor{b: b}
	x.DeadlineMS, x.TTLms = c.u32("deadline_ms"), c.u32("ttl_ms")
	x.Items = c.storeItems(x.Items, c.count("n", MaxItems))
	for i := range x.Items {
		if off := x.Items[i].Off; off != 0 {
			c.refuse(errValue("off", reserveFixed+i*storeItemLen+8, off, 0))
			break
		}
	}
	return c.end()
}
