package link

const phaseAtFixed = 16

// PhaseAt is Phase with the position that it speaks of.
type PhaseAt struct {
	Req    uint32
	Kind   uint8
	Reason uint8
	Used   uint32  // think tokens used
	Pos    uint32  // of the first token that the phase applies to; kind 4: tokens in all
	Inject []int32 // tokens to append to the request, at most MaxInject
}

// Length is the bytes that Append adds.
func (x PhaseAt) Length() int { return phaseAtFixed + 4*len(x.Inject) }

// Append appends the payload.
func (x PhaseAt) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.Req)
	p[4], p[5] = x.Kind, x.Reason
	le.PutUint16(p[6:], uint16(len(x.Inject)))
	le.PutUint32(p[8:], x.Used)
	le.PutUint32(p[12:], x.Pos)
	putTokens(p[phaseAtFixed:], x.Inject)
	return b
}

// Parse sets x from a payload, in the memory of x.Inject.
func (x *PhaseAt) Parse(b []byte) error {
	c := cursor{b: b}
	x.Req = c.u32("req")
	x.Kind, x.Reason = c.u8("kind"), c.u8("reason")
	n := c.size("inject_n", MaxInject)
	x.Used, x.Pos = c.u32("used"), c.u32("pos")
	x.Inject = c.tokens("inject", x.Inject, n)
	return c.end()
}
