//go:build kernelgen

package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// quads are the words of the state that each of four quarter rounds mixes:
// first the columns, then the diagonals.
var quads = [2][4][4]int{
	{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}},
	{{0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13}, {3, 4, 9, 14}},
}

// rotator rotates the words v[i] of the four quads right by n bits. first is
// one word of the state that is not rotated now.
type rotator func(n uint8, v [4]reg.VecPhysical, first reg.VecPhysical)

// rounds writes the seven rounds: v is the state, one register a word, m the
// message, in registers or memory. The four quarter rounds are interleaved
// operation by operation, because each alone is one chain of dependencies.
// beside is other work, spread evenly between the operations but for the last
// round's, so that its results are there in time.
func (g *gen) rounds(v [16]reg.VecPhysical, m [16]operand.Op, rotate rotator, beside ...func()) {
	const places = 6 * 2 * 2 * 4
	place, done := 0, 0
	other := func() {
		place++
		for ; done < len(beside) && done*places < place*len(beside); done++ {
			beside[done]()
		}
	}
	for r := range 7 {
		s := schedule(r)
		for half, quad := range quads {
			row := func(k int) (out [4]reg.VecPhysical) {
				for i, q := range quad {
					out[i] = v[q[k]]
				}
				return out
			}
			a, b, c, d := row(0), row(1), row(2), row(3)
			for step := range 2 {
				for i := range a {
					g.VPADDD(m[s[8*half+2*i+step]], a[i], a[i])
				}
				g.add(a, b)
				other()
				g.xor(d, a)
				rotate(uint8(16-8*step), d, a[0])
				other()
				g.add(c, d)
				other()
				g.xor(b, c)
				rotate(uint8(12-5*step), b, a[0])
				other()
			}
		}
	}
}

func (g *gen) add(to, by [4]reg.VecPhysical) {
	for i := range to {
		g.VPADDD(by[i], to[i], to[i])
	}
}

func (g *gen) xor(to, by [4]reg.VecPhysical) {
	for i := range to {
		g.xor1(by[i], to[i])
	}
}

// xor1 needs the EVEX form only where VEX has none.
func (g *gen) xor1(by operand.Op, to reg.VecPhysical) {
	if to.Size() == 64 || to.PhysicalIndex() > 15 || highRegister(by) {
		g.VPXORD(by, to, to)
		return
	}
	g.VPXOR(by, to, to)
}

func highRegister(o operand.Op) bool {
	r, ok := o.(reg.VecPhysical)
	return ok && r.PhysicalIndex() > 15
}

// rotate512 has the rotation as one instruction.
func (g *gen) rotate512(n uint8, v [4]reg.VecPhysical, _ reg.VecPhysical) {
	for _, r := range v {
		g.VPRORD(operand.U8(n), r, r)
	}
}

// rotate256 is for AVX2: a byte shuffle where n allows it, else two shifts.
// All 16 registers hold the state, so spill keeps first while its register
// holds one of the shifted halves.
func (g *gen) rotate256(spill operand.Mem) rotator {
	return func(n uint8, v [4]reg.VecPhysical, first reg.VecPhysical) {
		switch n {
		case 16, 8:
			mask := g.rot16
			if n == 8 {
				mask = g.rot8
			}
			for _, r := range v {
				g.VPSHUFB(mask, r, r)
			}
		default:
			g.VMOVDQA(first, spill)
			for _, r := range v {
				g.VPSRLD(operand.U8(n), r, first)
				g.VPSLLD(operand.U8(32-n), r, r)
				g.VPOR(first, r, r)
			}
			g.VMOVDQA(spill, first)
		}
	}
}
