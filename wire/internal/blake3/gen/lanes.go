//go:build kernelgen

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The general registers of a lanes kernel. BP is not used.
var (
	out     = reg.RDI // this group's outputs
	src     = reg.RSI // this group's inputs
	lanes   = reg.RCX // inputs left, this group's included
	counter = reg.RDX // chunk counter of the group's first lane
	flags   = reg.R10 // of this block, but for the last block's
	offset  = reg.R11 // of this block within an input
	frame   = reg.R12 // the locals, aligned to 64 bytes
	left    = reg.R13 // blocks left, this one included
	stride  = reg.R15 // from one input to the next
	scratch = reg.RAX
	second  = reg.R14

	toCopy  = reg.R8  // lanes16Copy: from an input to its copy
	message = reg.RBX // lanes16: of this block
	next    = reg.R9  // lanes16: of the next one
)

// prefetch is how far ahead of a chunk's block lanes16 asks for memory: the same
// block of the next group of 16 chunks. It costs 1 % of the time where the input
// is in the cache, and saves 15 % and more where it is not.
const prefetch = 16 << 10

// laneFrame says where things are in the frame of a kernel of some width.
type laneFrame struct{ low, high, pointers, flags, spill, message, size int }

func frameOf(width int) (f laneFrame) {
	f.low, f.high, f.pointers = 0, 4*width, 8*width
	f.flags = f.pointers + 8*width
	f.spill = f.flags + 32
	f.message = f.spill + 32
	f.size = f.spill
	return f
}

func at(disp int) operand.Mem { return operand.Mem{Base: frame, Disp: disp} }

// input is 16 or more bytes of the block whose input the address register has.
func input(address reg.Register, disp int) operand.Mem {
	return operand.Mem{Base: address, Index: offset, Scale: 1, Disp: disp}
}

func (g *gen) lanesDoc(name string, width int, more ...string) {
	g.Doc(append([]string{
		fmt.Sprintf("%s hashes n inputs of so many blocks each, one behind the other at src,", name),
		fmt.Sprintf("%d abreast, and writes their chaining values to out, which has room for n", width),
		fmt.Sprintf("rounded up to %d. Lane i has the chunk counter counter + i*step, step 0 or", width),
		"1. first and last are the flags of an input's first and last block."}, more...)...)
	g.Pragma("noescape")
}

// lanes16 is 16 abreast with AVX-512. Half of the 32 registers hold the state;
// in the other half, while one block is compressed, the next is loaded and
// transposed, from where it goes to the frame. Shuffles have one port and
// rotations the other, so that they take no time from each other.
func (g *gen) lanes16(name string, copies bool) {
	const width = 16
	f := frameOf(width)
	f.message = f.pointers + 8*width + 64
	f.flags, f.size = f.message-64, f.message+2*16*64
	if copies {
		g.function(name, "func(out, src, dst *byte, n, blocks, counter, step, first, last uint64)")
		g.lanesDoc(name, width,
			"n is a multiple of 16. What is hashed is also written to dst: src is read",
			"once. Needs AVX512F and AVX512VL.")
		g.Load(g.Param("dst"), toCopy)
	} else {
		g.function(name, "func(out, src *byte, n, blocks, counter, step, first, last uint64)")
		g.lanesDoc(name, width, "Needs AVX512F and AVX512VL.")
	}
	g.open(f.size)
	if copies {
		g.SUBQ(src, toCopy)
	}
	g.LEAQ(at(f.message), next)
	g.LEAQ(at(f.message+16*64), message)
	g.pointers(f, width)
	g.XORL(offset.As32(), offset.As32())
	for _, do := range g.load16(f, copies) {
		do()
	}
	g.XCHGQ(message, next)

	v := zmm[:16]
	g.Label("group")
	g.counters16(f)
	g.startGroup(v)
	g.Label("block")
	g.blockFlags(f)
	g.lowerHalf(v, f, func(m, r operand.Op) { g.VMOVDQA32(m, r) })
	g.ADDQ(operand.I8(blockLen), offset)
	g.CMPQ(left, operand.I8(1))
	g.JNE(operand.LabelRef("compress"))
	g.CMPQ(lanes, operand.I8(width))
	g.JLS(operand.LabelRef("last"))
	g.nextGroup(width)
	g.pointers(f, width)
	g.XORL(offset.As32(), offset.As32())
	g.Label("compress")
	var m [16]operand.Op
	for i := range m {
		m[i] = operand.Mem{Base: message, Disp: 64 * i}
	}
	g.rounds([16]reg.VecPhysical(v), m, g.rotate512, g.load16(f, copies)...)
	g.foldState(v)
	g.XCHGQ(message, next)
	g.XORL(flags.As32(), flags.As32())
	g.DECQ(left)
	g.JNZ(operand.LabelRef("block"))
	g.store16(out)
	g.ADDQ(operand.I32(32*width), out)
	g.JMP(operand.LabelRef("group"))

	g.Label("last")
	g.rounds([16]reg.VecPhysical(v), m, g.rotate512)
	g.foldState(v)
	g.store16(out)
	g.VZEROUPPER()
	g.RET()
}

