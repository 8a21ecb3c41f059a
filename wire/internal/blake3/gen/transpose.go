//go:build kernelgen

package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose16 turns rows (16 words of one input each) into words (one word of
// 16 inputs each): 64 shuffles, of which the first half works within 128-bit
// lanes and the second on whole ones.
func (g *gen) transpose16(rows [16]reg.VecPhysical, free *pool) (words [16]reg.VecPhysical) {
	// After this, quad[q][j] has word 4L+j of the inputs 4q to 4q+3 in lane L.
	var quad [4][4]reg.VecPhysical
	for q := range quad {
		r := rows[4*q : 4*q+4]
		lo01, hi01 := g.interleave(r[0], r[1], free)
		lo23, hi23 := g.interleave(r[2], r[3], free)
		quad[q][0], quad[q][1] = g.interleaveWide(lo01, lo23, free)
		quad[q][2], quad[q][3] = g.interleaveWide(hi01, hi23, free)
	}
	for j := range 4 {
		even01, odd01 := g.lanes(quad[0][j], quad[1][j], free)
		even23, odd23 := g.lanes(quad[2][j], quad[3][j], free)
		words[j], words[8+j] = g.lanes(even01, even23, free)
		words[4+j], words[12+j] = g.lanes(odd01, odd23, free)
	}
	return words
}

// interleave, interleaveWide and lanes each use up their two inputs: one
// becomes an output, the other is free.
func (g *gen) interleave(a, b reg.VecPhysical, free *pool) (lo, hi reg.VecPhysical) {
	lo = free.get()
	g.VPUNPCKLDQ(b, a, lo)
	g.VPUNPCKHDQ(b, a, a)
	free.put(b)
	return lo, a
}

func (g *gen) interleaveWide(a, b reg.VecPhysical, free *pool) (lo, hi reg.VecPhysical) {
	lo = free.get()
	g.VPUNPCKLQDQ(b, a, lo)
	g.VPUNPCKHQDQ(b, a, a)
	free.put(b)
	return lo, a
}

func (g *gen) lanes(a, b reg.VecPhysical, free *pool) (even, odd reg.VecPhysical) {
	even = free.get()
	g.VSHUFI32X4(operand.U8(0x88), b, a, even)
	g.VSHUFI32X4(operand.U8(0xdd), b, a, a)
	free.put(b)
	return even, a
}

// transpose8 loads 16 words of each of 8 inputs, four words at a time, and
// calls put with each four, as the interleaved pairs that unpackWide takes. at
// gives the address of an input's bytes, which serves one instruction. It
// works in the eight registers r, which put may overwrite.
func (g *gen) transpose8(r []reg.VecPhysical, at func(lane, disp int) operand.Mem, put func(word int, from [4]reg.VecPhysical)) {
	for part := range 4 {
		for i := range 4 {
			g.VMOVDQU(at(i, 16*part), r[i].AsX())
			g.VINSERTI128(operand.U8(1), at(i+4, 16*part), r[i], r[i])
		}
		g.VPUNPCKLDQ(r[1], r[0], r[4])
		g.VPUNPCKHDQ(r[1], r[0], r[5])
		g.VPUNPCKLDQ(r[3], r[2], r[6])
		g.VPUNPCKHDQ(r[3], r[2], r[7])
		put(4*part, [4]reg.VecPhysical(r[4:]))
	}
}

// unpackWide is the last step of a transposition: from holds interleaved pairs,
// to gets four words.
func (g *gen) unpackWide(from, to [4]reg.VecPhysical) {
	g.VPUNPCKLQDQ(from[2], from[0], to[0])
	g.VPUNPCKHQDQ(from[2], from[0], to[1])
	g.VPUNPCKLQDQ(from[3], from[1], to[2])
	g.VPUNPCKHQDQ(from[3], from[1], to[3])
}

// store8 writes the eight words in ymm 0..7 as eight rows of 32 bytes. It
// overwrites ymm 0..15.
func (g *gen) store8(out reg.Register) {
	for half := range 2 {
		h, t := ymm[4*half:4*half+4], ymm[8:12]
		g.VPUNPCKLDQ(h[1], h[0], t[0])
		g.VPUNPCKHDQ(h[1], h[0], t[1])
		g.VPUNPCKLDQ(h[3], h[2], t[2])
		g.VPUNPCKHDQ(h[3], h[2], t[3])
		g.unpackWide([4]reg.VecPhysical(t), [4]reg.VecPhysical(h))
	}
	for k := range 4 {
		g.VPERM2I128(operand.U8(0x20), ymm[4+k], ymm[k], ymm[8])
		g.VPERM2I128(operand.U8(0x31), ymm[4+k], ymm[k], ymm[9])
		g.VMOVDQU(ymm[8], operand.Mem{Base: out, Disp: 32 * k})
		g.VMOVDQU(ymm[9], operand.Mem{Base: out, Disp: 32 * (4 + k)})
	}
}

// store16 writes the eight words in zmm 0..7 as sixteen rows of 32 bytes.
func (g *gen) store16(out reg.Register) {
	free := pool(zmm[10:])
	var part [2][4]reg.VecPhysical // words 0-3 and 4-7; [k] has row 4L+k in lane L
	for half := range part {
		h := zmm[4*half : 4*half+4]
		lo01, hi01 := g.interleave(h[0], h[1], &free)
		lo23, hi23 := g.interleave(h[2], h[3], &free)
		part[half][0], part[half][1] = g.interleaveWide(lo01, lo23, &free)
		part[half][2], part[half][3] = g.interleaveWide(hi01, hi23, &free)
	}
	for k := range 4 {
		for high, index := range []operand.Mem{g.joinLow, g.joinHigh} {
			z := zmm[8+high]
			g.VMOVDQU32(index, z)
			g.VPERMI2D(part[1][k], part[0][k], z)
			g.VMOVDQU(z.AsY(), operand.Mem{Base: out, Disp: 32 * (8*high + k)})
			g.VEXTRACTI64X4(operand.U8(1), z, operand.Mem{Base: out, Disp: 32 * (8*high + k + 4)})
		}
	}
}
