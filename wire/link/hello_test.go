package link

import (
	"bytes"
	"errors"
	"testing"

	"meridian/wire"
)

var helloKind = newKind[Hello](TypeHello,
	sample{"dialler", Frame{Flags: FlagCritical}, Hello{
		Min: 1, Max: 1, Agent: fill[[16]byte](0x10), Inc: 0x0102030405060708, Lane: 2, Features: 1 << 40,
		Limits: Limits{Reqs: MaxReqs, Items: MaxItems, Frame: MaxData, BytesInFlight: MaxBytesInFlight, LingerMS: 5000},
		Nonce:  fill[[32]byte](0x40),
		Auth:   []TLV{{AuthName, []byte("node-a")}, {AuthPSK, bytes.Repeat([]byte{0xaa}, 32)}, {0xfff0, []byte("from a later version")}},
	}},
	sample{"acceptor without auth", Frame{Flags: FlagCritical}, Hello{
		Min: 1, Max: 3, Agent: fill[[16]byte](0xe0), Inc: 7, Session: fill[[16]byte](0x80), Limits: Limits{Reqs: 1, Items: 1, Frame: MinFrame, BytesInFlight: 1 << 20},
		Nonce: fill[[32]byte](0xc0), Auth: []TLV{{AuthNone, nil}},
	}},
	sample{"nothing", Frame{Flags: FlagCritical}, Hello{}},
	sample{"engine", Frame{Flags: FlagCritical}, Hello{Min: 1, Max: 1, Features: FeatureLocal}},
	sample{"engine that asks for its ring", Frame{Flags: FlagCritical}, Hello{Min: 1, Max: 1, Features: FeatureLocal | FeatureRing}},
	sample{"first session of a group, which asks for a secret", Frame{Flags: FlagCritical}, Hello{Min: 1, Max: 1, Agent: fill[[16]byte](0x30), Inc: 9,
		Features: FeatureLocal | FeatureRing | FeatureGroup, Auth: []TLV{{AuthPeer, nil}, {AuthGroup, nil}}}},
	sample{"session that joins a group, without checksums from here on", Frame{Flags: FlagCritical}, Hello{Min: 1, Max: 1, Agent: fill[[16]byte](0x30), Inc: 9,
		Features: FeatureLocal | FeatureRing | FeatureGroup | FeaturePlain, Auth: []TLV{{AuthGroup, bytes.Repeat([]byte{0xab}, GroupSecret)}}}},
)

func TestHello(t *testing.T) { helloKind.check(t) }

func TestHelloWithoutMagicIsLinkMagic(t *testing.T) {
	for _, b := range [][]byte{nil, []byte("MLN"), []byte("MRDN"), []byte("GET / HTTP/1.1"), with(helloKind.payload(0), 3, 'g')} {
		helloKind.refuse(t, string(b), b, wire.CodeLinkMagic, 0)
	}
}

func TestHelloRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := helloKind.payload(0)
	helloKind.refuse(t, "lane 17", with(p, 48, MaxLanes+1), wire.CodeInvalid, 48)
	if h, err := Parse[Hello](with(p, 48, MaxLanes)); err != nil || h.Lane != MaxLanes {
		t.Errorf("the highest lane: %d, %v", h.Lane, err)
	}
	helloKind.refuse(t, "reserved after lane", with(p, 51, 1), wire.CodeInvalid, 51)
	helloKind.refuse(t, "reserved after auth", with(p, 114, 1), wire.CodeInvalid, 114)
	helloKind.refuse(t, "17 auth elements", with(p, 112, MaxTLVs+1), wire.CodeLength, 112)
	helloKind.refuse(t, "an auth element above 1 KiB", with(p, 119, 5), wire.CodeLength, 118)
}

func TestHelloFindsAuthAndIgnoresUnknownElements(t *testing.T) {
	h, err := Parse[Hello](helloKind.payload(0))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := h.Find(AuthName); !ok || string(v) != "node-a" {
		t.Errorf("name %q, %v", v, ok)
	}
	if v, ok := h.Find(AuthCert); ok || v != nil {
		t.Errorf("certificate %x, %v, want none", v, ok)
	}
}

func TestHelloAgreesOnTheNewestCommonVersion(t *testing.T) {
	for _, c := range []struct{ aMin, aMax, bMin, bMax, want uint16 }{
		{1, 1, 1, 1, 1}, {1, 3, 2, 5, 3}, {2, 5, 1, 3, 3}, {1, 9, 4, 4, 4}, {1, 1, 2, 2, 0}, {3, 4, 1, 2, 0},
	} {
		v, err := Hello{Min: c.aMin, Max: c.aMax}.Agree(Hello{Min: c.bMin, Max: c.bMax})
		if v != c.want || (c.want == 0) != errors.Is(err, wire.CodeLinkVersion) {
			t.Errorf("%+v: %d, %v", c, v, err)
		}
	}
}
