package blake3

import (
	"encoding/binary"
	"math/bits"
	"testing"
)

// reference is the compression function, straight from the specification
// (section 2.2), cut to the chaining value.
func reference(h [8]uint32, block []byte, counter uint64, length, flags uint32) [8]uint32 {
	var m, v [16]uint32
	for i := range m {
		m[i] = binary.LittleEndian.Uint32(block[4*i:])
	}
	copy(v[:], h[:])
	for i := range 4 {
		v[8+i] = binary.LittleEndian.Uint32(initial[4*i:])
	}
	v[12], v[13], v[14], v[15] = uint32(counter), uint32(counter>>32), length, flags
	g := func(a, b, c, d int, x, y uint32) {
		v[a] += v[b] + x
		v[d] = bits.RotateLeft32(v[d]^v[a], -16)
		v[c] += v[d]
		v[b] = bits.RotateLeft32(v[b]^v[c], -12)
		v[a] += v[b] + y
		v[d] = bits.RotateLeft32(v[d]^v[a], -8)
		v[c] += v[d]
		v[b] = bits.RotateLeft32(v[b]^v[c], -7)
	}
	for range 7 {
		for i := range 4 {
			g(i, 4+i, 8+i, 12+i, m[2*i], m[2*i+1])
		}
		for i := range 4 {
			g(i, 4+(i+1)%4, 8+(i+2)%4, 12+(i+3)%4, m[8+2*i], m[9+2*i])
		}
		old := m
		for i, from := range [16]int{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8} {
			m[i] = old[from]
		}
	}
	for i := range h {
		h[i] = v[i] ^ v[8+i]
	}
	return h
}

// value is the chaining value of blocks, all full.
func value(blocks []byte, counter uint64, first, last uint32) (out cv) {
	var h [8]uint32
	for i := range h {
		h[i] = binary.LittleEndian.Uint32(initial[4*i:])
	}
	for at := 0; at < len(blocks); at += blockLen {
		flags := uint32(0)
		if at == 0 {
			flags |= first
		}
		if at+blockLen == len(blocks) {
			flags |= last
		}
		h = reference(h, blocks[at:], counter, blockLen, flags)
	}
	for i, w := range h {
		binary.LittleEndian.PutUint32(out[4*i:], w)
	}
	return out
}

func eachKernel(t *testing.T, f func(t *testing.T, k kernel)) {
	for _, p := range Paths()[1:] {
		t.Run(p.String(), func(t *testing.T) { f(t, kernel(p)) })
	}
}

// TestLeavesAgainstTheSpecification has every number of chunks, with counters
// whose low word overflows within a group.
func TestLeavesAgainstTheSpecification(t *testing.T) {
	src, dst := random(20, callChunks*chunkLen), make([]byte, callChunks*chunkLen)
	for _, first := range []uint64{0, 1<<32 - 5, 1<<32 - 1, 1<<53 + 7} {
		var want []byte
		for i := range callChunks {
			v := value(src[i*chunkLen:][:chunkLen], first+uint64(i), flagStart, flagEnd)
			want = append(want, v[:]...)
		}
		eachKernel(t, func(t *testing.T, k kernel) {
			for n := 1; n <= callChunks; n++ {
				for _, to := range [][]byte{nil, dst[:n*chunkLen]} {
					list := make([]byte, (n+maxWidth)*cvLen)
					k.leaves(list, to, src[:n*chunkLen], first)
					if string(list[:n*cvLen]) != string(want[:n*cvLen]) {
						t.Errorf("%d chunks from %d, copied: %t: wrong values", n, first, to != nil)
					}
				}
			}
		})
	}
}

func TestParentsAgainstTheSpecification(t *testing.T) {
	const most = 70
	in := random(21, 2*most*cvLen)
	var want []byte
	for i := range most {
		v := value(in[2*i*cvLen:][:2*cvLen], 0, flagParent, 0)
		want = append(want, v[:]...)
	}
	eachKernel(t, func(t *testing.T, k kernel) {
		for n := 1; n <= most; n++ {
			out := make([]byte, (n+maxWidth)*cvLen)
			k.parents(out, in[:2*n*cvLen], uint64(n))
			if string(out[:n*cvLen]) != string(want[:n*cvLen]) {
				t.Errorf("%d parents: wrong values", n)
			}
		}
	})
}

// TestTopAgainstTheSpecification has every number of values in a list, in
// place and beside.
func TestTopAgainstTheSpecification(t *testing.T) {
	list := random(22, (subtreeChunks+maxWidth)*cvLen)
	var top func(list []byte, last uint32) cv
	top = func(list []byte, last uint32) cv {
		n := len(list) / cvLen
		if n == 1 {
			return cv(list)
		}
		half := 1 << (bits.Len(uint(n-1)) - 1) // the left subtree is the largest complete one
		l, r := top(list[:half*cvLen], 0), top(list[half*cvLen:], 0)
		return value(append(l[:], r[:]...), 0, flagParent, last)
	}
	var want [subtreeChunks + 1][2]cv
	for n := 1; n <= subtreeChunks; n++ {
		want[n] = [2]cv{top(list[:n*cvLen], 0), top(list[:n*cvLen], flagRoot)}
	}
	eachKernel(t, func(t *testing.T, k kernel) {
		for n := 1; n <= subtreeChunks; n++ {
			for i, last := range []uint64{0, flagRoot} {
				if n == 1 && last == flagRoot {
					continue // a root over one value is no parent
				}
				in := append([]byte{}, list...)
				work := make([]byte, (subtreeChunks/2+maxWidth)*cvLen)
				var got cv
				k.top(&got, work, in, n, last)
				if string(in[:n*cvLen]) != string(list[:n*cvLen]) {
					t.Errorf("%d values: the list changed", n)
				}
				if got != want[n][i] {
					t.Errorf("%d values, flag %d: wrong", n, last)
				}
				if k.top(&got, in, in, n, last); got != want[n][i] {
					t.Errorf("%d values in place, flag %d: wrong", n, last)
				}
			}
		}
	})
}

// TestChunkAgainstTheSpecification has every length of a last chunk.
func TestChunkAgainstTheSpecification(t *testing.T) {
	b := random(23, chunkLen)
	eachKernel(t, func(t *testing.T, k kernel) {
		for n := 0; n <= chunkLen; n++ {
			full := max(n-1, 0) / blockLen * blockLen
			var h [8]uint32
			for i := range h {
				h[i] = binary.LittleEndian.Uint32(initial[4*i:])
			}
			const counter = 1<<32 + 3
			flags := uint32(flagStart)
			for at := 0; at < full; at += blockLen {
				h = reference(h, b[at:], counter, blockLen, flags)
				flags = 0
			}
			var last [blockLen]byte
			copy(last[:], b[full:n])
			h = reference(h, last[:], counter, uint32(n-full), flags|flagEnd|flagRoot)
			var want, got cv
			for i, w := range h {
				binary.LittleEndian.PutUint32(want[4*i:], w)
			}
			if k.chunk(&got, b[:n], counter, flagRoot); got != want {
				t.Fatalf("%d bytes: wrong value", n)
			}
		}
	})
}
