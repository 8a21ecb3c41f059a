package link

const windowEndFixed = 16

// WindowEnd closes a window. With Commit its items are hashed and published;
// Off of an item counts from the window's first byte.
type WindowEnd struct {
	Addr   uint64
	Commit bool
	Items  []PutItem
}

// Length is the bytes that Append adds.
func (x WindowEnd) Length() int { return windowEndFixed + len(x.Items)*putItemLen }

// Append appends the payload.
func (x WindowEnd) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint64(p, x.Addr)
	le.PutUint32(p[8:], flagByte(x.Commit))
	le.PutUint32(p[12:], uint32(len(x.Items)))
	putPutItems(p[windowEndFixed:], x.Items)
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *WindowEnd) Parse(b []byte) error {
	c := cursor{b: b}
	x.Addr = c.u64("addr")
	x.Commit = c.flag("commit")
	c.zero(3)
	x.Items = c.putItems(x.Items, c.count("n", MaxItems))
	return c.end()
}
