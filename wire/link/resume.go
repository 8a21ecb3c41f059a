package link

const resumeFixed = 32

// Resume is Begin of a request of which tokens were decoded already.
type Resume struct {
	Req       uint32
	ID, Model string
	First     uint32  // position of Prompt's first token: 0 unless the prompt was cut to its last tokens
	Prompt    []int32 // with Decoded at most MaxPrompt
	Decoded   []int32
	SLOms     [3]uint32 // as in Begin
}

// Length is the bytes that Append adds.
func (x Resume) Length() int {
	return resumeFixed + len(clip(x.ID)) + len(clip(x.Model)) + 4*len(x.Prompt) + 4*len(x.Decoded)
}

// Append appends the payload; texts are cut at MaxText.
func (x Resume) Append(b []byte) []byte {
	id, model := clip(x.ID), clip(x.Model)
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.Req)
	for i, v := range x.SLOms {
		le.PutUint32(p[4+4*i:], v)
	}
	le.PutUint16(p[16:], uint16(len(id)))
	le.PutUint16(p[18:], uint16(len(model)))
	le.PutUint32(p[20:], x.First)
	le.PutUint32(p[24:], uint32(len(x.Prompt)))
	le.PutUint32(p[28:], uint32(len(x.Decoded)))
	p = p[resumeFixed:]
	putTokens(p, x.Prompt)
	p = p[4*len(x.Prompt):]
	putTokens(p, x.Decoded)
	p = p[4*len(x.Decoded):]
	copy(p[copy(p, id):], model)
	return b
}

// Parse sets x from a payload, in the memory of x.Prompt and x.Decoded.
func (x *Resume) Parse(b []byte) error {
	c := cursor{b: b}
	x.Req = c.u32("req")
	for i := range x.SLOms {
		x.SLOms[i] = c.u32("slo_ms")
	}
	id, model := c.size("id_len", MaxText), c.size("model_len", MaxText)
	x.First = c.u32("first")
	prompt := c.count("prompt_n", MaxPrompt)
	decoded := c.count("decoded_n", MaxPrompt-prompt)
	x.Prompt = c.tokens("prompt", x.Prompt, prompt)
	x.Decoded = c.tokens("decoded", x.Decoded, decoded)
	x.ID, x.Model = c.text("id", id), c.text("model", model)
	return c.end()
}
