package link

const phaseFixed = 12

// Phase is advice to the engine about one request. An engine ignores kinds and
// reasons that it does not know.
type Phase struct {
	Req    uint32
	Kind   uint8
	Used   uint32 // think tokens used
	Reason uint8
	Inject []int32 // tokens to append to the request, at most MaxInject
}

// Length is the bytes that Append adds.
func (x Phase) Length() int { return phaseFixed + 4*len(x.Inject) }

// Append appends the payload.
func (x Phase) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.Req)
	p[4], p[5] = x.Kind, x.Reason
	le.PutUint16(p[6:], uint16(len(x.Inject)))
	le.PutUint32(p[8:], x.Used)
	putTokens(p[phaseFixed:], x.Inject)
	return b
}

// Parse sets x from a payload, in the memory of x.Inject.
func (x *Phase) Parse(b []byte) error {
	c := cursor{b: b}
	x.Req = c.u32("req")
	x.Kind, x.Reason = c.u8("kind"), c.u8("reason")
	n := c.size("inject_n", MaxInject)
	x.Used = c.u32("used")
	x.Inject = c.tokens("inject", x.Inject, n)
	return c.end()
}
