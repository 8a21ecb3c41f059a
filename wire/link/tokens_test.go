package link

import (
	"testing"

	"meridian/wire"
)

var tokensKind = newKind[Tokens](TypeTokens,
	sample{"one step", Frame{}, Tokens{Req: []uint32{1, 2, 3}, N: []uint8{1, 0, 3}, Tok: []int32{151667, -1, 2, 3}}},
	sample{"none", Frame{}, Tokens{}},
	sample{"one", Frame{}, Tokens{Req: []uint32{0xfffffffe}, N: []uint8{1}, Tok: []int32{9}}},
)

func TestTokens(t *testing.T) { tokensKind.check(t) }

func TestTokensWhoseColumnsDisagreeAreRefused(t *testing.T) {
	x := Tokens{Req: []uint32{1, 2}, N: []uint8{1, 2}, Tok: []int32{5, 6}}
	tokensKind.refuse(t, "a token missing", x.Append(nil), wire.CodeInvalid, 4)
	x = Tokens{Req: []uint32{1, 2}, N: []uint8{1}, Tok: []int32{5}}
	if _, err := Parse[Tokens](x.Append(nil)); err == nil || len(x.Append(nil)) != x.Length() {
		t.Errorf("a column of other length: %v", err)
	}
	tokensKind.refuse(t, "too many requests", Tokens{Req: make([]uint32, MaxRows+1), N: make([]uint8, MaxRows+1)}.Append(nil), wire.CodeLength, 0)
	tokensKind.refuse(t, "too many tokens", Tokens{Tok: make([]int32, MaxTokens+1)}.Append(nil), wire.CodeLength, 4)
}
