package link

import (
	"testing"

	"meridian/wire"
)

var loadedKind = newKind[Loaded](TypeLoaded,
	sample{"first part", Frame{Req: 43}, Loaded{Lease: fill[[16]byte](0x70), Items: []Place{
		{Tier: wire.OutputCritical, Att: wire.AttestProducer, Slot: 3, Gen: 8, Seg: 1, Len: 65536, Off: 1<<33 + 64, GenOff: 24}}}},
	sample{"last part, nothing in it", Frame{Req: 43}, Loaded{First: 1, Items: []Place{{Status: wire.CodeAbsent}, {Status: wire.CodeNSUnknown}}}},
)

func TestLoaded(t *testing.T) { loadedKind.check(t) }

func TestLoadedRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := loadedKind.payload(1)
	loadedKind.refuse(t, "tier 3", with(p, 24+2, 3), wire.CodeInvalid, 26)
	loadedKind.refuse(t, "attest 3", with(p, 24+32+3, 3), wire.CodeInvalid, 59)
	loadedKind.refuse(t, "no item", with(p, 20, 0), wire.CodeInvalid, 20)
}
