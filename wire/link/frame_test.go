package link

import (
	"encoding/hex"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"meridian/wire"
)

// seal gives header bytes their crc32c.
func seal(b []byte) []byte {
	le.PutUint32(b[20:], crc32.Checksum(b[:20], castagnoli))
	return b
}

func TestFrameIs24BytesAsTheProtocolPageSays(t *testing.T) {
	f := Frame{Len: 0x00010203, Type: TypePull, Flags: FlagCritical, Class: ClassBulk, Req: 0x1112131415161718, Arg: 0x21222324}
	b := f.Append([]byte("before"))[6:]
	want := "03020100" + "06" + "01" + "03" + "00" + "1817161514131211" + "24232221"
	if got := hex.EncodeToString(b[:20]); got != want || len(b) != f.Length() || f.Length() != FrameLen {
		t.Errorf("got  %s in %d bytes\nwant %s", got, len(b), want)
	}
	if back, err := ParseFrame(b); err != nil || back != f {
		t.Errorf("read back %+v, %v", back, err)
	}
}

// The check value of CRC-32C for "123456789" (RFC 3720 appendix B.4 has others
// of the same polynomial).
func TestTheChecksumIsCastagnoli(t *testing.T) {
	if got := crc32.Checksum([]byte("123456789"), castagnoli); got != 0xe3069283 {
		t.Errorf("%08x", got)
	}
}

func TestParseFrameCutAnywhereIsALengthError(t *testing.T) {
	b := Frame{Type: TypePing, Len: TrailerLen}.Append(nil)
	for n := range len(b) {
		if _, err := ParseFrame(b[:n]); !errors.Is(err, wire.CodeLength) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if f, err := ParseFrame(append(b, "next"...)); err != nil || f.Type != TypePing {
		t.Errorf("with bytes behind: %+v, %v", f, err)
	}
}

func TestParseFrameLooksAtTheChecksumFirst(t *testing.T) {
	for off := range FrameLen {
		b := Frame{Type: TypePing, Len: TrailerLen}.Append(nil)
		b[off] ^= 0x80
		if _, err := ParseFrame(b); !errors.Is(err, wire.CodeCRC) {
			t.Errorf("byte %d: %v, want CRC", off, err)
		}
	}
}

func TestParseFrameRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	for _, c := range []struct {
		off int
		v   byte
	}{{5, 2}, {5, 0x81}, {6, 4}, {7, 1}} {
		b := Frame{Type: TypePing, Len: TrailerLen}.Append(nil)
		b[c.off] = c.v
		_, err := ParseFrame(seal(b))
		var fe *FrameError
		if !errors.As(err, &fe) || fe.Code != wire.CodeInvalid || fe.Offset != uint64(c.off) {
			t.Errorf("byte %d = %d: %v", c.off, c.v, err)
		}
	}
}

func TestParseFrameHoldsEveryTypeToItsLength(t *testing.T) {
	for v := range 256 {
		lo, hi := Type(v).bounds()
		if lo < 4 || hi > MaxControl || lo > hi {
			t.Errorf("%v: %d to %d", Type(v), lo, hi)
		}
		for _, c := range []struct {
			n  uint32
			ok bool
		}{{lo - 1, false}, {lo, true}, {hi, true}, {hi + 1, false}, {1<<32 - 1, false}} {
			f, err := ParseFrame(Frame{Type: Type(v), Len: c.n}.Append(nil))
			if c.ok && (err != nil || f.Len != c.n) || !c.ok && !errors.Is(err, wire.CodeLength) {
				t.Errorf("%v of %d bytes: %v", Type(v), c.n, err)
			}
		}
	}
}

// Every specimen and every largest batch must fit the bounds of its type.
func TestTheLargestMessagesFitTheirFrames(t *testing.T) {
	for _, c := range []struct {
		t Type
		m Message
	}{
		{TypeHas, Has{Items: make([]Want, MaxItems)}}, {TypePull, Pull{Items: make([]Want, MaxItems)}},
		{TypeTable, Table{Items: make([]Have, MaxItems)}}, {TypePush, Push{Items: make([]PushItem, MaxItems)}},
		{TypeGrant, Grant{Status: make([]wire.Code, MaxItems)}},
		{TypeEnd, End{Status: make([]wire.Code, MaxItems), Text: strings.Repeat("x", MaxText)}},
		{TypeRelease, Release{Leases: make([][16]byte, MaxLeases)}}, {TypeMap, Map{Segs: make([]Seg, MaxSegs)}},
		{TypeAcquire, Acquire{Items: make([]Want, MaxItems)}}, {TypeAcquired, Acquired{Items: make([]Place, MaxItems)}},
		{TypePut, Put{Items: make([]PutItem, MaxItems)}}, {TypeWindowEnd, WindowEnd{Items: make([]PutItem, MaxItems)}},
		{TypeTokens, Tokens{Req: make([]uint32, MaxRows), N: make([]uint8, MaxRows), Tok: make([]int32, MaxTokens)}},
		{TypePhase, Phase{Inject: make([]int32, MaxInject)}}, {TypeWindow, WindowReq{Len: make([]uint32, MaxRanges)}},
		{TypeOpen, Open{Manifest: make([]byte, MaxManifest)}},
		{TypeLoad, Load{Holders: make([]Holder, MaxHolders), Items: make([]LoadItem, MaxItems)}}, {TypeLoaded, Loaded{Items: make([]Place, MaxItems)}},
		{TypeReserve, Reserve{Items: make([]StoreItem, MaxItems)}}, {TypeReserved, Reserved{Status: make([]wire.Code, MaxItems)}},
		{TypeFill, Fill{Items: make([]FillItem, MaxItems)}}, {TypePutAt, PutAt{Items: make([]StoreItem, MaxItems)}},
		{TypePhaseAt, PhaseAt{Inject: make([]int32, MaxInject)}}, {TypeEvicted, Evicted{Items: make([]EvictedItem, MaxItems)}},
		{TypeResume, Resume{Prompt: make([]int32, MaxPrompt-1), Decoded: make([]int32, 1), ID: strings.Repeat("x", MaxText), Model: strings.Repeat("x", MaxText)}},
	} {
		f, err := ParseFrame(AppendMessage(nil, Frame{Type: c.t}, c.m))
		if err != nil {
			t.Errorf("%v: %v", c.t, err)
		} else if _, hi := c.t.bounds(); f.Len != hi {
			t.Errorf("%v: the largest is %d bytes, the bound %d", c.t, f.Len, hi)
		}
	}
}

func TestTheTypesOfGroupAreThoseOfThePage(t *testing.T) {
	for v := range 256 {
		if got := Type(v).NeedsGroup(); got != (v >= 43 && v <= 53) {
			t.Errorf("%v: %v", Type(v), got)
		}
	}
}

func TestTypesHaveNames(t *testing.T) {
	if TypeHello.String() != "HELLO" || TypeWindowEnd.String() != "WINDOWEND" || Type(22).String() != "type 22" || Type(255).String() != "type 255" {
		t.Error(TypeHello, TypeWindowEnd, Type(22), Type(255))
	}
	if Type(0).Known() || Type(22).Known() || Type(54).Known() || Type(255).Known() || !TypeWindowed.Known() || !TypeProcess.Known() {
		t.Error("Known")
	}
}
