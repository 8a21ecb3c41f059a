package link

import "meridian/wire"

const putFixed = 8

// PutItem is one block of Put: Off and Len name bytes of the staging ring.
type PutItem struct {
	NS   uint16
	Tier wire.Tier
	Len  uint32
	Off  uint64
	Key  wire.Key
	Req  uint32 // the generation request it belongs to; 0: none
}

func (x *PutItem) put(p []byte) {
	_ = p[putItemLen-1]
	le.PutUint16(p, x.NS)
	p[2] = byte(x.Tier)
	p[3] = 0
	le.PutUint32(p[4:], x.Len)
	le.PutUint64(p[8:], x.Off)
	copy(p[16:48], x.Key[:])
	le.PutUint32(p[48:], x.Req)
}

// get takes the record at offset at of c.
func (x *PutItem) get(c *cursor, p []byte, at int) {
	_ = p[putItemLen-1]
	x.NS = le.Uint16(p)
	x.Tier = c.tier(p[2], at+2)
	if p[3] != 0 {
		c.refuse(errValue("reserved", at+3, uint64(p[3]), 0))
	}
	x.Len = le.Uint32(p[4:])
	x.Off = le.Uint64(p[8:])
	copy(x.Key[:], p[16:48])
	x.Req = le.Uint32(p[48:])
}

func putPutItems(p []byte, items []PutItem) {
	for i := range items {
		items[i].put(p[i*putItemLen:])
	}
}

// putItems takes n items into s's memory.
func (c *cursor) putItems(s []PutItem, n int) []PutItem {
	at := c.off
	p := c.records("items", n, putItemLen)
	if c.fail != nil {
		return s[:0]
	}
	s = sized(s, n)
	for i := range s {
		s[i].get(c, p[i*putItemLen:], at+i*putItemLen)
	}
	return s
}

// Put reserves, copies, hashes and publishes in one message.
type Put struct {
	DeadlineMS uint32
	Items      []PutItem
}

// Length is the bytes that Append adds.
func (x Put) Length() int { return putFixed + len(x.Items)*putItemLen }

// Append appends the payload.
func (x Put) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.DeadlineMS)
	le.PutUint32(p[4:], uint32(len(x.Items)))
	putPutItems(p[putFixed:], x.Items)
	return b
}

// Parse sets x from a payload, in the memory of x.Items.
func (x *Put) Parse(b []byte) error {
	c := cursor{b: b}
	x.DeadlineMS = c.u32("deadline_ms")
	x.Items = c.putItems(x.Items, c.count("n", MaxItems))
	return c.end()
}
