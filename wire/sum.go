package wire

import (
	"encoding/hex"
	"sync"

	"meridian/wire/internal/blake3"
)

// Sum is BLAKE3-128: the first 16 bytes of BLAKE3-256, in digest order.
type Sum [16]byte

// String returns s in hex.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText returns s in hex.
func (s Sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText reads 32 hex digits. The error matches CodeInvalid.
func (s *Sum) UnmarshalText(b []byte) error { return parseHex(s[:], "checksum", string(b)) }

// Hasher makes a Sum of bytes that come piece by piece. The zero value is
// ready; Reset makes it ready for the next body, so that a lane or a worker
// needs one for its whole life. A Hasher holds about 32 KiB from its first
// Write on, and is not safe for use by two goroutines at once.
type Hasher struct {
	state blake3.Hasher
	seen  span
}

// Write adds p. The error is always nil.
func (h *Hasher) Write(p []byte) (int, error) {
	h.seen.add(p)
	return h.state.Write(p)
}

// Sum returns the checksum of what was written since the last Reset, and
// changes nothing: more may be written afterwards.
func (h *Hasher) Sum() Sum {
	d := h.state.Sum256()
	return Sum(d[:])
}

// Verified is Sum as proof of the memory that was written from, where its pieces
// lay one behind another; else it proves nothing.
func (h *Hasher) Verified() Verified {
	if h.seen.torn {
		return Verified{}
	}
	return Verified{sum: h.Sum(), n: h.seen.n, at: h.seen.at, ok: true}
}

// Reset forgets what was written.
func (h *Hasher) Reset() {
	h.state.Reset()
	h.seen = span{}
}

var hashers = sync.Pool{New: func() any { return new(Hasher) }}

// HashPath names the code that hashes: avx512, avx2 or generic. It is the best
// that the processor has, unless MERIDIAN_BLAKE3 was set to one of them when
// the process started.
func HashPath() string { return blake3.Current().String() }

// SumOf hashes body without allocating.
func SumOf(body []byte) Sum {
	d := digestOf(body)
	return Sum(d[:])
}

// CopySum copies src to the front of dst and returns proof of the bytes that
// are then in dst, in one pass over memory and without allocating.
// It is the only way from memory that another process can write into a
// segment: src is read once, and what is hashed is what was copied, so a
// writer that changes src meanwhile cannot make the two differ. dst must hold
// len(src) bytes, or CopySum panics before it copies any; dst and src must
// not overlap.
func CopySum(dst, src []byte) Verified {
	d := blake3.CopySum256(dst, src)
	return verified(dst[:len(src)], Sum(d[:]))
}

// digestOf is BLAKE3-256.
func digestOf(b []byte) [32]byte { return blake3.Sum256(b) }
