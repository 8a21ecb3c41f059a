package link

import "meridian/wire"

const openedFixed = 10

// Opened answers Open. Field, Ours and Theirs are set with GEOMETRY only.
type Opened struct {
	NS                  uint16
	Status              wire.Code
	Field, Ours, Theirs string
}

// Length is the bytes that Append adds.
func (x Opened) Length() int {
	return openedFixed + len(clip(x.Field)) + len(clip(x.Ours)) + len(clip(x.Theirs))
}

// Append appends the payload; texts are cut at MaxText.
func (x Opened) Append(b []byte) []byte {
	field, ours, theirs := clip(x.Field), clip(x.Ours), clip(x.Theirs)
	b = le.AppendUint16(b, x.NS)
	b = le.AppendUint16(b, uint16(outwardOpen(x.Status)))
	b = le.AppendUint16(b, uint16(len(field)))
	b = le.AppendUint16(b, uint16(len(ours)))
	b = le.AppendUint16(b, uint16(len(theirs)))
	b = append(b, field...)
	b = append(b, ours...)
	return append(b, theirs...)
}

// Parse sets x from a payload.
func (x *Opened) Parse(b []byte) error {
	c := cursor{b: b}
	x.NS = c.u16("ns")
	x.Status = outwardOpen(wire.Code(c.u16("status")))
	f, o, t := c.size("field_len", MaxText), c.size("ours_len", MaxText), c.size("theirs_len", MaxText)
	x.Field, x.Ours, x.Theirs = c.text("field", f), c.text("ours", o), c.text("theirs", t)
	return c.end()
}
