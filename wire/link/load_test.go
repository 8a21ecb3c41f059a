package link

import (
	"encoding/hex"
	"testing"

	"meridian/wire"
)

var loadKind = newKind[Load](TypeLoad,
	sample{"a hint, a wait", Frame{Req: 43, Class: ClassUrgent}, Load{DeadlineMS: 1000, LeaseMS: 5000,
		Holders: []Holder{{Agent: fill[[16]byte](0x10), Inc: 7}, {Agent: fill[[16]byte](0x20), Inc: 1<<64 - 1}},
		Items:   []LoadItem{{NS: 1, Holder: 2, Slot: 4, Gen: 6, Key: fill[wire.Key](1)}, {NS: 1, Flags: WantFetch | WantWait, Holder: 1, Key: fill[wire.Key](2)}, {Key: fill[wire.Key](3)}}}},
	sample{"held", Frame{Req: 45, Class: ClassBulk}, Load{DeadlineMS: 1, Hold: true, Items: []LoadItem{{NS: 2, Flags: WantTransient | 0x8000, Slot: 1, Gen: 1}}}},
	sample{"none", Frame{Req: 47}, Load{}},
)

func TestLoad(t *testing.T) { loadKind.check(t) }

func TestLoadItemIs48BytesAsTheProtocolPageSays(t *testing.T) {
	x := LoadItem{NS: 0x0102, Flags: 0x0304, Holder: 0x0506, Slot: 0x11121314, Gen: 0x21222324, Key: fill[wire.Key](0xc0)}
	p := make([]byte, loadItemLen)
	x.put(p)
	want := "0201" + "0403" + "0605" + "0000" + "14131211" + "24232221" + hex.EncodeToString(x.Key[:])
	if got := hex.EncodeToString(p); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLoadRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := loadKind.payload(0)
	loadKind.refuse(t, "hold 2", with(p, 8, 2), wire.CodeInvalid, 8)
	loadKind.refuse(t, "reserved", with(p, 9, 1), wire.CodeInvalid, 9)
	loadKind.refuse(t, "257 holders", with(with(p, 10, 1), 11, 1), wire.CodeLength, 10)
	loadKind.refuse(t, "holder 3 of 2", with(p, 16+2*24+4, 3), wire.CodeInvalid, 68)
	loadKind.refuse(t, "reserved in the second item", with(p, 16+2*24+48+7, 1), wire.CodeInvalid, 118)

	nobody := Load{Holders: []Holder{{Agent: [16]byte{1}, Inc: 1}, {Inc: 7}}}
	loadKind.refuse(t, "a holder without agent", nobody.Append(nil), wire.CodeInvalid, 40)
	never := Load{Holders: []Holder{{Agent: [16]byte{1}}}}
	loadKind.refuse(t, "a holder without incarnation", never.Append(nil), wire.CodeInvalid, 32)
	loadKind.refuse(t, "holder 1 of none", Load{Items: []LoadItem{{Holder: 1}}}.Append(nil), wire.CodeInvalid, 20)
}

// The bytes of all records are looked for before a record's value is.
func TestALoadCutShortIsALengthErrorBeforeItsValuesCount(t *testing.T) {
	b := Load{Holders: []Holder{{}}, Items: []LoadItem{{Holder: 9}}}.Append(nil)
	loadKind.refuse(t, "cut", b[:len(b)-1], wire.CodeLength, uint64(len(b)-1))
}
