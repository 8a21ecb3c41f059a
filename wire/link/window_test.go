package link

import (
	"testing"

	"meridian/wire"
)

var windowKind = newKind[WindowReq](TypeWindow,
	sample{"two ranges", Frame{Req: 51}, WindowReq{NS: 1, Proto: 2, TTLms: 60000, Len: []uint32{1 << 20, 4096}}},
	sample{"none", Frame{Req: 53}, WindowReq{}},
)

func TestWindowReq(t *testing.T) { windowKind.check(t) }

func TestWindowReqRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	windowKind.refuse(t, "reserved", with(windowKind.payload(0), 3, 1), wire.CodeInvalid, 3)
	windowKind.refuse(t, "4097 ranges", WindowReq{Len: make([]uint32, MaxRanges+1)}.Append(nil), wire.CodeLength, 8)
}
