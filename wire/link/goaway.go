package link

import "meridian/wire"

const goAwayFixed = 8

// GoAway announces that the sender leaves in MS milliseconds: no new requests,
// those that run end.
type GoAway struct {
	MS   uint32
	Code wire.Code
	Text string
}

// Length is the bytes that Append adds.
func (x GoAway) Length() int { return goAwayFixed + len(clip(x.Text)) }

// Append appends the payload; Text is cut at MaxText.
func (x GoAway) Append(b []byte) []byte {
	text := clip(x.Text)
	b = le.AppendUint32(b, x.MS)
	b = le.AppendUint16(b, uint16(Outward(x.Code)))
	b = le.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// Parse sets x from a payload.
func (x *GoAway) Parse(b []byte) error {
	c := cursor{b: b}
	x.MS = c.u32("ms")
	x.Code = Outward(wire.Code(c.u16("code")))
	x.Text = c.text("text", c.size("text_len", MaxText))
	return c.end()
}
