package link

import (
	"errors"
	"testing"

	"meridian/wire"
)

var mapKind = newKind[Map](TypeMap,
	sample{"segment, generations, staging", Frame{}, Map{Segs: []Seg{
		{ID: 1, Size: 1 << 30, Kind: SegBytes}, {ID: 1, Size: 1 << 13, Kind: SegGens}, {Size: 1 << 40, Kind: SegStaging}}}},
	sample{"request", Frame{Req: 1}, Map{}},
	sample{"request for a staging ring", Frame{Req: 1}, Map{Segs: []Seg{{Size: 1 << 20, Kind: SegStaging}}}},
)

func TestMap(t *testing.T) { mapKind.check(t) }

func TestMapRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := mapKind.payload(0)
	mapKind.refuse(t, "kind 0", with(p, 4+4, 0), wire.CodeInvalid, 8)
	mapKind.refuse(t, "kind 4", with(p, 4+16+4, 4), wire.CodeInvalid, 24)
	mapKind.refuse(t, "a staging ring with an id", with(p, 4+2*16+3, 1), wire.CodeInvalid, 36)
	mapKind.refuse(t, "reserved", with(p, 4+7, 1), wire.CodeInvalid, 11)
	mapKind.refuse(t, "254 segments", Map{Segs: make([]Seg, MaxSegs+1)}.Append(nil), wire.CodeLength, 0)
}

func TestAMapCutShortSaysHowMuchItsSegmentsNeed(t *testing.T) {
	p := mapKind.payload(0)
	_, err := Parse[Map](p[:len(p)-1])
	var fe *FrameError
	if !errors.As(err, &fe) || fe.Code != wire.CodeLength || fe.Offset != uint64(len(p)-1) || fe.Got != 3*segLen-1 || fe.Limit != 3*segLen {
		t.Errorf("%v (have %d, need %d), want LENGTH with have %d, need %d", err, fe.Got, fe.Limit, 3*segLen-1, 3*segLen)
	}
}
