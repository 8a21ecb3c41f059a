package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
)

// payloadCases are valid payloads: the published golden headers, and bodies
// around the lengths at which BLAKE3 changes its path.
func payloadCases() []payloadVector {
	var list []payloadVector
	for _, g := range goldenHeaders {
		v := payloadVector{Name: g.name, Tier: uint8(g.tier), Header: g.header}
		if len(g.body) > 0 && len(bytes.Trim(g.body, string(g.body[:1]))) == 0 {
			v.Body = bodyVector{Kind: "repeat", Length: len(g.body), Byte: new(int(g.body[0]))}
		} else {
			v.Body = bodyVector{Kind: "hex", Length: len(g.body), Hex: new(hex.EncodeToString(g.body))}
		}
		list = append(list, v)
	}
	for i, b := range blake3Vectors {
		// Assembled by hand, so that Header.Append is not its own witness.
		head := append([]byte("MRDN\x01\x00\x00\x00"), byte(b.n), byte(b.n>>8), byte(b.n>>16), byte(b.n>>24), byte(i%3), 0, 0, 0)
		list = append(list, payloadVector{
			Name: fmt.Sprintf("mod251-%07d", b.n), Tier: uint8(i % 3),
			Body:   bodyVector{Kind: "mod251", Length: b.n},
			Header: hex.EncodeToString(head) + b.hex[:32],
		})
	}
	return list
}

type decodeCase struct {
	name            string
	payload         []byte
	limit           uint32
	tier            Tier // where a reader takes it
	strict, lenient error
}

// decodeCases are payloads that one reader or both refuse, and how. All are
// made from the golden payload "reasoning", tier 0, 12 bytes of body.
func decodeCases(t *testing.T) []decodeCase {
	const limit = 4096
	good := append(fromHex(t, goldenHeaders[4].header), goldenHeaders[4].body...)
	sum := Sum(good[16:])
	edit := func(f func(p []byte)) []byte {
		p := bytes.Clone(good)
		f(p)
		return p
	}
	set := func(at int, b ...byte) []byte { return edit(func(p []byte) { copy(p[at:], b) }) }
	length := func(n uint32) []byte { return edit(func(p []byte) { binary.LittleEndian.PutUint32(p[8:], n) }) }
	both := func(name string, p []byte, limit uint32, err error) decodeCase {
		return decodeCase{name, p, limit, 0, err, err}
	}
	cut := func(name string, n int, need uint64) decodeCase {
		return both(name, good[:n], limit, &TruncatedError{Have: uint64(n), Need: need})
	}
	wrongMagic := func(name, got string) decodeCase {
		return both(name, set(0, []byte(got)...), limit, &MagicError{Want: magic, Got: [4]byte([]byte(got))})
	}
	wrongSum := func(name string, p []byte) decodeCase {
		return both(name, p, limit, &ChecksumError{Want: Sum(p[16:]), Got: SumOf(p[HeaderLen:])})
	}
	tail := func(n int) []byte { return append(bytes.Clone(good), make([]byte, n)...) }
	reversed := bytes.Clone(sum[:])
	slices.Reverse(reversed)
	digest := digestOf([]byte("reasoning-kv"))

	return []decodeCase{
		{"good", good, 12, 0, nil, nil},
		cut("cut-at-0", 0, 32), cut("cut-at-1", 1, 32), cut("cut-at-31", 31, 32), cut("cut-at-32", 32, 44), cut("cut-at-43", 43, 44),

		wrongMagic("magic-lower-case", "mrdn"), wrongMagic("magic-reversed", "NDRM"), wrongMagic("magic-envelope", "MNCK"), wrongMagic("magic-last-byte", "MRDM"),
		both("version-0", set(4, 0), limit, &VersionError{Got: 0}),
		both("version-2", set(4, 2), limit, &VersionError{Got: 2}),
		both("version-big-endian", set(4, 0, 0, 0, 1), limit, &VersionError{Got: 1 << 24}),

		{"tier-1", set(12, 1), limit, ThinkActive, nil, nil},
		{"tier-3", set(12, 3), limit, OutputCritical, &TierError{Got: 3}, nil},
		{"tier-255", set(12, 255), limit, OutputCritical, &TierError{Got: 255}, nil},
		{"padding-13", set(13, 1), limit, 0, &PaddingError{Got: [3]byte{1, 0, 0}}, nil},
		{"padding-14", set(14, 0x80), limit, 0, &PaddingError{Got: [3]byte{0, 0x80, 0}}, nil},
		{"padding-15", set(15, 0xff), limit, 0, &PaddingError{Got: [3]byte{0, 0, 0xff}}, nil},

		both("limit-one-short", good, 11, &TooLargeError{Got: 12, Limit: 11}),
		both("limit-zero", good, 0, &TooLargeError{Got: 12, Limit: 0}),
		both("length-max", length(MaxBody), limit, &TooLargeError{Got: MaxBody, Limit: limit}),
		both("length-max-no-limit", length(MaxBody), MaxBody, &TruncatedError{Have: 44, Need: 32 + MaxBody}),
		both("length-one-more", length(13), limit, &TruncatedError{Have: 44, Need: 45}),
		both("length-one-less", length(11), limit, &ChecksumError{Want: sum, Got: SumOf([]byte("reasoning-k"))}),
		both("length-zero", length(0), limit, &ChecksumError{Want: sum, Got: SumOf(nil)}),

		wrongSum("body-first-bit", set(32, good[32]^1)), wrongSum("body-last-bit", set(43, good[43]^0x80)),
		wrongSum("sum-first-bit", set(16, good[16]^1)), wrongSum("sum-last-bit", set(31, good[31]^0x80)),
		wrongSum("sum-reversed", set(16, reversed...)), wrongSum("sum-second-half", set(16, digest[16:]...)), wrongSum("sum-zero", set(16, make([]byte, 16)...)),

		{"trailing-1", tail(1), limit, 0, &TrailingError{N: 1}, nil},
		{"trailing-100", tail(100), limit, 0, &TrailingError{N: 100}, nil},
		{"two-payloads", append(bytes.Clone(good), good...), limit, 0, &TrailingError{N: 44}, nil},

		both("order-short-before-magic", set(0, 'X')[:31], limit, &TruncatedError{Have: 31, Need: 32}),
		both("order-magic-before-version", set(0, 'X', 'R', 'D', 'N', 9), limit, &MagicError{Want: magic, Got: [4]byte{'X', 'R', 'D', 'N'}}),
		both("order-version-before-tier", edit(func(p []byte) { p[4], p[12] = 9, 9 }), limit, &VersionError{Got: 9}),
		{"order-tier-before-padding", set(12, 9, 9), limit, OutputCritical, &TierError{Got: 9}, nil},
		{"order-padding-before-limit", set(13, 9), 11, 0, &PaddingError{Got: [3]byte{9}}, &TooLargeError{Got: 12, Limit: 11}},
		both("order-limit-before-body", good[:40], 11, &TooLargeError{Got: 12, Limit: 11}),
		both("order-body-before-checksum", set(16, 0)[:43], limit, &TruncatedError{Have: 43, Need: 44}),
		both("order-checksum-before-trailing", append(set(16, sum[0]^1), 0), limit, &ChecksumError{Want: Sum(set(16, sum[0]^1)[16:]), Got: sum}),
	}
}

