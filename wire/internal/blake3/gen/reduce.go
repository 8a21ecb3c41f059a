//go:build kernelgen

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowSet is four parents abreast with a row of the state in each register, one
// parent a 128-bit lane. m has the message: words of each parent, in the
// places that layout gives.
type rowSet struct {
	a, b, c, d reg.VecPhysical
	m, spare   [4]reg.VecPhysical
	layout     [4][4]int
}

func newRowSet(z []reg.VecPhysical) *rowSet {
	return &rowSet{a: z[0], b: z[1], c: z[2], d: z[3],
		m: [4]reg.VecPhysical(z[4:]), spare: [4]reg.VecPhysical(z[8:])}
}

// reduce is the top of a tree. With 8 parents and fewer abreast the time is
// that of the chain of dependencies, which rows make shortest; and from one
// level to the next the chaining values stay in registers.
func (g *gen) reduce() {
	lower, upper := newRowSet(zmm[:12]), newRowSet(zmm[12:24])
	g.function("reduceVL", "func(out, src *byte, n, last uint64)")
	g.Doc("reduceVL makes of the n chaining values at src, n = 2, 4, 8 or 16, the one of",
		"the tree above them. src has room for 8 at least. last is what the topmost",
		"node has as flags besides that of a parent. Needs AVX512F and AVX512VL.")
	g.Pragma("noescape")
	g.Load(g.Param("out"), out)
	g.Load(g.Param("src"), src)
	g.Load(g.Param("n"), left)
	g.MOVL(operand.U32(parent), flags.As32())
	g.loadParents(lower, 0)
	g.CMPQ(left, operand.I8(16))
	g.JNE(operand.LabelRef("narrow"))
	g.loadParents(upper, 4*blockLen)
	g.compressRows(lower, upper)
	g.nextLevel(lower, upper)
	g.SHRQ(operand.U8(1), left)

	g.Label("narrow")
	g.Load(g.Param("last"), second)
	g.ORQ(flags, second)
	g.Label("level")
	g.SHRQ(operand.U8(1), left)
	g.CMPQ(left, operand.I8(1))
	g.CMOVQEQ(second, flags)
	g.compressRows(lower)
	g.CMPQ(left, operand.I8(1))
	g.JEQ(operand.LabelRef("done"))
	g.nextLevel(lower, lower)
	g.JMP(operand.LabelRef("level"))

	g.Label("done")
	g.VMOVDQU(lower.a.AsX(), operand.Mem{Base: out})
	g.VMOVDQU(lower.b.AsX(), operand.Mem{Base: out, Disp: 16})
	g.VZEROUPPER()
	g.RET()
}

// loadParents fills m with the first to the last four words of the messages of
// four parents: a transposition of 128-bit lanes.
func (g *gen) loadParents(s *rowSet, disp int) {
	t := [4]reg.VecPhysical{s.a, s.b, s.c, s.d}
	for i, r := range t {
		// As the values were written: a load across two stores just made
		// would wait for both to reach the cache.
		g.VMOVDQU(operand.Mem{Base: src, Disp: disp + blockLen*i}, r.AsY())
		g.VINSERTI64X4(operand.U8(1), operand.Mem{Base: src, Disp: disp + blockLen*i + 32}, r, r)
	}
	for i := range 2 {
		g.lanes(t[2*i], t[2*i+1], s.spare[2*i], false)
		g.lanes(t[2*i], t[2*i+1], s.spare[2*i+1], true)
	}
	for i := range 2 {
		g.lanes(s.spare[i], s.spare[2+i], s.m[i], false)
		g.lanes(s.spare[i], s.spare[2+i], s.m[2+i], true)
	}
}

// nextLevel makes the messages of the parents of those in s and, behind them,
// o. A left child is an even one.
func (g *gen) nextLevel(s, o *rowSet) {
	for i := range 2 {
		own, other := [2]reg.VecPhysical{s.a, s.b}[i], [2]reg.VecPhysical{o.a, o.b}[i]
		g.lanes(own, other, s.m[i], false)
		g.lanes(own, other, s.m[2+i], true)
	}
}

