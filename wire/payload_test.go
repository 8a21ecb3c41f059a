package wire

import (
	"bytes"
	"testing"
)

func TestDecodeCutAtEveryByte(t *testing.T) {
	body := patterned(70)
	p := payloadOf(t, ThinkActive, body)
	for n := range p {
		need := uint64(len(p))
		if n < HeaderLen {
			need = HeaderLen
		}
		for m := range modeNames {
			h, got, err := Decode(p[:n], m, MaxBody)
			wantError(t, err, &TruncatedError{Have: uint64(n), Need: need})
			if h != (Header{}) || got != nil {
				t.Fatalf("cut at %d: a failed Decode returned %+v, %x", n, h, got)
			}
		}
	}
}

// flipOutcome says what a reader must answer to payload p, valid but for one
// flipped bit in byte i.
func flipOutcome(p []byte, i int, m Mode, limit uint32) Code {
	le32 := func(b []byte) uint64 {
		return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24
	}
	switch {
	case i < 4:
		return CodeMagic
	case i < 8:
		return CodeVersion
	case i < 12:
		n, have := le32(p[8:]), uint64(len(p)-HeaderLen)
		switch {
		case n > uint64(limit):
			return CodeTooLarge
		case n > have:
			return CodeTruncated
		default: // shorter: the sum is of another body, before any talk of trailing bytes
			return CodeChecksum
		}
	case i == 12 && m == Strict && p[12] > 2:
		return CodeTier
	case i == 12:
		return CodeOK // another valid tier: the checksum covers the body only
	case i < 16 && m == Strict:
		return CodePadding
	case i < 16:
		return CodeOK
	default:
		return CodeChecksum
	}
}

func TestDecodeEverySingleBitFlip(t *testing.T) {
	const limit = 1 << 10
	body := []byte("reasoning-kv")
	good := payloadOf(t, ThinkComplete, body)
	for i := range good {
		for bit := range 8 {
			p := bytes.Clone(good)
			p[i] ^= 1 << bit
			for m, name := range modeNames {
				want := flipOutcome(p, i, m, limit)
				h, got, err := Decode(p, m, limit)
				if CodeOf(err) != want {
					t.Fatalf("%s: byte %d bit %d: %v, want %v", name, i, bit, err, want)
				}
				if want == CodeOK && (!bytes.Equal(got, body) || h.Tier != min(Tier(p[12]), OutputCritical)) {
					t.Fatalf("%s: byte %d bit %d: %+v %q", name, i, bit, h, got)
				}
			}
		}
	}
}

func TestDecodeTrailingBytes(t *testing.T) {
	body := patterned(33)
	p := append(payloadOf(t, ThinkActive, body), "tail"...)
	_, _, err := Decode(p, Strict, MaxBody)
	wantError(t, err, &TrailingError{N: 4})
	h, got, err := Decode(p, Lenient, MaxBody)
	if err != nil || h.BodyLen != 33 || !bytes.Equal(got, body) {
		t.Fatalf("lenient: %+v %x %v", h, got, err)
	}
	p[HeaderLen] ^= 1
	_, _, err = Decode(p, Strict, MaxBody)
	wantError(t, err, &ChecksumError{Want: SumOf(body), Got: SumOf(p[HeaderLen : HeaderLen+33])})
}

func TestDecodeBodyAliasesAndDoesNotReachBehind(t *testing.T) {
	p := append(payloadOf(t, ThinkActive, []byte("body")), "behind"...)
	_, body, err := Decode(p, Lenient, MaxBody)
	if err != nil {
		t.Fatal(err)
	}
	if &body[0] != &p[HeaderLen] {
		t.Fatal("the body was copied")
	}
	_ = append(body, "XXXXXX"...)
	if string(p[HeaderLen+4:]) != "behind" {
		t.Fatal("an append to the body overwrote what follows it")
	}
}

func TestSealWritesOnlyTheHeader(t *testing.T) {
	for _, g := range goldenHeaders {
		p := append(bytes.Repeat([]byte{0xee}, HeaderLen), g.body...)
		h, err := Seal(p, g.tier)
		if err != nil {
			t.Fatal(err)
		}
		if want := append(fromHex(t, g.header), g.body...); !bytes.Equal(p, want) {
			t.Fatalf("%s: sealed %.64x, want %.64x", g.name, p, want)
		}
		if int(h.BodyLen) != len(g.body) || h.Tier != g.tier {
			t.Fatalf("%s: header %+v", g.name, h)
		}
	}
}

func TestMintingRefusesWhatNoReaderTakes(t *testing.T) {
	p := bytes.Repeat([]byte{0xee}, HeaderLen+4)
	before := bytes.Clone(p)
	_, err := Seal(p, 3)
	wantError(t, err, &TierError{Got: 3})
	_, err = Seal(p[:HeaderLen-1], ThinkActive)
	wantError(t, err, &TruncatedError{Have: HeaderLen - 1, Need: HeaderLen})
	if !bytes.Equal(p, before) {
		t.Fatal("a refused Seal changed the payload")
	}
	_, err = Mint(255, nil)
	wantError(t, err, &TierError{Got: 255})
	b, err := AppendPayload([]byte("kept"), 4, []byte("body"))
	wantError(t, err, &TierError{Got: 4})
	if string(b) != "kept" {
		t.Fatalf("a refused AppendPayload returned %q", b)
	}
	wantError(t, mintable(ThinkActive, MaxBody, MaxBody), nil)
	wantError(t, mintable(ThinkActive, MaxBody+1, MaxBody), &TooLargeError{Got: MaxBody + 1, Limit: MaxBody})
}

func TestAppendPayloadAppends(t *testing.T) {
	b, err := AppendPayload([]byte("before"), ThinkActive, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "before" + string(payloadOf(t, ThinkActive, []byte("payload"))); string(b) != want {
		t.Fatalf("got %q, want %q", b, want)
	}
}
