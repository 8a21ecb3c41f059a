package link

import (
	"strings"
	"testing"

	"meridian/wire"
)

var beginKind = newKind[Begin](TypeBegin,
	sample{"prompt", Frame{Req: 15}, Begin{Req: 1, ID: "cmpl-1", Model: "tiny", Prompt: []int32{1, -1, 1 << 30}, SLOms: [3]uint32{500, 40, 80}}},
	sample{"bare", Frame{Req: 17}, Begin{Req: 2}},
)

func TestBegin(t *testing.T) { beginKind.check(t) }

func TestBeginWithTheLongestPromptFitsAControlFrame(t *testing.T) {
	x := Begin{ID: strings.Repeat("i", MaxText), Model: strings.Repeat("m", MaxText), Prompt: make([]int32, MaxPrompt)}
	b := AppendMessage(nil, Frame{Type: TypeBegin}, x)
	if _, err := ParseFrame(b); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse[Begin](b[FrameLen : len(b)-TrailerLen]); err != nil {
		t.Fatal(err)
	}
	beginKind.refuse(t, "one token more", Begin{Prompt: make([]int32, MaxPrompt+1)}.Append(nil), wire.CodeLength, 20)
}
