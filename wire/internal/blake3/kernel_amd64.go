package blake3

import "unsafe"

const (
	blockLen = 64
	cvLen    = 32

	maxWidth   = 16 // lanes of the widest kernel
	callChunks = 64 // at most in one call of a kernel: about 7 µs (AVX-512) to 20 µs (AVX2)

	copyChunks = 16 // the AVX2 path copies so many, and then hashes them in the first-level cache
)

// Flags of a block, from the specification.
const (
	flagStart  = 1 // first of a chunk
	flagEnd    = 2 // last of a chunk
	flagParent = 4
	flagRoot   = 8
)

// cv is a chaining value: eight words, little-endian.
type cv = [cvLen]byte

// initial is the chaining value that a chunk and a parent start from.
var initial = cv{
	0x67, 0xe6, 0x09, 0x6a, 0x85, 0xae, 0x67, 0xbb, 0x72, 0xf3, 0x6e, 0x3c, 0x3a, 0xf5, 0x4f, 0xa5,
	0x7f, 0x52, 0x0e, 0x51, 0x8c, 0x68, 0x05, 0x9b, 0xab, 0xd9, 0x83, 0x1f, 0x19, 0xcd, 0xe0, 0x5b,
}

// kernel is the path of vector work: AVX2 or AVX512.
type kernel Path

func (k kernel) wide() bool { return Path(k) == AVX512 }

// leaves writes the chaining values of the complete chunks of src, at most
// callChunks, to list, which has room for maxWidth more. first is the counter
// of the first of them. If dst is not nil, it gets a copy of src, and the
// values are those of the copy.
func (k kernel) leaves(list, dst, src []byte, first uint64) {
	if dst == nil {
		k.chunks(list, src, first)
		return
	}
	if k.wide() {
		n := len(src) / chunkLen &^ (maxWidth - 1)
		if n > 0 {
			lanes16Copy(&list[0], &src[0], &dst[0], uint64(n), chunkLen/blockLen, first, 1, flagStart, flagEnd)
		}
		dst, src = dst[n*chunkLen:], src[n*chunkLen:]
		list, first = list[n*cvLen:], first+uint64(n)
	}
	for len(src) > 0 {
		n := copy(dst[:min(len(dst), copyChunks*chunkLen)], src)
		k.chunks(list, dst[:n], first)
		dst, src = dst[n:], src[n:]
		list, first = list[n/chunkLen*cvLen:], first+uint64(n/chunkLen)
	}
}

func (k kernel) chunks(list, src []byte, first uint64) {
	for len(src) > 0 {
		n := k.lanes(&list[0], &src[0], uint64(len(src)/chunkLen), chunkLen/blockLen, first, 1, flagStart, flagEnd)
		if n == 0 {
			k.chunk((*cv)(list), src[:chunkLen], first, 0)
			n = 1
		}
		list, src, first = list[n*cvLen:], src[n*chunkLen:], first+n
	}
}

// parents writes the values of the n parents over the 2n values of in to out,
// which has room for maxWidth more and may be the same.
func (k kernel) parents(out, in []byte, n uint64) {
	for n > 0 {
		did := k.lanes(&out[0], &in[0], n, 1, 0, 0, flagParent, 0)
		if did == 0 {
			k.parent((*cv)(out), (*cv)(in), (*cv)(in[cvLen:]), 0)
			did = 1
		}
		out, in, n = out[did*cvLen:], in[2*did*cvLen:], n-did
	}
}

// lanes works on the first of n inputs with the kernel whose width fits, and
// returns how many. It leaves a single one to chain.
func (k kernel) lanes(out, src *byte, n, blocks, counter, step, first, last uint64) uint64 {
	switch {
	case n == 1:
		return 0
	case !k.wide():
		if n&7 == 1 {
			n--
		}
		lanes8(out, src, n, blocks, counter, step, first, last)
	case n <= 8:
		lanes8VL(out, src, n, blocks, counter, step, first, last)
	default:
		if n&15 <= 8 {
			n &^= 15
		}
		lanes16(out, src, n, blocks, counter, step, first, last)
	}
	return n
}

// top writes the one value above the n of in to out; last is what the topmost
// node has as a flag besides flagParent. work has room for n/2 and maxWidth
// more, and may be in.
func (k kernel) top(out *cv, work, in []byte, n int, last uint64) {
	for n > 2 {
		if k.wide() && n <= 16 && n&(n-1) == 0 {
			reduceVL(&out[0], &in[0], uint64(n), last)
			return
		}
		odd := *(*cv)(in[(n-1)*cvLen:])
		k.parents(work, in, uint64(n/2))
		if n&1 == 1 {
			copy(work[n/2*cvLen:], odd[:])
		}
		n, in = (n+1)/2, work
	}
	if n == 1 {
		copy(out[:], in)
		return
	}
	k.parent(out, (*cv)(in), (*cv)(in[cvLen:]), last)
}

// parent writes the value of the node over left and right to out, which may be
// one of them.
func (k kernel) parent(out, left, right *cv, last uint64) {
	var block [blockLen]byte
	copy(block[:], left[:])
	copy(block[cvLen:], right[:])
	*out = initial
	k.chain(out, block[:], 0, blockLen, flagParent, last)
}

// chunk writes the value of one chunk, complete or not, to out. root is 0 or
// flagRoot.
func (k kernel) chunk(out *cv, b []byte, counter, root uint64) {
	*out = initial
	start := uint64(flagStart)
	full := max(len(b)-1, 0) &^ (blockLen - 1)
	if len(b)-full == blockLen {
		full = len(b)
	}
	switch {
	case len(b) == 0:
	case full == len(b):
		k.chain(out, b, counter, blockLen, start, flagEnd|root)
		return
	case full > 0:
		k.chain(out, b[:full], counter, blockLen, start, 0)
		start = 0
	}
	var block [blockLen]byte
	n := copy(block[:], b[full:])
	k.chain(out, block[:], counter, uint64(n), start, flagEnd|root)
}

func (k kernel) chain(out *cv, b []byte, counter, length, first, last uint64) {
	n := uint64(len(b) / blockLen)
	if k.wide() {
		chainVL(&out[0], unsafe.SliceData(b), n, counter, length, first, last)
		return
	}
	chain(&out[0], unsafe.SliceData(b), n, counter, length, first, last)
}

func rootChunk(k kernel, b []byte) (d [Size]byte) {
	k.chunk(&d, b, 0, flagRoot)
	return d
}
