package blake3

// Size is the length of a digest.
const Size = 32

// chunkLen is a leaf of the tree; up to here a digest needs none.
const chunkLen = 1024

// Sum256 returns the digest of b.
func Sum256(b []byte) [Size]byte {
	raceRead(b)
	return sum(b)
}

// CopySum256 copies src to the front of dst and returns the digest of the
// bytes that are then there. src is read once: a writer that changes it meanwhile
// changes both or neither. dst must hold len(src) bytes, or CopySum256 panics
// before it copies any; the two must not overlap.
func CopySum256(dst, src []byte) [Size]byte {
	dst = dst[:len(src)]
	raceCopy(dst, src)
	return copySum(dst, src)
}

// Hasher makes a digest of bytes that come piece by piece. The zero value is
// ready. Its first Write after that allocates about 32 KiB, which it keeps. It
// is not safe for use by two goroutines at once.
type Hasher struct{ state state }

// Write adds p. The error is always nil.
func (h *Hasher) Write(p []byte) (int, error) {
	raceRead(p)
	h.state.write(p)
	return len(p), nil
}

// Sum256 returns the digest of what was written since the last Reset, and
// more may be written afterwards.
func (h *Hasher) Sum256() [Size]byte { return h.state.sum() }

// Reset forgets what was written.
func (h *Hasher) Reset() { h.state.reset() }
