//go:build kernelgen

package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// reduce is the top of a tree: up to 8 parents abreast, then their parents,
// and so on. From one level to the next the chaining values stay in registers:
// a word of the left and of the right child of each parent is every other word
// of the level below.
func (g *gen) reduce() {
	f := frameOf(8)
	g.function("reduceVL", "func(out, src *byte, n, last uint64)")
	g.Doc("reduceVL makes of the n chaining values at src, n = 2, 4, 8 or 16, the one of",
		"the tree above them. last is what the topmost node has as flags besides",
		"that of a parent. Needs AVX512F and AVX512VL.")
	g.Pragma("noescape")
	g.Load(g.Param("out"), out)
	g.Load(g.Param("src"), src)
	g.Load(g.Param("n"), lanes)
	g.SHRQ(operand.U8(1), lanes)
	g.MOVQ(operand.U32(blockLen), stride)
	g.XORL(offset.As32(), offset.As32())
	g.alignedFrame(f.size)
	g.pointers(f, 8)

	v := ymm[:16]
	var m [16]operand.Op
	for i := range m {
		m[i] = ymm[16+i]
	}
	g.message8(f, m)
	g.Label("level")
	g.MOVQ(operand.U32(parent), flags)
	g.MOVQ(lanes, left)
	g.blockFlags(f)
	for i := range 8 {
		g.VPBROADCASTD(g.iv.Offset(4*i), v[i])
	}
	for i := range 4 {
		g.VPBROADCASTD(g.iv.Offset(4*i), v[8+i])
	}
	g.VPXOR(v[12], v[12], v[12])
	g.VPXOR(v[13], v[13], v[13])
	g.VPBROADCASTD(g.len64, v[14])
	g.VPBROADCASTD(at(f.flags), v[15])
	g.rounds([16]reg.VecPhysical(v), m, g.rotate512)
	g.foldState(v)
	g.SHRQ(operand.U8(1), lanes)
	g.JZ(operand.LabelRef("done"))
	g.VMOVDQU(g.even, v[8])
	g.VMOVDQU(g.odd, v[9])
	for i := range 8 {
		g.VPERMD(v[i], v[8], m[i])
		g.VPERMD(v[i], v[9], m[8+i])
	}
	g.JMP(operand.LabelRef("level"))
	g.Label("done")
	for i := range 8 {
		g.VMOVD(v[i].AsX(), operand.Mem{Base: out, Disp: 4 * i})
	}
	g.VZEROUPPER()
	g.RET()
}
