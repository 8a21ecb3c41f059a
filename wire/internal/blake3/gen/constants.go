//go:build kernelgen

package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

const (
	blockLen = 64
	parent   = 4 // the flag of a parent node
)

// gen holds the constants that kernels share.
type gen struct {
	*build.Context
	iv        operand.Mem // the 8 words of the initial value
	len64     operand.Mem // the length of a full block
	iota64    operand.Mem // 0..15 as 64-bit words
	even      operand.Mem // 0, 2, .. 30: the even words of two registers
	odd       operand.Mem // 1, 3, .. 31
	joinLow   operand.Mem // of 128-bit lanes R0 R1 .. and S0 S1 ..: R0 S0 R1 S1
	joinHigh  operand.Mem // R2 S2 R3 S3
	rot16     operand.Mem // byte order that rotates words right by 16, for YMM
	rot8      operand.Mem
	parentRow operand.Mem // the last row of a parent's state, but for its flags
	picks     operand.Mem // chain: the words of each step, see chain.go

	indices map[[4]int]operand.Mem // see laneIndex
}

func (g *gen) constants() {
	// The square roots' fractional parts that SHA-256 starts from, too.
	g.iv = g.words("iv", []uint32{
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19})
	g.parentRow = g.words("parentRow", []uint32{0, 0, blockLen, 0})
	g.len64 = g.words("len64", []uint32{blockLen})

	var count, even, odd, low, high, r16, r8, picks []uint32
	for i := range uint32(16) {
		count = append(count, i, 0)
		even = append(even, 2*i)
		odd = append(odd, 2*i+1)
	}
	for _, lane := range []uint32{0, 4, 1, 5} { // 4 and up: the second register
		for i := range uint32(4) {
			low = append(low, 4*lane+i)
			high = append(high, 4*(lane+2)+i)
		}
	}
	for i := range uint32(8) {
		base := i % 4 * 4 * 0x01010101
		r16 = append(r16, 0x01000302+base)
		r8 = append(r8, 0x00030201+base)
	}
	for r := range 7 {
		for step := range 4 {
			for _, w := range rowWords(r, step) {
				picks = append(picks, uint32(w))
			}
		}
	}
	g.iota64 = g.words("iota64", count)
	g.even, g.odd = g.words("even", even), g.words("odd", odd)
	g.joinLow, g.joinHigh = g.words("joinLow", low), g.words("joinHigh", high)
	g.rot16, g.rot8 = g.words("rot16", r16), g.words("rot8", r8)
	g.picks = g.words("picks", picks)
}

func (g *gen) words(name string, list []uint32) operand.Mem {
	m := g.StaticGlobal(name)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i, w := range list {
		g.AddDatum(4*i, operand.U32(w))
	}
	return m
}

func (g *gen) function(name, signature string) {
	g.Function(name)
	g.SignatureExpr(signature)
}

// schedule gives for round r (0..6) the message word at each of 16 places:
// the specification's permutation, r times.
func schedule(r int) (s [16]int) {
	permutation := [16]int{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8}
	for i := range s {
		s[i] = i
	}
	for range r {
		next := s
		for i, p := range permutation {
			next[i] = s[p]
		}
		s = next
	}
	return s
}