type envelopeCase struct {
	v     envelopeVector
	bytes []byte
}

// envelopeCases are legacy envelopes around the golden payload "reasoning".
func envelopeCases(t *testing.T) []envelopeCase {
	payload := append(fromHex(t, goldenHeaders[4].header), goldenHeaders[4].body...)
	good := append(fromHex(t, "4d4e434b2c000000"), payload...)
	corrupt := bytes.Clone(good)
	corrupt[len(corrupt)-1] ^= 1
	reversed := append([]byte("KCNM"), good[4:]...)
	return []envelopeCase{
		{envelopeVector{Name: "good", PayloadLen: 44}, good},
		{envelopeVector{Name: "empty"}, []byte("MNCK\x00\x00\x00\x00")},
		{envelopeVector{Name: "corrupt-payload", PayloadLen: 44}, corrupt}, // the envelope has no checksum
		{envelopeVector{Name: "two", PayloadLen: 44, RestLen: 52}, append(bytes.Clone(good), good...)},
		{envelopeVector{Name: "cut-at-0", Code: CodeEnvelope}, nil},
		{envelopeVector{Name: "cut-at-7", Code: CodeEnvelope}, good[:7]},
		{envelopeVector{Name: "cut-at-8", Code: CodeEnvelope}, good[:8]},
		{envelopeVector{Name: "cut-at-51", Code: CodeEnvelope}, good[:51]},
		{envelopeVector{Name: "magic-reversed", Code: CodeEnvelope}, reversed},
		{envelopeVector{Name: "bare-payload", Code: CodeEnvelope}, payload},
	}
}

var refCases = []refVector{
	{"00000000000000000000000000000000", "0", 0, 0, "0000000000000000000000000000000000000000000000000000000000000000"},
	{"a0a1a2a3a4a5a6a7a8a9aaabacadaeaf", "578437695752307201", 202050057, 269422093, "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf0102030405060708090a0b0c0d0e0f10"},
	{"ffffffffffffffffffffffffffffffff", "18446744073709551615", 4294967295, 1, "ffffffffffffffffffffffffffffffffffffffffffffffffffffffff01000000"},
}
