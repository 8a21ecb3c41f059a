package link

const windowFixed = 12

// WindowReq opens an ingest window: memory that a foreign fabric may write.
type WindowReq struct {
	NS    uint16
	Len   []uint32 // bytes of each range
	Proto uint8    // the fabric whose peer will write; a daemon answers UNSUPPORTED to one it lacks
	TTLms uint32
}

// Length is the bytes that Append adds.
func (x WindowReq) Length() int { return windowFixed + 4*len(x.Len) }

// Append appends the payload.
func (x WindowReq) Append(b []byte) []byte {
	b = le.AppendUint16(b, x.NS)
	b = append(b, x.Proto, 0)
	b = le.AppendUint32(b, x.TTLms)
	b = le.AppendUint32(b, uint32(len(x.Len)))
	for _, v := range x.Len {
		b = le.AppendUint32(b, v)
	}
	return b
}

// Parse sets x from a payload, in the memory of x.Len.
func (x *WindowReq) Parse(b []byte) error {
	c := cursor{b: b}
	x.NS = c.u16("ns")
	x.Proto = c.u8("proto")
	c.zero(1)
	x.TTLms = c.u32("ttl_ms")
	n := c.count("n", MaxRanges)
	p := c.records("len", n, 4)
	if c.fail != nil {
		return c.end()
	}
	x.Len = sized(x.Len, n)
	for i := range x.Len {
		x.Len[i] = le.Uint32(p[4*i:])
	}
	return c.end()
}
