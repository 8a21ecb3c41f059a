package link

import (
	"encoding/hex"
	"testing"

	"meridian/wire"
)

func TestWantIs52BytesAsTheProtocolPageSays(t *testing.T) {
	w := Want{NS: 0x0102, Flags: 0x8003, Off: 0x11121314, Max: 0x21222324, Slot: 0x31323334, Gen: 0x41424344, Key: fill[wire.Key](0xc0)}
	p := make([]byte, wantLen)
	w.put(p)
	want := "0201" + "0380" + "14131211" + "24232221" + "34333231" + "44434241" + hex.EncodeToString(w.Key[:])
	if got := hex.EncodeToString(p); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back Want
	if back.get(p); back != w {
		t.Errorf("read back %+v", back)
	}
}
