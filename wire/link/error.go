package link

import "meridian/wire"

const errorFixed = 12

// Error says why a lane is closed. It is the last frame of its sender.
type Error struct {
	Code   wire.Code
	Offset uint64 // of the fault, in bytes from the lane's start
	Text   string
}

// Length is the bytes that Append adds.
func (x Error) Length() int { return errorFixed + len(clip(x.Text)) }

// Append appends the payload; Text is cut at MaxText.
func (x Error) Append(b []byte) []byte {
	text := clip(x.Text)
	b = le.AppendUint64(b, x.Offset)
	b = le.AppendUint16(b, uint16(Outward(x.Code)))
	b = le.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// Parse sets x from a payload.
func (x *Error) Parse(b []byte) error {
	c := cursor{b: b}
	x.Offset = c.u64("offset")
	x.Code = Outward(wire.Code(c.u16("code")))
	x.Text = c.text("text", c.size("text_len", MaxText))
	return c.end()
}
