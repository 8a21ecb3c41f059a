package link

import "meridian/wire"

const endFixed = 12

// End ends a request.
type End struct {
	Code    wire.Code
	RetryMS uint32      // BUSY: when to ask again
	Status  []wire.Code // an item a status, or none
	Text    string      // for people
}

// Length is the bytes that Append adds.
func (x End) Length() int { return endFixed + len(x.Status)*codeLen + len(clip(x.Text)) }

// Append appends the payload; Text is cut at MaxText.
func (x End) Append(b []byte) []byte {
	text := clip(x.Text)
	n := len(x.Status) * codeLen
	b, p := extend(b, endFixed+n+len(text))
	le.PutUint16(p, uint16(Outward(x.Code)))
	le.PutUint16(p[2:], uint16(len(text)))
	le.PutUint32(p[4:], x.RetryMS)
	le.PutUint32(p[8:], uint32(len(x.Status)))
	putCodes(p[endFixed:], x.Status)
	copy(p[endFixed+n:], text)
	return b
}

// Parse sets x from a payload, in the memory of x.Status. It allocates for a
// Text that is not empty.
func (x *End) Parse(b []byte) error {
	c := cursor{b: b}
	x.Code = Outward(wire.Code(c.u16("code")))
	t := c.size("text_len", MaxText)
	x.RetryMS = c.u32("retry_ms")
	x.Status = c.codes("status", x.Status, c.count("n", MaxItems))
	x.Text = c.text("text", t)
	return c.end()
}
