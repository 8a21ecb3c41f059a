package link

import (
	"testing"

	"meridian/wire"
)

var phaseKind = newKind[Phase](TypePhase,
	sample{"force the end of thinking", Frame{}, Phase{Req: 1, Kind: 3, Used: 2048, Reason: 1, Inject: []int32{13, 151668}}},
	sample{"a kind of a later version", Frame{}, Phase{Req: 1, Kind: 200, Reason: 201}},
)

func TestPhase(t *testing.T) { phaseKind.check(t) }

func TestPhaseRefusesMoreTokensThanTheLimit(t *testing.T) {
	phaseKind.refuse(t, "257 tokens", Phase{Inject: make([]int32, MaxInject+1)}.Append(nil), wire.CodeLength, 6)
}
