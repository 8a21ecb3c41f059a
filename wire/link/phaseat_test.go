package link

import (
	"testing"

	"meridian/wire"
)

var phaseAtKind = newKind[PhaseAt](TypePhaseAt,
	sample{"force the end of thinking", Frame{}, PhaseAt{Req: 1, Kind: 3, Used: 2048, Reason: 1, Pos: 3100, Inject: []int32{13, 151668}}},
	sample{"a kind of a later version", Frame{}, PhaseAt{Req: 1, Kind: 200, Reason: 201, Pos: 1<<32 - 1}},
)

func TestPhaseAt(t *testing.T) { phaseAtKind.check(t) }

func TestPhaseAtRefusesMoreTokensThanTheLimit(t *testing.T) {
	phaseAtKind.refuse(t, "257 tokens", PhaseAt{Inject: make([]int32, MaxInject+1)}.Append(nil), wire.CodeLength, 6)
}
