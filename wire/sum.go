package wire

import (
	"encoding/hex"
	"sync"

	"github.com/zeebo/blake3"
)

// Sum is BLAKE3-128: the first 16 bytes of BLAKE3-256, in digest order.
type Sum [16]byte

// String returns s in hex.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText returns s in hex.
func (s Sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText reads 32 hex digits. The error matches CodeInvalid.
func (s *Sum) UnmarshalText(b []byte) error { return parseHex(s[:], "checksum", string(b)) }

// copyPiece is how many bytes CopySum copies before it hashes them: small
// enough that they are still in the second-level cache (from 512 KiB on the
// machines in use), large enough that the hash runs at its full width.
const copyPiece = 64 << 10

// oneChunk is BLAKE3's chunk: up to here a digest needs no tree, and no state
// from the pool.
const oneChunk = 1024

// Hasher makes a Sum of bytes that come piece by piece. The zero value is
// ready; Reset makes it ready for the next body, so that a lane or a worker
// needs one for its whole life. A Hasher is about 12 KiB and not safe for use
// by two goroutines at once.
type Hasher struct{ state *blake3.Hasher }

// Write adds p. The error is always nil.
func (h *Hasher) Write(p []byte) (int, error) {
	if h.state == nil {
		h.state = blake3.New()
	}
	return h.state.Write(p)
}

// Sum returns the checksum of what was written since the last Reset, and
// changes nothing: more may be written afterwards.
func (h *Hasher) Sum() Sum {
	d := h.digest()
	return Sum(d[:])
}

// Reset forgets what was written.
func (h *Hasher) Reset() {
	if h.state != nil {
		h.state.Reset()
	}
}

func (h *Hasher) digest() (d [32]byte) {
	if h.state == nil {
		return blake3.Sum256(nil)
	}
	h.state.Sum(d[:0])
	return d
}

var hashers = sync.Pool{New: func() any { return new(Hasher) }}

// SumOf hashes body without allocating.
func SumOf(body []byte) Sum {
	d := digestOf(body)
	return Sum(d[:])
}

// CopySum copies src to the front of dst and returns the checksum of the
// bytes that are then in dst, in one pass over memory and without allocating.
// It is the only way from memory that another process can write into a
// segment: src is read once, and what is hashed is what was copied, so a
// writer that changes src meanwhile cannot make the two differ. dst must hold
// len(src) bytes, or CopySum panics before it copies any; dst and src must
// not overlap.
func CopySum(dst, src []byte) Sum {
	dst = dst[:len(src)]
	if len(dst) <= oneChunk {
		copy(dst, src)
		return SumOf(dst)
	}
	h := hashers.Get().(*Hasher)
	for len(dst) > 0 {
		n := copy(dst[:min(len(dst), copyPiece)], src)
		_, _ = h.Write(dst[:n])
		dst, src = dst[n:], src[n:]
	}
	s := h.Sum()
	h.Reset()
	hashers.Put(h)
	return s
}

// digestOf is BLAKE3-256.
func digestOf(b []byte) [32]byte {
	if len(b) <= oneChunk {
		return blake3.Sum256(b)
	}
	h := hashers.Get().(*Hasher)
	_, _ = h.Write(b)
	d := h.digest()
	h.Reset()
	hashers.Put(h)
	return d
}