// compressRows leaves the chaining values in a and b.
func (g *gen) compressRows(sets ...*rowSet) {
	each := func(f func(s *rowSet)) {
		for _, s := range sets {
			f(s)
		}
	}
	first := sets[0]
	g.VBROADCASTI32X4(g.iv, first.a)
	g.VBROADCASTI32X4(g.iv.Offset(16), first.b)
	g.VMOVDQU(g.parentRow, first.d.AsX())
	g.VPINSRD(operand.U8(3), flags.As32(), first.d.AsX(), first.d.AsX())
	g.VSHUFI32X4(operand.U8(0), first.d, first.d, first.d)
	each(func(s *rowSet) {
		if s != first {
			g.VMOVDQA32(first.a, s.a)
			g.VMOVDQA32(first.b, s.b)
			g.VMOVDQA32(first.d, s.d)
		}
		g.VMOVDQA32(first.a, s.c)
		s.layout = [4][4]int{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}
	})
	for r := range 7 {
		each(func(s *rowSet) { g.permute(s, r) })
		for step := range 4 {
			each(func(s *rowSet) { g.VPADDD(s.m[step], s.a, s.a) })
			each(func(s *rowSet) { g.VPADDD(s.b, s.a, s.a) })
			each(func(s *rowSet) { g.VPXORD(s.a, s.d, s.d) })
			each(func(s *rowSet) { g.VPRORD(operand.U8(uint8(16-8*(step%2))), s.d, s.d) })
			each(func(s *rowSet) { g.VPADDD(s.d, s.c, s.c) })
			each(func(s *rowSet) { g.VPXORD(s.c, s.b, s.b) })
			each(func(s *rowSet) { g.VPRORD(operand.U8(uint8(12-5*(step%2))), s.b, s.b) })
			if step%2 == 1 {
				each(func(s *rowSet) { g.rotateRows(step == 1, s.a, s.c, s.d) })
			}
		}
	}
	each(func(s *rowSet) {
		g.VPXORD(s.c, s.a, s.a)
		g.VPXORD(s.d, s.b, s.b)
	})
	// Seven permutations leave m and spare exchanged. The loop over the levels
	// comes back to code that expects them as they were.
	each(func(s *rowSet) { s.m, s.spare = s.spare, s.m })
}

// permute brings the words of round r to the places where its steps add them.
// The specification's permutation is the same in each round, and each step's
// four words come from two or three registers.
func (g *gen) permute(s *rowSet, r int) {
	var layout [4][4]int
	for step := range layout {
		layout[step] = rowWords(r, step)
		to := s.spare[step]
		sources := [4]bool{}
		for _, w := range layout[step] {
			i, _ := place(s.layout, w)
			sources[i] = true
		}
		var got [4]int // the words in to, so far
		for i := range got {
			got[i] = -1
		}
		have := -1 // the register that the words so far are in; -1: none
		for i, used := range sources {
			switch {
			case !used:
			case have < 0:
				have = i
			default:
				g.merge(s, to, layout[step], &got, have, i)
				have = 4
			}
		}
	}
	s.m, s.spare, s.layout = s.spare, s.m, layout
}

// merge picks words for to from m[have], or if have is 4 from to itself, and
// from m[with].
func (g *gen) merge(s *rowSet, to reg.VecPhysical, want [4]int, got *[4]int, have, with int) {
	var index [4]int
	for lane, w := range want {
		switch i, at := place(s.layout, w); {
		case i == with:
			index[lane], got[lane] = 16+at, w
		case have == 4 && got[lane] == w:
			index[lane] = lane
		case i == have:
			index[lane], got[lane] = at, w
		}
	}
	if have < 4 {
		g.VMOVDQU32(g.laneIndex(index), to)
		g.VPERMI2D(s.m[with], s.m[have], to)
		return
	}
	g.VMOVDQU32(g.laneIndex(index), reg.Z24)
	g.VPERMT2D(s.m[with], reg.Z24, to)
}

func place(layout [4][4]int, word int) (register, lane int) {
	for i, words := range layout {
		for j, w := range words {
			if w == word {
				return i, j
			}
		}
	}
	panic(fmt.Sprintf("word %d is nowhere", word))
}

// laneIndex is an index for a permutation of two registers that does the same
// in each 128-bit lane.
func (g *gen) laneIndex(index [4]int) operand.Mem {
	if m, ok := g.indices[index]; ok {
		return m
	}
	var words []uint32
	for lane := range uint32(4) {
		for _, i := range index {
			words = append(words, uint32(i)+4*lane)
		}
	}
	m := g.words(fmt.Sprintf("index%d", len(g.indices)), words)
	g.indices[index] = m
	return m
}
