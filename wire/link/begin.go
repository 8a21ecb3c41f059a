package link

const beginFixed = 24

// Begin starts a generation request on the engine socket.
type Begin struct {
	Req       uint32
	ID, Model string
	Prompt    []int32   // at most MaxPrompt: of a longer one its last tokens
	SLOms     [3]uint32 // first answer token, pace of thinking, pace of output; 0: none
}

// Length is the bytes that Append adds.
func (x Begin) Length() int {
	return beginFixed + len(clip(x.ID)) + len(clip(x.Model)) + 4*len(x.Prompt)
}

// Append appends the payload; texts are cut at MaxText.
func (x Begin) Append(b []byte) []byte {
	id, model := clip(x.ID), clip(x.Model)
	b = le.AppendUint32(b, x.Req)
	for _, v := range x.SLOms {
		b = le.AppendUint32(b, v)
	}
	b = le.AppendUint16(b, uint16(len(id)))
	b = le.AppendUint16(b, uint16(len(model)))
	b = le.AppendUint32(b, uint32(len(x.Prompt)))
	b, p := extend(b, 4*len(x.Prompt))
	putTokens(p, x.Prompt)
	b = append(b, id...)
	return append(b, model...)
}

// Parse sets x from a payload, in the memory of x.Prompt.
func (x *Begin) Parse(b []byte) error {
	c := cursor{b: b}
	x.Req = c.u32("req")
	for i := range x.SLOms {
		x.SLOms[i] = c.u32("slo_ms")
	}
	id, model := c.size("id_len", MaxText), c.size("model_len", MaxText)
	x.Prompt = c.tokens("prompt", x.Prompt, c.count("prompt_n", MaxPrompt))
	x.ID, x.Model = c.text("id", id), c.text("model", model)
	return c.end()
}

func putTokens(p []byte, s []int32) {
	for i, v := range s {
		le.PutUint32(p[4*i:], uint32(v))
	}
}

// tokens takes n token ids into s's memory.
func (c *cursor) tokens(field string, s []int32, n int) []int32 {
	p := c.records(field, n, 4)
	if c.fail != nil {
		return s[:0]
	}
	s = sized(s, n)
	for i := range s {
		s[i] = int32(le.Uint32(p[4*i:]))
	}
	return s
}
