package wire

import "encoding/binary"

// HeaderLen is the size of an MRDN v1 header in bytes.
const HeaderLen = 32

// Version is the only MRDN version that this package reads or writes.
const Version = 1

// MaxBody is the largest body that a header can name, and the limit to give
// to a reader that should have none.
const MaxBody = 1<<32 - 1

// magicVersion is "MRDN" and version 1, the first eight bytes of every
// header, as one little-endian word.
const magicVersion = uint64(Version)<<32 | 'N'<<24 | 'D'<<16 | 'R'<<8 | 'M'

var magic = [4]byte{'M', 'R', 'D', 'N'}

// Mode selects between the strict reader of Meridian's own agents and the
// lenient one that also takes what Meridian 0.x wrote.
type Mode uint8

// The two modes of reading. Lenient reads a tier byte above 2 as
// OutputCritical, and ignores padding and bytes after the body.
const (
	Strict Mode = iota
	Lenient
)

// Header is an MRDN v1 header without its constants.
type Header struct {
	BodyLen uint32 // bytes of body; the header is not counted
	Tier    Tier
	Sum     Sum
}

// ParseHeader reads the first HeaderLen bytes of b; what follows is not looked
// at. limit is the longest body that the caller would take: 0 admits only the
// empty body, MaxBody any. The first of these checks that fails is the error:
// *TruncatedError, *MagicError, *VersionError, then in strict mode *TierError
// and *PaddingError, then *TooLargeError.
func ParseHeader(b []byte, m Mode, limit uint32) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, &TruncatedError{Have: uint64(len(b)), Need: HeaderLen}
	}
	p := (*[HeaderLen]byte)(b)
	n := binary.LittleEndian.Uint32(p[8:])
	// Tier and padding are one word, so that a strict reader tests both at once.
	t := binary.LittleEndian.Uint32(p[12:])
	if binary.LittleEndian.Uint64(p[:]) != magicVersion || t > uint32(OutputCritical) || n > limit {
		if err := headerError(p, m, limit); err != nil {
			return Header{}, err
		}
		t = min(t&0xff, uint32(OutputCritical))
	}
	return Header{BodyLen: n, Tier: Tier(t), Sum: Sum(p[16:])}, nil
}

// headerError walks through the checks in their order. It is apart from
// ParseHeader, which must stay small.
func headerError(p *[HeaderLen]byte, m Mode, limit uint32) error {
	if got := [4]byte(p[:]); got != magic {
		return &MagicError{Want: magic, Got: got}
	}
	if got := binary.LittleEndian.Uint32(p[4:]); got != Version {
		return &VersionError{Got: got}
	}
	if m != Lenient {
		if p[12] > uint8(OutputCritical) {
			return &TierError{Got: p[12]}
		}
		if got := [3]byte(p[13:]); got != ([3]byte{}) {
			return &PaddingError{Got: got}
		}
	}
	if n := binary.LittleEndian.Uint32(p[8:]); n > limit {
		return &TooLargeError{Got: uint64(n), Limit: uint64(limit)}
	}
	return nil
}

// Append appends the HeaderLen bytes of h to b.
func (h Header) Append(b []byte) []byte {
	var p [HeaderLen]byte
	h.Put(p[:])
	return append(b, p[:]...)
}

// Put writes h into the first HeaderLen bytes of b, and panics if b is
// shorter.
func (h Header) Put(b []byte) {
	p := (*[HeaderLen]byte)(b)
	binary.LittleEndian.PutUint64(p[:], magicVersion)
	binary.LittleEndian.PutUint32(p[8:], h.BodyLen)
	binary.LittleEndian.PutUint32(p[12:], uint32(h.Tier))
	*(*Sum)(p[16:]) = h.Sum
}

// Check says whether body is the body of h. The first of these checks that
// fails is the error: *TruncatedError, *ChecksumError (over the first BodyLen
// bytes), *TrailingError.
func (h Header) Check(body []byte) error {
	if uint64(len(body)) < uint64(h.BodyLen) {
		return h.truncated(uint64(len(body)))
	}
	if got := SumOf(body[:h.BodyLen]); got != h.Sum {
		return &ChecksumError{Want: h.Sum, Got: got}
	}
	if n := uint64(len(body)) - uint64(h.BodyLen); n > 0 {
		return &TrailingError{N: n}
	}
	return nil
}

// truncated is the error for a body of which only have bytes are there.
func (h Header) truncated(have uint64) error {
	return &TruncatedError{Have: HeaderLen + have, Need: HeaderLen + uint64(h.BodyLen)}
}
