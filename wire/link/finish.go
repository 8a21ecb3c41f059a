package link

const finishLen = 8

// Reasons of Finish.
const (
	FinishDone  uint8 = 0
	FinishAbort uint8 = 1
)

// Finish ends a generation request. Idempotent.
type Finish struct {
	Req    uint32
	Reason uint8
}

// Length is the bytes that Append adds.
func (x Finish) Length() int { return finishLen }

// Append appends the payload.
func (x Finish) Append(b []byte) []byte {
	return append(le.AppendUint32(b, x.Req), x.Reason, 0, 0, 0)
}

// Parse sets x from a payload.
func (x *Finish) Parse(b []byte) error {
	c := cursor{b: b}
	x.Req = c.u32("req")
	x.Reason = c.u8("reason")
	if x.Reason > FinishAbort {
		c.refuse(errValue("reason", c.off-1, uint64(x.Reason), uint64(FinishAbort)))
	}
	c.zero(3)
	return c.end()
}
