package link

import (
	"encoding/hex"
	"testing"

	"meridian/wire"
)

func TestStoreItemIs60BytesAsTheProtocolPageSays(t *testing.T) {
	x := StoreItem{NS: 0x0102, Tier: TierAuto, Flags: StorePin, Len: 0x11121314, Off: 0x6162636465666768, Key: fill[wire.Key](0xc0),
		Req: 0x21222324, Pos: 0x31323334, PinMS: 0x41424344}
	p := make([]byte, storeItemLen)
	x.put(p)
	want := "0201" + "ff" + "01" + "14131211" + "6867666564636261" + hex.EncodeToString(x.Key[:]) + "24232221" + "34333231" + "44434241"
	if got := hex.EncodeToString(p); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// refuseStoreItem proves what is refused of a StoreItem in payload p, whose flags
// and pin_ms are 0, at offset at.
func refuseStoreItem(t *testing.T, k *kind, p []byte, at int) {
	t.Helper()
	k.refuse(t, "tier 3", with(p, at+2, 3), wire.CodeInvalid, uint64(at+2))
	k.refuse(t, "tier 254", with(p, at+2, 254), wire.CodeInvalid, uint64(at+2))
	k.refuse(t, "flags 2", with(p, at+3, 2), wire.CodeInvalid, uint64(at+3))
	k.refuse(t, "pin_ms without PIN", with(p, at+59, 1), wire.CodeInvalid, uint64(at+56))
}
