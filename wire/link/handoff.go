package link

const handoffLen = 8

// Handoff ends a generation request, done, whose blocks wait for a peer.
type Handoff struct {
	Req    uint32
	KeepMS uint32 // how long they wait; not 0
}

// Length is the bytes that Append adds.
func (x Handoff) Length() int { return handoffLen }

// Append appends the payload.
func (x Handoff) Append(b []byte) []byte {
	return le.AppendUint32(le.AppendUint32(b, x.Req), x.KeepMS)
}

// Parse sets x from a payload.
func (x *Handoff) Parse(b []byte) error {
	c := cursor{b: b}
	x.Req, x.KeepMS = c.u32("req"), c.u32("keep_ms")
	return c.end()
}