// load16 gives the work of getting a block of each of 16 inputs to next, as 16
// words of 16 inputs each: eight words after the other eight.
func (g *gen) load16(f laneFrame, copies bool) (work []func()) {
	do := func(f func()) { work = append(work, f) }
	if copies {
		do(func() { g.LEAQ(operand.Mem{Base: toCopy, Index: offset, Scale: 1}, second) })
	}
	copied := func(disp int) operand.Mem {
		return operand.Mem{Base: scratch, Index: second, Scale: 1, Disp: disp}
	}
	for half := range 2 {
		free := pool(zmm[16:])
		var r [8]reg.VecPhysical
		for i := range r {
			r[i] = free.get()
			ahead := func() {
				if half == 0 {
					g.PREFETCHT0(input(scratch, prefetch))
				}
			}
			lane := i + i/4*4 // 0-3 and, in the upper half, 4-7; then 8-11 and 12-15
			do(func() {
				g.MOVQ(at(f.pointers+8*lane), scratch)
				ahead()
				g.VMOVDQU32(input(scratch, 32*half), r[i].AsY())
				if copies {
					g.VMOVDQU32(r[i].AsY(), copied(32*half))
				}
			})
			do(func() {
				g.MOVQ(at(f.pointers+8*(lane+4)), scratch)
				ahead()
				g.VINSERTI64X4(operand.U8(1), input(scratch, 32*half), r[i], r[i])
				if copies {
					g.VEXTRACTI64X4(operand.U8(1), r[i], copied(32*half))
				}
			})
		}
		words := g.transpose16(r, &free, do)
		for i, w := range words {
			do(func() { g.VMOVDQA32(w, operand.Mem{Base: next, Disp: 64 * (8*half + i)}) })
		}
	}
	return work
}

// lanes8 is 8 abreast in YMM: with AVX-512's registers and rotation, or with
// AVX2 only, where the message words are in the frame.
func (g *gen) lanes8(avx512 bool) {
	const width = 8
	f := frameOf(width)
	name, need := "lanes8", "Needs AVX2."
	var m [16]operand.Op
	rotate := rotator(g.rotate512)
	for i := range m {
		m[i] = ymm[16+i]
	}
	if avx512 {
		name, need = "lanes8VL", "Needs AVX512F and AVX512VL."
	} else {
		rotate = g.rotate256(at(f.spill))
		for i := range m {
			m[i] = at(f.message + 32*i)
		}
		f.size = f.message + 16*32
	}
	g.function(name, "func(out, src *byte, n, blocks, counter, step, first, last uint64)")
	g.lanesDoc(name, width, need)
	g.open(f.size)

	g.Label("group")
	g.counters8(f)
	g.pointers(f, width)
	g.startGroup(ymm[:])
	g.XORL(offset.As32(), offset.As32())
	g.Label("block")
	g.message8(f, m)
	v := ymm[:16]
	g.blockFlags(f)
	g.lowerHalf(v, f, func(m, r operand.Op) { g.VMOVDQA(m, r) })
	g.rounds([16]reg.VecPhysical(v), m, rotate)
	g.foldState(v)
	g.XORL(flags.As32(), flags.As32())
	g.ADDQ(operand.I8(blockLen), offset)
	g.DECQ(left)
	g.JNZ(operand.LabelRef("block"))
	g.store8(out)
	g.ADDQ(operand.I32(32*width), out)
	g.nextGroup(width)
	g.JHI(operand.LabelRef("group"))
	g.VZEROUPPER()
	g.RET()
}

// message8 gets a block of each of 8 inputs to m, through ymm 8..15.
func (g *gen) message8(f laneFrame, m [16]operand.Op) {
	g.transpose8(ymm[8:16],
		func(lane, disp int) operand.Mem {
			g.MOVQ(at(f.pointers+8*lane), scratch)
			return input(scratch, disp)
		},
		func(word int, from [4]reg.VecPhysical) {
			to := [4]reg.VecPhysical(ymm[8:12])
			_, inMemory := m[word].(operand.Mem)
			if !inMemory {
				for i := range to {
					to[i] = m[word+i].(reg.VecPhysical)
				}
			}
			g.unpackWide(from, to)
			for i := 0; inMemory && i < 4; i++ {
				g.VMOVDQA(to[i], m[word+i])
			}
		})
}

