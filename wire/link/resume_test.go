package link

import (
	"testing"

	"meridian/wire"
)

var resumeKind = newKind[Resume](TypeResume,
	sample{"after a restart", Frame{Req: 63}, Resume{Req: 1, ID: "chatcmpl-1", Model: "qwen3-8b", First: 100, Prompt: []int32{1, -1, 1<<31 - 1},
		Decoded: []int32{151667, 5}, SLOms: [3]uint32{500, 20, 40}}},
	sample{"nothing decoded yet", Frame{Req: 65}, Resume{Req: 2, Model: "m", Prompt: []int32{5}}},
	sample{"nothing", Frame{Req: 67}, Resume{}},
)

func TestResume(t *testing.T) { resumeKind.check(t) }

func TestResumeRefusesMoreTokensThanTheLimit(t *testing.T) {
	all := Resume{Prompt: make([]int32, MaxPrompt-1), Decoded: make([]int32, 2)}
	resumeKind.refuse(t, "260,001 tokens", all.Append(nil), wire.CodeLength, 28)
	resumeKind.refuse(t, "a prompt of 260,001 tokens", Resume{Prompt: make([]int32, MaxPrompt+1)}.Append(nil), wire.CodeLength, 24)
	most := Resume{Prompt: make([]int32, MaxPrompt-2), Decoded: make([]int32, 2)}
	if x, err := Parse[Resume](most.Append(nil)); err != nil || len(x.Prompt) != MaxPrompt-2 || len(x.Decoded) != 2 {
		t.Errorf("260,000 tokens: %v", err)
	}
	p := resumeKind.payload(0)
	resumeKind.refuse(t, "a name that is not UTF-8", with(p, 32+5*4, 0xff), wire.CodeInvalid, 52)
}
