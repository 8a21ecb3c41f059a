package link

const fillFixed = 16

// FillItem says where the bytes of a reserved item lie.
type FillItem struct {
	Item uint32 // of Reserve, counted from 0
	Len  uint32 // bytes of body, at most those reserved
	Off  uint64 // of the body in the staging ring
}

// Fill brings bytes of reserved items.
type Fill struct {
	Rsv   uint64
	Last  bool // what is left of the reservation is given back
	Items []FillItem
}

// Length is the bytes that Append adds.
func (x Fill) Length() int { return fillFixed + len(x.Items)*fillItemLen }

// Append appends the payload.
func (x Fill) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint64(p, x.Rsv)
	le.PutUint32(p[8:], flagByte(x.Last))
	le.PutUint32(p[12:], uint32(len(x.Items)))
	for i := range x.Items {
		q := p[fillFixed+i*fillItemLen:][:fillItemLen]
		le.PutUint32(q, x.Items[i].Item)
		le.PutUint32(q[4:], x.Items[i].Len)
		le.PutUint64(q[8:], x.Items[i].Off)
	}
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Fill) Parse(b []byte) error {
	c := cursor{b: b}
	x.Rsv = c.u64("rsv")
	x.Last = c.flag("last")
	c.zero(3)
	n := c.count("n", MaxItems)
	p := c.records("items", n, fillItemLen)
	if c.fail != nil {
		return c.end()
	}
	x.Items = sized(x.Items, n)
	for i := range x.Items {
		q := p[i*fillItemLen:][:fillItemLen]
		x.Items[i] = FillItem{Item: le.Uint32(q), Len: le.Uint32(q[4:]), Off: le.Uint64(q[8:])}
	}
	return c.end()
}
