package blake3

import "math/bits"

const (
	subtreeChunks = 256 // of a complete list: with more the last levels cost less than 1 %
	maxDepth      = 46  // complete subtrees below each other in 2^64 bytes
)

// tree has the chaining values of an input's chunks, as far as it came.
//
// The runtime begins an allocation of this size on a page, so that list and
// work are aligned to 64 bytes: what a kernel has just stored across two cache
// lines, the next would be slow to load.
type tree struct {
	list     [(subtreeChunks + maxWidth) * cvLen]byte
	work     [(subtreeChunks/2 + maxWidth) * cvLen]byte
	stack    [maxDepth]cv
	kernel   kernel
	n        int    // chunks in list
	subtrees uint64 // complete ones, now in stack
	depth    int    // of stack
}

func (t *tree) reset() { t.n, t.subtrees, t.depth = 0, 0, 0 }

// chunks is how many came.
func (t *tree) chunks() uint64 { return t.subtrees*subtreeChunks + uint64(t.n) }

// leaves adds the chunks of src, all complete, of which the first must not be
// the only one of the input. dst is nil or gets a copy.
func (t *tree) leaves(dst, src []byte) {
	for len(src) > 0 {
		if t.n == subtreeChunks {
			t.push()
		}
		n := min(len(src)/chunkLen, subtreeChunks-t.n, callChunks)
		t.kernel.leaves(t.list[t.n*cvLen:], part(dst, 0, n*chunkLen), src[:n*chunkLen], t.chunks())
		t.n += n
		dst, src = part(dst, n*chunkLen, len(dst)), src[n*chunkLen:]
	}
}

// push makes one value of the complete list, and of subtrees of the same size
// one subtree. More chunks follow: what it makes is not the root.
func (t *tree) push() {
	node := &t.stack[t.depth]
	t.kernel.top(node, t.work[:], t.list[:], t.n, 0)
	t.subtrees++
	t.n = 0
	for range bits.TrailingZeros64(t.subtrees) {
		left := &t.stack[t.depth-1]
		t.kernel.parent(left, left, node, 0)
		node = left
		t.depth--
	}
	t.depth++
}

// root returns the digest of the chunks and last, which is at most bufLen
// bytes and may follow only on a multiple of that if it is more than one
// chunk. It changes nothing that a later call would notice.
func (t *tree) root(last []byte) (d [Size]byte) {
	if t.chunks() == 0 && len(last) <= chunkLen {
		return rootChunk(t.kernel, last)
	}
	if t.n == subtreeChunks && len(last) > 0 {
		t.push()
	}
	n := t.n
	whole := len(last) &^ (chunkLen - 1)
	t.kernel.leaves(t.list[n*cvLen:], nil, last[:whole], t.chunks())
	n += whole / chunkLen
	if whole < len(last) {
		t.kernel.chunk((*cv)(t.list[n*cvLen:]), last[whole:], t.chunks()+uint64(n-t.n), 0)
		n++
	}
	if t.depth == 0 {
		t.kernel.top(&d, t.work[:], t.list[:], n, flagRoot)
		return d
	}
	t.kernel.top(&d, t.work[:], t.list[:], n, 0)
	for i := t.depth - 1; i >= 0; i-- {
		last := uint64(0)
		if i == 0 {
			last = flagRoot
		}
		t.kernel.parent(&d, &t.stack[i], &d, last)
	}
	return d
}
