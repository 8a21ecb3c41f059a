package link

import (
	"encoding/hex"
	"testing"

	"meridian/wire"
)

func TestHaveIs48BytesAsTheProtocolPageSays(t *testing.T) {
	h := Have{Status: 0x7ffe, Tier: wire.OutputCritical, Att: wire.AttestIngest, Len: 0x11121314, Head: fill[[32]byte](0xa0), Slot: 0x31323334, Gen: 0x41424344}
	p := make([]byte, haveLen)
	h.put(p)
	want := "fe7f" + "02" + "01" + "14131211" + hex.EncodeToString(h.Head[:]) + "34333231" + "44434241"
	if got := hex.EncodeToString(p); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back Have
	c := cursor{b: p}
	if back.get(&c, p, 0); back != h || c.fail != nil {
		t.Errorf("read back %+v, %v", back, c.fail)
	}
}
