package wire

import (
	"fmt"
	"testing"
)

// benchSizes are the body sizes of the benchmarks: a block of a small model up
// to a fused one of a large model.
var benchSizes = []int{16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

func eachSize(b *testing.B, f func(b *testing.B, n int)) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			f(b, n)
		})
	}
}

func BenchmarkParseHeader(b *testing.B) {
	p := Header{BodyLen: 4096, Tier: OutputCritical, Sum: SumOf(nil)}.Append(nil)
	for _, m := range []Mode{Strict, Lenient} {
		b.Run(modeNames[m], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseHeader(p, m, MaxBody); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPutHeader(b *testing.B) {
	h := Header{BodyLen: 4096, Tier: OutputCritical, Sum: SumOf(nil)}
	var p [HeaderLen]byte
	for b.Loop() {
		h.Put(p[:])
	}
}

// BenchmarkHash is BLAKE3 alone, the floor of BenchmarkSeal.
func BenchmarkHash(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		body := patterned(n)
		for b.Loop() {
			SumOf(body)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		p := make([]byte, HeaderLen+n)
		copy(p[HeaderLen:], patterned(n))
		for b.Loop() {
			if _, err := Seal(p, ThinkActive); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCopy(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		src, dst := patterned(n), make([]byte, n)
		for b.Loop() {
			copy(dst, src)
		}
	})
}

func BenchmarkCopySum(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		src, dst := patterned(n), make([]byte, n)
		for b.Loop() {
			CopySum(dst, src)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		p, _ := AppendPayload(nil, ThinkActive, patterned(n))
		for b.Loop() {
			if _, _, err := Decode(p, Strict, MaxBody); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkKeyOf(b *testing.B) {
	ns, hash := Manifest{Tenant: "a"}.Namespace(), patterned(32)
	b.ReportAllocs()
	for b.Loop() {
		KeyOf(ns, hash)
	}
}
