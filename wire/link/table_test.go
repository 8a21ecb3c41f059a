package link

import (
	"testing"

	"meridian/wire"
)

var tableKind = newKind[Table](TypeTable,
	sample{"hit and miss", Frame{Req: 21}, Table{Lease: fill[[16]byte](0x70), Items: []Have{
		{Tier: wire.ThinkActive, Att: wire.AttestProducer, Len: 7, Head: [32]byte(wire.Header{BodyLen: 7, Tier: wire.ThinkActive, Sum: wire.SumOf([]byte("payload"))}.Append(nil)), Slot: 3, Gen: 8},
		{Status: wire.CodeAbsent},
		{Status: 60000}}}},
	sample{"none", Frame{Req: 21}, Table{}},
)

func TestTable(t *testing.T) { tableKind.check(t) }

func TestTableRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := tableKind.payload(0)
	tableKind.refuse(t, "tier 3", with(p, 20+2, 3), wire.CodeInvalid, 22)
	tableKind.refuse(t, "attest 3 in the second item", with(p, 20+48+3, 3), wire.CodeInvalid, 71)
}
