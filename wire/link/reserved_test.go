package link

import (
	"testing"

	"meridian/wire"
)

var reservedKind = newKind[Reserved](TypeReserved,
	sample{"one of three", Frame{Req: 55}, Reserved{Rsv: 0x0102030405060708, Status: []wire.Code{0, wire.CodeExists, wire.CodeFull}}},
	sample{"none", Frame{Req: 57}, Reserved{}},
)

func TestReserved(t *testing.T) { reservedKind.check(t) }
