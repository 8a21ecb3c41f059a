package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
)

// goldenHeaders are the published examples of MRDN v1, literally: none of them
// comes from this package.
var goldenHeaders = []struct {
	name   string
	tier   Tier
	body   []byte
	header string
}{
	{"empty", ThinkComplete, nil, "4d52444e010000000000000000000000af1349b9f5f9a1a6a0404dea36dcc949"},
	{"hello", ThinkComplete, []byte("hello disagg world"), "4d52444e010000001200000000000000b5991e5ca82b6864630d4c369fd90835"},
	{"payload", ThinkActive, []byte("payload"), "4d52444e010000000700000001000000ec90915fa26ab012a89a88ecc8b47e4d"},
	{"stars", OutputCritical, bytes.Repeat([]byte{0x2a}, 64), "4d52444e0100000040000000020000006c0faf6370479a209c749303e94f181d"},
	{"reasoning", ThinkComplete, []byte("reasoning-kv"), "4d52444e010000000c00000000000000f0113489ef383028cecdb96b31a45b34"},
	{"zeros", ThinkComplete, make([]byte, 16384), "4d52444e010000000040000000000000111f6c2f2ac0fc43154414a6e3e4c104"},
}

func TestHeaderGolden(t *testing.T) {
	for _, g := range goldenHeaders {
		t.Run(g.name, func(t *testing.T) {
			h, err := Mint(g.tier, g.body)
			if err != nil {
				t.Fatal(err)
			}
			if got := hex.EncodeToString(h.Append(nil)); got != g.header {
				t.Fatalf("header\n%s, want\n%s", got, g.header)
			}
			for m := range modeNames {
				back, err := ParseHeader(fromHex(t, g.header), m, uint32(len(g.body)))
				if err != nil || back != h {
					t.Fatalf("%s: parsed %+v, %v; want %+v", modeNames[m], back, err, h)
				}
			}
			if err := h.Check(g.body); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestHeaderAppendKeepsWhatIsBeforeAndPutWhatIsBehind(t *testing.T) {
	h := Header{BodyLen: 7, Tier: ThinkActive, Sum: SumOf([]byte("payload"))}
	got := h.Append([]byte("before"))
	if len(got) != len("before")+HeaderLen || !bytes.HasPrefix(got, []byte("before")) {
		t.Fatalf("Append made %d bytes: %x", len(got), got)
	}
	room := bytes.Repeat([]byte{0xff}, HeaderLen+3)
	h.Put(room)
	if !bytes.Equal(room[:HeaderLen], got[len("before"):]) || !bytes.Equal(room[HeaderLen:], []byte{0xff, 0xff, 0xff}) {
		t.Fatalf("Put made %x", room)
	}
}

func TestParseHeaderCutAtEveryByte(t *testing.T) {
	p := payloadOf(t, OutputCritical, []byte("x"))
	for n := range HeaderLen {
		for m := range modeNames {
			_, err := ParseHeader(p[:n], m, MaxBody)
			wantError(t, err, &TruncatedError{Have: uint64(n), Need: HeaderLen})
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("cut at %d: %v is not io.ErrUnexpectedEOF", n, err)
			}
		}
	}
}

// TestParseHeaderOrderOfChecks breaks everything at once, then repairs it from
// the first check on: each step must show the next error.
func TestParseHeaderOrderOfChecks(t *testing.T) {
	good := payloadOf(t, ThinkComplete, patterned(100))
	p := bytes.Clone(good)
	copy(p, "mrdn")
	p[4], p[12], p[14] = 2, 3, 9

	steps := []struct {
		repair          func()
		strict, lenient error
	}{
		{func() {}, &MagicError{Want: magic, Got: [4]byte{'m', 'r', 'd', 'n'}}, &MagicError{Want: magic, Got: [4]byte{'m', 'r', 'd', 'n'}}},
		{func() { copy(p, "MRDN") }, &VersionError{Got: 2}, &VersionError{Got: 2}},
		{func() { p[4] = 1 }, &TierError{Got: 3}, &TooLargeError{Got: 100, Limit: 99}},
		{func() { p[12] = 0 }, &PaddingError{Got: [3]byte{0, 9, 0}}, &TooLargeError{Got: 100, Limit: 99}},
		{func() { p[14] = 0 }, &TooLargeError{Got: 100, Limit: 99}, &TooLargeError{Got: 100, Limit: 99}},
	}
	for _, s := range steps {
		s.repair()
		_, err := ParseHeader(p, Strict, 99)
		wantError(t, err, s.strict)
		_, err = ParseHeader(p, Lenient, 99)
		wantError(t, err, s.lenient)
	}
	if !bytes.Equal(p, good) {
		t.Fatal("the steps did not repair the payload")
	}
}

func TestParseHeaderLimitIsIncluded(t *testing.T) {
	for _, n := range []uint32{0, 1, 4096, MaxBody - 1, MaxBody} {
		p := Header{BodyLen: n}.Append(nil)
		if h, err := ParseHeader(p, Strict, n); err != nil || h.BodyLen != n {
			t.Fatalf("length %d at its limit: %+v, %v", n, h, err)
		}
		if n > 0 {
			_, err := ParseHeader(p, Strict, n-1)
			wantError(t, err, &TooLargeError{Got: uint64(n), Limit: uint64(n - 1)})
		}
	}
}

func TestParseHeaderLenientTakesOldTiersAndPadding(t *testing.T) {
	want := map[byte]Tier{0: ThinkComplete, 1: ThinkActive, 2: OutputCritical, 3: OutputCritical, 128: OutputCritical, 255: OutputCritical}
	for b, tier := range want {
		for _, pad := range [][3]byte{{}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {255, 255, 255}} {
			p := Header{BodyLen: 5, Sum: SumOf([]byte("abcde"))}.Append(nil)
			p[12] = b
			copy(p[13:], pad[:])
			h, err := ParseHeader(p, Lenient, 5)
			if err != nil || h != (Header{BodyLen: 5, Tier: tier, Sum: SumOf([]byte("abcde"))}) {
				t.Fatalf("tier byte %d, padding %v: %+v, %v", b, pad, h, err)
			}
			_, err = ParseHeader(p, Strict, 5)
			switch {
			case b > 2:
				wantError(t, err, &TierError{Got: b})
			case pad != [3]byte{}:
				wantError(t, err, &PaddingError{Got: pad})
			case err != nil:
				t.Fatal(err)
			}
		}
	}
}

func TestHeaderCheckOrder(t *testing.T) {
	body := patterned(40)
	h := Header{BodyLen: 40, Sum: SumOf(body)}
	wantError(t, h.Check(body), nil)
	wantError(t, h.Check(body[:39]), &TruncatedError{Have: 71, Need: 72})
	wantError(t, h.Check(nil), &TruncatedError{Have: 32, Need: 72})
	wantError(t, h.Check(append(bytes.Clone(body), 1, 2)), &TrailingError{N: 2})

	wrong := append(bytes.Clone(body), 1, 2)
	wrong[39] ^= 1
	wantError(t, h.Check(wrong), &ChecksumError{Want: h.Sum, Got: SumOf(wrong[:40])})
}

func TestErrorsSayWhatDiffers(t *testing.T) {
	for _, c := range []struct {
		err  error
		code Code
		says []string
	}{
		{&TruncatedError{Have: 31, Need: 32}, CodeTruncated, []string{"31", "32"}},
		{&MagicError{Want: magic, Got: [4]byte{'M', 'N', 'C', 'K'}}, CodeMagic, []string{"MRDN", "MNCK"}},
		{&VersionError{Got: 7}, CodeVersion, []string{"1", "7"}},
		{&TierError{Got: 9}, CodeTier, []string{"0..2", "9"}},
		{&PaddingError{Got: [3]byte{1, 2, 3}}, CodePadding, []string{"010203"}},
		{&TooLargeError{Got: 101, Limit: 100}, CodeTooLarge, []string{"101", "100"}},
		{&ChecksumError{Want: Sum{0xaa}, Got: Sum{0xbb}}, CodeChecksum, []string{"aa00", "bb00"}},
		{&TrailingError{N: 12}, CodeTrailing, []string{"12"}},
		{&EnvelopeError{&TruncatedError{Have: 3, Need: 8}}, CodeEnvelope, []string{"envelope", "3", "8"}},
		{&ManifestError{Line: 4, Key: "dcp_size", Text: "missing"}, CodeManifest, []string{"line 4", "dcp_size", "missing"}},
		{&GeometryError{Field: "block_tokens", Ours: "16", Theirs: "32"}, CodeGeometry, []string{"block_tokens", "16", "32"}},
	} {
		if !errors.Is(c.err, c.code) || CodeOf(c.err) != c.code {
			t.Errorf("%v: code %v, want %v", c.err, CodeOf(c.err), c.code)
		}
		for _, s := range c.says {
			if !strings.Contains(c.err.Error(), s) {
				t.Errorf("%q does not say %q", c.err, s)
			}
		}
		for _, other := range Codes() {
			inner := other.Code == CodeTruncated && c.code == CodeEnvelope
			if other.Code != c.code && !inner && errors.Is(c.err, other.Code) {
				t.Errorf("%v also matches %v", c.err, other.Code)
			}
		}
	}
}
