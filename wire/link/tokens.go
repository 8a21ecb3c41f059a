package link

import (
	"fmt"

	"meridian/wire"
)

const tokensFixed = 8

// Tokens are one step's tokens in columns: Tok holds N[i] tokens of Req[i], one
// after the other. len(N) is len(Req) and the sum of N is len(Tok); Append does
// not check it, the peer's Parse does.
type Tokens struct {
	Req []uint32
	N   []uint8
	Tok []int32
}

// Length is the bytes that Append adds.
func (x Tokens) Length() int { return tokensFixed + 4*len(x.Req) + len(x.N) + 4*len(x.Tok) }

// Append appends the payload.
func (x Tokens) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, uint32(len(x.Req)))
	le.PutUint32(p[4:], uint32(len(x.Tok)))
	p = p[tokensFixed:]
	for i, v := range x.Req {
		le.PutUint32(p[4*i:], v)
	}
	p = p[4*len(x.Req):]
	putTokens(p[copy(p, x.N):], x.Tok)
	return b
}

// Parse sets x from a payload, in the memory of its columns.
func (x *Tokens) Parse(b []byte) error {
	c := cursor{b: b}
	n, t := c.count("n", MaxRows), c.count("tok_n", MaxTokens)
	req, per := c.records("req", n, 4), c.records("per_req", n, 1)
	if c.fail != nil {
		return c.end()
	}
	sum := 0
	for _, v := range per {
		sum += int(v)
	}
	if sum != t {
		return &FrameError{Code: wire.CodeInvalid, Offset: 4, Field: "tok_n", Got: uint64(t), Limit: uint64(sum),
			Text: fmt.Sprintf("tok_n: %d tokens, the requests have %d", t, sum)}
	}
	x.Tok = c.tokens("tok", x.Tok, t)
	if c.fail != nil {
		return c.end()
	}
	x.Req, x.N = sized(x.Req, n), sized(x.N, n)
	copy(x.N, per)
	for i := range x.Req {
		x.Req[i] = le.Uint32(req[4*i:])
	}
	return c.end()
}
