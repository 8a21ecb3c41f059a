package link

import (
	"testing"

	"meridian/wire"
)

var finishKind = newKind[Finish](TypeFinish,
	sample{"done", Frame{Req: 17}, Finish{Req: 1}},
	sample{"abort", Frame{Req: 19}, Finish{Req: 0xffffffff, Reason: FinishAbort}},
)

func TestFinish(t *testing.T) { finishKind.check(t) }

func TestFinishRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := finishKind.payload(0)
	finishKind.refuse(t, "reason 2", with(p, 4, 2), wire.CodeInvalid, 4)
	finishKind.refuse(t, "reserved", with(p, 7, 1), wire.CodeInvalid, 7)
}
