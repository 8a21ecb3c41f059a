package link

import (
	"encoding/hex"
	"testing"

	"meridian/wire"
)

var acquiredKind = newKind[Acquired](TypeAcquired,
	sample{"hit and miss", Frame{Req: 5}, Acquired{Lease: fill[[16]byte](0x70), Items: []Place{
		{Tier: wire.OutputCritical, Att: wire.AttestProducer, Slot: 3, Gen: 8, Seg: 1, Len: 65536, Off: 1<<33 + 64, GenOff: 24},
		{Status: wire.CodeAbsent}}}},
	sample{"none", Frame{Req: 5}, Acquired{}},
)

func TestAcquired(t *testing.T) { acquiredKind.check(t) }

func TestPlaceIs32BytesAsTheProtocolPageSays(t *testing.T) {
	x := Place{Status: 0x7ffe, Tier: 1, Att: 2, Slot: 0x11121314, Gen: 0x21222324, Seg: 0x31323334, Len: 0x41424344, GenOff: 0x51525354, Off: 0x6162636465666768}
	p := make([]byte, placeLen)
	x.put(p)
	want := "fe7f" + "01" + "02" + "14131211" + "24232221" + "34333231" + "44434241" + "54535251" + "6867666564636261"
	if got := hex.EncodeToString(p); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAcquiredRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := acquiredKind.payload(0)
	acquiredKind.refuse(t, "tier 3", with(p, 20+2, 3), wire.CodeInvalid, 22)
	acquiredKind.refuse(t, "attest 3", with(p, 20+32+3, 3), wire.CodeInvalid, 55)
}
