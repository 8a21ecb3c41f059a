package chaos

import (
	"encoding/binary"
	"fmt"

	"meridian/wire"
)

// The body of a key is a stream of little-endian u64 words, the last one cut.
// Word i is scramble(start + i*step, odd) with start and odd drawn from all 32
// bytes of the key: every word depends on the key and on its own place, so a
// body that is shifted, torn, or another key's differs at once. One
// multiplication a word keeps it well above the speed of the links under test.

// step is 2^64 divided by the golden ratio: the words of a stream are far apart
// in the domain of scramble (Knuth, TAOCP vol. 3, section 6.4).
const step = 0x9e3779b97f4a7c15

// streamOf draws the two parameters of a key's stream.
func streamOf(key wire.Key) (start, odd uint64) {
	for i := 0; i < len(key); i += 8 {
		w := binary.LittleEndian.Uint64(key[i:])
		start = splitMix(start ^ w)
		odd = splitMix(odd + w ^ start)
	}
	return start, odd | 1
}

// splitMix is one step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
func splitMix(x uint64) uint64 {
	x += step
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func scramble(x, odd uint64) uint64 {
	x = (x ^ x>>32) * odd
	return x ^ x>>29
}

// Body fills dst with the first len(dst) bytes of the key's body. A shorter body
// is a prefix of a longer one.
func Body(dst []byte, key wire.Key) {
	x, odd := streamOf(key)
	for len(dst) >= 32 {
		binary.LittleEndian.PutUint64(dst, scramble(x, odd))
		binary.LittleEndian.PutUint64(dst[8:], scramble(x+step&mask, odd))
		binary.LittleEndian.PutUint64(dst[16:], scramble(x+2*step&mask, odd))
		binary.LittleEndian.PutUint64(dst[24:], scramble(x+3*step&mask, odd))
		x += 4 * step & mask
		dst = dst[32:]
	}
	var last [8]byte
	for len(dst) > 0 {
		binary.LittleEndian.PutUint64(last[:], scramble(x, odd))
		dst = dst[copy(dst, last[:]):]
		x += step
	}
}

// mask keeps constant multiples of step in a word.
const mask = 1<<64 - 1

// BodyError is a body that is not its key's. It matches wire.CodeChecksum.
type BodyError struct {
	Key       wire.Key
	Off       int  // the first wrong byte
	Got, Want byte // at Off
	Len       int  // of the body that was checked
}

// Error names the place and both values.
func (e *BodyError) Error() string {
	return fmt.Sprintf("body of key %s: byte %d of %d is %#02x, want %#02x", e.Key, e.Off, e.Len, e.Got, e.Want)
}

// Unwrap returns CodeChecksum.
func (e *BodyError) Unwrap() error { return wire.CodeChecksum }

// CheckBody is nil when body is what Body makes for key, and a *BodyError with
// the first wrong offset otherwise. The length is the caller's to check.
func CheckBody(body []byte, key wire.Key) error {
	x, odd := streamOf(key)
	rest := body
	for len(rest) >= 32 {
		d := binary.LittleEndian.Uint64(rest) ^ scramble(x, odd)
		d |= binary.LittleEndian.Uint64(rest[8:]) ^ scramble(x+step&mask, odd)
		d |= binary.LittleEndian.Uint64(rest[16:]) ^ scramble(x+2*step&mask, odd)
		d |= binary.LittleEndian.Uint64(rest[24:]) ^ scramble(x+3*step&mask, odd)
		if d != 0 {
			break
		}
		x += 4 * step & mask
		rest = rest[32:]
	}
	var word [8]byte
	for len(rest) > 0 {
		binary.LittleEndian.PutUint64(word[:], scramble(x, odd))
		n := min(8, len(rest))
		for i := range n {
			if rest[i] != word[i] {
				return &BodyError{Key: key, Off: len(body) - len(rest) + i, Got: rest[i], Want: word[i], Len: len(body)}
			}
		}
		rest = rest[n:]
		x += step
	}
	return nil
}
