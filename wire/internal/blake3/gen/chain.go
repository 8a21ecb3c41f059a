//go:build kernelgen

package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowWords are the message words that the four lanes add in step 0 to 3 of
// round r. Steps 2 and 3 are for the diagonals, one lane further on: see
// rotateRows.
func rowWords(r, step int) (w [4]int) {
	s := schedule(r)
	for lane := range w {
		if step < 2 {
			w[lane] = s[2*lane+step]
		} else {
			w[(lane+1)%4] = s[8+2*lane+step-2]
		}
	}
	return w
}

// chain is one input, block after block, with a row of the state in each of
// four registers. Only the chain of dependencies through b takes time; the
// message words come from beside it.
func (g *gen) chain(avx512 bool) {
	name, need := "chain", "Needs AVX2."
	if avx512 {
		name, need = "chainVL", "Needs AVX512F and AVX512VL."
	}
	g.function(name, "func(cv, src *byte, n, counter, length, first, last uint64)")
	g.Doc(name+" compresses the n blocks at src, n at least 1, into the chaining value",
		"cv. length is how many bytes of each count. first and last are the flags of",
		"the first and last block. "+need)
	g.Pragma("noescape")
	g.Load(g.Param("cv"), out)
	g.Load(g.Param("src"), src)
	g.Load(g.Param("n"), left)
	g.Load(g.Param("counter"), counter)
	g.Load(g.Param("length"), second)
	g.Load(g.Param("first"), flags)
	a, b, c, d := reg.X0, reg.X1, reg.X2, reg.X3
	g.VMOVDQU(operand.Mem{Base: out}, a)
	g.VMOVDQU(operand.Mem{Base: out, Disp: 16}, b)

	g.Label("block")
	g.Load(g.Param("last"), scratch)
	g.ORQ(flags, scratch)
	g.CMPQ(left, operand.I8(1))
	g.CMOVQEQ(scratch, flags)
	g.VMOVDQU(g.iv, c)
	g.VMOVQ(counter, d)
	g.VPINSRD(operand.U8(2), second.As32(), d, d)
	g.VPINSRD(operand.U8(3), flags.As32(), d, d)
	words := g.rowsOne
	if avx512 {
		words = g.rowsVL()
	}
	for r := range 7 {
		for half := range 2 {
			for step := range 2 {
				g.VPADDD(words(r, 2*half+step), a, a)
				g.VPADDD(b, a, a)
				g.VPXOR(a, d, d)
				g.rotateRow(avx512, 16-8*step, d)
				g.VPADDD(d, c, c)
				g.VPXOR(c, b, b)
				g.rotateRow(avx512, 12-5*step, b)
			}
			g.rotateRows(half == 0, a, c, d)
		}
	}
	g.VPXOR(c, a, a)
	g.VPXOR(d, b, b)
	g.XORL(flags.As32(), flags.As32())
	g.ADDQ(operand.I8(blockLen), src)
	g.DECQ(left)
	g.JNZ(operand.LabelRef("block"))
	g.VMOVDQU(a, operand.Mem{Base: out})
	g.VMOVDQU(b, operand.Mem{Base: out, Disp: 16})
	g.VZEROUPPER()
	g.RET()
}

// rotateRows turns the columns into diagonals, or back. b, the latest result,
// stays where it is: the others move round it, so that a diagonal's lane is
// that of its word in b.
func (g *gen) rotateRows(diagonal bool, a, c, d reg.VecPhysical) {
	const one, two, three = 0x39, 0x4e, 0x93 // lane i gets lane i+1, i+2, i+3
	toA, toC := uint8(three), uint8(one)
	if !diagonal {
		toA, toC = toC, toA
	}
	g.VPSHUFD(operand.U8(toA), a, a)
	g.VPSHUFD(operand.U8(toC), c, c)
	g.VPSHUFD(operand.U8(two), d, d)
}

func (g *gen) rotateRow(avx512 bool, n int, x reg.VecPhysical) {
	t := reg.X15
	switch {
	case avx512:
		g.VPRORD(operand.U8(uint8(n)), x, x)
	case n == 16:
		g.VPSHUFB(g.rot16, x, x)
	case n == 8:
		g.VPSHUFB(g.rot8, x, x)
	default:
		g.VPSRLD(operand.U8(uint8(n)), x, t)
		g.VPSLLD(operand.U8(uint8(32-n)), x, x)
		g.VPOR(t, x, x)
	}
}

// rowsOne gathers four words one by one, into one of eight registers in turn.
func (g *gen) rowsOne(r, step int) reg.VecPhysical {
	x := ymm[4+(4*r+step)%8].AsX().(reg.VecPhysical)
	for i, w := range rowWords(r, step) {
		m := operand.Mem{Base: src, Disp: 4 * w}
		if i == 0 {
			g.VMOVD(m, x)
		} else {
			g.VPINSRD(operand.U8(uint8(i)), m, x, x)
		}
	}
	return x
}

// rowsVL keeps the block in two registers and picks four words at once.
func (g *gen) rowsVL() func(r, step int) reg.VecPhysical {
	g.VMOVDQU32(operand.Mem{Base: src}, reg.Y16)
	g.VMOVDQU32(operand.Mem{Base: src, Disp: 32}, reg.Y17)
	return func(r, step int) reg.VecPhysical {
		y := ymm[4+(4*r+step)%8]
		x := y.AsX().(reg.VecPhysical)
		g.VMOVDQU(g.picks.Offset(16*(4*r+step)), x)
		g.VPERMI2D(reg.Y17, reg.Y16, y)
		return x
	}
}
