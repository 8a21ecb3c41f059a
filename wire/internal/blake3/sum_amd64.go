package blake3

import (
	"sync"

	"golang.org/x/sys/cpu"
)

func detect() []Path {
	have := []Path{Generic}
	if cpu.X86.HasAVX2 {
		have = append(have, AVX2)
		if cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL { // the system's part is in them
			have = append(have, AVX512)
		}
	}
	return have
}

var trees = sync.Pool{New: func() any { return new(tree) }}

func sum(b []byte) [Size]byte {
	p := Current()
	switch {
	case p == Generic:
		return genericSum(b)
	case len(b) <= chunkLen:
		return rootChunk(kernel(p), b)
	}
	return rootTree(kernel(p), nil, b)
}

func copySum(dst, src []byte) [Size]byte {
	p := Current()
	switch {
	case p == Generic:
		return genericCopySum(dst, src)
	case len(src) <= chunkLen:
		copy(dst, src)
		return rootChunk(kernel(p), dst)
	}
	return rootTree(kernel(p), dst, src)
}

// rootTree is for more than one chunk. dst is nil or gets a copy, as in
// tree.leaves.
func rootTree(k kernel, dst, src []byte) [Size]byte {
	t := trees.Get().(*tree)
	t.kernel = k
	whole := len(src) &^ (chunkLen - 1)
	t.leaves(part(dst, 0, whole), src[:whole])
	d := t.root(moved(part(dst, whole, len(src)), src[whole:]))
	t.reset()
	trees.Put(t)
	return d
}

// part is dst[from:to], of nil nil.
func part(dst []byte, from, to int) []byte {
	if dst == nil {
		return nil
	}
	return dst[from:to]
}

// moved copies src to dst and returns the copy, or src if dst is nil.
func moved(dst, src []byte) []byte {
	if dst == nil {
		return src
	}
	copy(dst, src)
	return dst
}

// state is a Hasher's. Its path is that of the first write after a reset.
type state struct {
	path   Path
	begun  bool
	stream *stream
	narrow genericState
}

func (s *state) write(p []byte) {
	if !s.begun {
		s.begun, s.path = true, Current()
	}
	if s.path == Generic {
		s.narrow.write(p)
		return
	}
	if s.stream == nil {
		s.stream = new(stream)
	}
	s.stream.tree.kernel = kernel(s.path)
	s.stream.write(p)
}

func (s *state) sum() [Size]byte {
	switch {
	case !s.begun:
		return sum(nil)
	case s.path == Generic:
		return s.narrow.sum()
	}
	return s.stream.sum()
}

func (s *state) reset() {
	s.begun = false
	s.narrow.reset()
	if s.stream != nil {
		s.stream.used = 0
		s.stream.tree.reset()
	}
}

// stream is a tree and the bytes that are not yet in it.
type stream struct {
	tree tree
	used int
	buf  [bufLen]byte
}

// bufLen is one group of the widest kernel. A piece of this many bytes is
// never a whole input that is one chunk, so it needs not wait for more.
const bufLen = maxWidth * chunkLen

func (s *stream) write(p []byte) {
	if s.used > 0 {
		n := copy(s.buf[s.used:], p)
		s.used, p = s.used+n, p[n:]
		if s.used < bufLen {
			return
		}
		s.tree.leaves(nil, s.buf[:])
	}
	groups := len(p) &^ (bufLen - 1)
	s.tree.leaves(nil, p[:groups])
	s.used = copy(s.buf[:], p[groups:])
}

func (s *stream) sum() [Size]byte { return s.tree.root(s.buf[:s.used]) }
