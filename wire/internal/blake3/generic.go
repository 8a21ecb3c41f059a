package blake3

import (
	"sync"

	"github.com/zeebo/blake3"
)

// copyPiece is how many bytes the generic path copies before it hashes them:
// they are still in the second-level cache (512 KiB and more in processors of
// use), and the hash runs at its full width.
const copyPiece = 64 << 10

var genericStates = sync.Pool{New: func() any { return blake3.New() }}

func genericSum(b []byte) [Size]byte {
	if len(b) <= chunkLen { // needs no state
		return blake3.Sum256(b)
	}
	h := genericStates.Get().(*blake3.Hasher)
	_, _ = h.Write(b)
	return genericFinish(h)
}

func genericCopySum(dst, src []byte) [Size]byte {
	if len(src) <= chunkLen {
		copy(dst, src)
		return blake3.Sum256(dst)
	}
	h := genericStates.Get().(*blake3.Hasher)
	for len(src) > 0 {
		n := copy(dst[:min(len(dst), copyPiece)], src)
		_, _ = h.Write(dst[:n])
		dst, src = dst[n:], src[n:]
	}
	return genericFinish(h)
}

func genericFinish(h *blake3.Hasher) (d [Size]byte) {
	h.Sum(d[:0])
	h.Reset()
	genericStates.Put(h)
	return d
}

// genericState is a Hasher's state on the generic path.
type genericState struct{ h *blake3.Hasher }

func (s *genericState) write(p []byte) {
	if s.h == nil {
		s.h = blake3.New()
	}
	_, _ = s.h.Write(p)
}

func (s *genericState) sum() (d [Size]byte) {
	if s.h == nil {
		return genericSum(nil)
	}
	s.h.Sum(d[:0])
	return d
}

func (s *genericState) reset() {
	if s.h != nil {
		s.h.Reset()
	}
}
