package link

import (
	"encoding/hex"
	"testing"

	"meridian/wire"
)

var evictedKind = newKind[Evicted](TypeEvicted,
	sample{"two blocks", Frame{}, Evicted{Items: []EvictedItem{{Req: 1, NS: 2, Key: fill[wire.Key](1)}, {Req: 1<<32 - 1, NS: 1<<16 - 1, Key: fill[wire.Key](2)}}}},
	sample{"none", Frame{}, Evicted{}},
)

func TestEvicted(t *testing.T) { evictedKind.check(t) }

func TestEvictedItemIs40BytesAsTheProtocolPageSays(t *testing.T) {
	x := EvictedItem{Req: 0x01020304, NS: 0x1112, Key: fill[wire.Key](0xc0)}
	p := Evicted{Items: []EvictedItem{x}}.Append(nil)
	if got, want := hex.EncodeToString(p[evictedFixed:]), "04030201"+"1211"+"0000"+hex.EncodeToString(x.Key[:]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestEvictedRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	evictedKind.refuse(t, "reserved in the second item", with(evictedKind.payload(0), 4+40+6, 1), wire.CodeInvalid, 50)
}