// open loads the parameters and makes an aligned frame.
func (g *gen) open(size int) {
	g.Load(g.Param("out"), out)
	g.Load(g.Param("src"), src)
	g.Load(g.Param("n"), lanes)
	g.Load(g.Param("counter"), counter)
	g.alignedFrame(size)
	g.Load(g.Param("blocks"), stride)
	g.SHLQ(operand.U8(6), stride)
}

func (g *gen) alignedFrame(size int) {
	g.LEAQ(g.AllocLocal(size+64), frame)
	g.ADDQ(operand.I8(63), frame)
	g.ANDQ(operand.I8(-64), frame)
}

// counters16 leaves the lanes' counters in the frame: 64-bit sums, taken apart
// into low and high words.
func (g *gen) counters16(f laneFrame) {
	z := zmm[:]
	g.Load(g.Param("step"), scratch)
	g.NEGQ(scratch)
	g.VPBROADCASTQ(scratch, z[0])
	g.VPBROADCASTQ(counter, z[1])
	for i := range 2 {
		g.VPANDQ(g.iota64.Offset(64*i), z[0], z[2+i])
		g.VPADDQ(z[1], z[2+i], z[2+i])
	}
	g.VMOVDQU32(g.even, z[4])
	g.VMOVDQU32(g.odd, z[5])
	for i, disp := range []int{f.low, f.high} {
		g.VPERMI2D(z[3], z[2], z[4+i])
		g.VMOVDQA32(z[4+i], at(disp))
	}
}

func (g *gen) counters8(f laneFrame) {
	y := ymm[:]
	g.Load(g.Param("step"), scratch)
	g.NEGQ(scratch)
	for i, r := range []reg.Register{scratch, counter} {
		g.VMOVQ(r, y[i].AsX())
		g.VPBROADCASTQ(y[i].AsX(), y[i])
	}
	for i := range 2 {
		g.VPAND(g.iota64.Offset(32*i), y[0], y[2+i])
		g.VPADDQ(y[1], y[2+i], y[2+i])
	}
	for i, disp := range []int{f.low, f.high} {
		// 0x88: the even words of both, 0xdd the odd ones, each within its
		// 128-bit lane; 0xd8 puts the lanes' halves in order.
		g.VSHUFPS(operand.U8(uint8(0x88+0x55*i)), y[3], y[2], y[4])
		g.VPERMQ(operand.U8(0xd8), y[4], y[4])
		g.VMOVDQA(y[4], at(disp))
	}
}

// pointers leaves the address of each lane's input in the frame. Lanes beyond
// the last input read that one too, and their results are not used.
func (g *gen) pointers(f laneFrame, width int) {
	g.MOVQ(src, scratch)
	g.MOVQ(src, second)
	g.MOVQ(scratch, at(f.pointers))
	for i := 1; i < width; i++ {
		g.ADDQ(stride, second)
		g.CMPQ(lanes, operand.I8(int8(i)))
		g.CMOVQHI(second, scratch)
		g.MOVQ(scratch, at(f.pointers+8*i))
	}
}

func (g *gen) startGroup(h []reg.VecPhysical) {
	for i := range 8 {
		g.VPBROADCASTD(g.iv.Offset(4*i), h[i])
	}
	g.Load(g.Param("first"), flags)
	g.Load(g.Param("blocks"), left)
}

// blockFlags leaves this block's flags in the frame.
func (g *gen) blockFlags(f laneFrame) {
	g.Load(g.Param("last"), scratch)
	g.ORQ(flags, scratch)
	g.CMPQ(left, operand.I8(1))
	g.CMOVQEQ(scratch, flags)
	g.MOVL(flags.As32(), at(f.flags))
}

// lowerHalf fills the state's words 8 to 15.
func (g *gen) lowerHalf(v []reg.VecPhysical, f laneFrame, load func(m, r operand.Op)) {
	for i := range 4 {
		g.VPBROADCASTD(g.iv.Offset(4*i), v[8+i])
	}
	load(at(f.low), v[12])
	load(at(f.high), v[13])
	g.VPBROADCASTD(g.len64, v[14])
	g.VPBROADCASTD(at(f.flags), v[15])
}

// foldState makes the chaining value of the state.
func (g *gen) foldState(v []reg.VecPhysical) {
	for i := range 8 {
		g.xor1(v[8+i], v[i])
	}
}

// nextGroup moves src, lanes and counter on by so many lanes.
func (g *gen) nextGroup(width int) {
	g.Load(g.Param("step"), scratch)
	g.IMUL3Q(operand.I8(int8(width)), scratch, scratch)
	g.ADDQ(scratch, counter)
	g.IMUL3Q(operand.I8(int8(width)), stride, scratch)
	g.ADDQ(scratch, src)
	g.SUBQ(operand.I8(int8(width)), lanes)
}
