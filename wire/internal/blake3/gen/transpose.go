//go:build kernelgen

package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose16 turns r into one register a word, for eight words of 16 inputs.
// Before, r[i] has the words of input i and i+4, the last four those of i+4 and
// i+8 (8 and 12 and so on). Each instruction goes to do. The unpacking works
// within 128-bit lanes, the last step on whole ones.
func (g *gen) transpose16(r [8]reg.VecPhysical, free *pool, do func(func())) (words [8]reg.VecPhysical) {
	var quad [2][4]reg.VecPhysical
	for q := range quad {
		r := r[4*q : 4*q+4]
		lo01, hi01 := g.pair(g.interleave, r[0], r[1], free, do)
		lo23, hi23 := g.pair(g.interleave, r[2], r[3], free, do)
		quad[q][0], quad[q][1] = g.pair(g.interleaveWide, lo01, lo23, free, do)
		quad[q][2], quad[q][3] = g.pair(g.interleaveWide, hi01, hi23, free, do)
	}
	for j := range 4 {
		words[j], words[4+j] = g.pair(g.lanes, quad[0][j], quad[1][j], free, do)
	}
	return words
}

// pair is one step of a transposition: two shuffles of a and b. The first goes
// to a free register, the second to a's, and b's is free afterwards.
func (g *gen) pair(shuffle func(a, b, lo reg.VecPhysical, second bool), a, b reg.VecPhysical, free *pool, do func(func())) (lo, hi reg.VecPhysical) {
	lo = free.get()
	do(func() { shuffle(a, b, lo, false) })
	do(func() { shuffle(a, b, a, true) })
	free.put(b)
	return lo, a
}

func (g *gen) interleave(a, b, to reg.VecPhysical, high bool) {
	if high {
		g.VPUNPCKHDQ(b, a, to)
	} else {
		g.VPUNPCKLDQ(b, a, to)
	}
}

func (g *gen) interleaveWide(a, b, to reg.VecPhysical, high bool) {
	if high {
		g.VPUNPCKHQDQ(b, a, to)
	} else {
		g.VPUNPCKLQDQ(b, a, to)
	}
}

// lanes takes the 128-bit lanes 0 and 2 of both, or 1 and 3.
func (g *gen) lanes(a, b, to reg.VecPhysical, odd bool) {
	if odd {
		g.VSHUFI32X4(operand.U8(0xdd), b, a, to)
	} else {
		g.VSHUFI32X4(operand.U8(0x88), b, a, to)
	}
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
	now := func(f func()) { f() }
	var part [2][4]reg.VecPhysical // words 0-3 and 4-7; [k] has row 4L+k in lane L
	for half := range part {
		h := zmm[4*half : 4*half+4]
		lo01, hi01 := g.pair(g.interleave, h[0], h[1], &free, now)
		lo23, hi23 := g.pair(g.interleave, h[2], h[3], &free, now)
		part[half][0], part[half][1] = g.pair(g.interleaveWide, lo01, lo23, &free, now)
		part[half][2], part[half][3] = g.pair(g.interleaveWide, hi01, hi23, &free, now)
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
