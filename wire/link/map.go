package link

const mapFixed = 4

// Kinds of Seg.
const (
	SegBytes   uint8 = 1 // block bytes, read-only
	SegGens    uint8 = 2 // generation words, read-only
	SegStaging uint8 = 3 // the engine's staging ring, read-write
)

// Seg is one mapping of an engine; its descriptor travels by SCM_RIGHTS in the
// same sendmsg, in the same order. SegBytes and SegGens of one segment have one
// ID.
type Seg struct {
	ID   uint32 // 0 for SegStaging
	Size uint64 // bytes
	Kind uint8
}

// Map hands descriptors to an engine (daemon to engine, unsolicited, Req 0, or
// as answer to a Map request with no segments).
type Map struct{ Segs []Seg }

// Length is the bytes that Append adds.
func (x Map) Length() int { return mapFixed + len(x.Segs)*segLen }

// Append appends the payload.
func (x Map) Append(b []byte) []byte {
	b = le.AppendUint32(b, uint32(len(x.Segs)))
	for i := range x.Segs {
		b = le.AppendUint32(b, x.Segs[i].ID)
		b = append(b, x.Segs[i].Kind, 0, 0, 0)
		b = le.AppendUint64(b, x.Segs[i].Size)
	}
	return b
}

// Parse sets x from a payload, in the memory of x.Segs.
func (x *Map) Parse(b []byte) error {
	c := cursor{b: b}
	n := c.count("n", MaxSegs)
	if left := len(b) - c.off; c.fail == nil && left < n*segLen {
		c.refuse(errShort("segs", len(b), uint64(left), uint64(n*segLen)))
	}
	if c.fail != nil {
		return c.end()
	}
	x.Segs = sized(x.Segs, n)
	for i := range x.Segs {
		s := &x.Segs[i]
		s.ID, s.Kind = c.u32("id"), c.u8("kind")
		switch {
		case s.Kind < SegBytes || s.Kind > SegStaging:
			c.refuse(errValue("kind", c.off-1, uint64(s.Kind), uint64(SegStaging)))
		case s.Kind == SegStaging && s.ID != 0:
			c.refuse(errValue("id", c.off-5, uint64(s.ID), 0))
		}
		c.zero(3)
		s.Size = c.u64("size")
	}
	return c.end()
}
