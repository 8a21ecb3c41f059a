package blake3

import (
	"fmt"
	"testing"

	"github.com/zeebo/blake3"
)

// benchSizes are one chunk, a small block, and the blocks of small to large
// models.
var benchSizes = []int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

// eachPath runs f for each size on each path, and beside them as "zeebo": the
// library as it is called without this package.
func eachPath(b *testing.B, zeebo, ours func(dst, src []byte)) {
	for _, n := range benchSizes {
		src, dst := patterned(n), make([]byte, n)
		run := func(name string, f func(dst, src []byte)) {
			b.Run(fmt.Sprintf("%dKiB/%s", n>>10, name), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f(dst, src)
				}
			})
		}
		run("zeebo", zeebo)
		for _, p := range Paths()[1:] {
			force(b, p)
			run(p.String(), ours)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	eachPath(b,
		func(_, src []byte) { blake3.Sum256(src) },
		func(_, src []byte) { Sum256(src) })
}

func BenchmarkCopySum(b *testing.B) {
	eachPath(b,
		func(dst, src []byte) { genericCopySum(dst, src) },
		func(dst, src []byte) { CopySum256(dst, src) })
}

func BenchmarkHasher(b *testing.B) {
	const piece = 64 << 10
	zeebo, ours := blake3.New(), new(Hasher)
	eachPath(b,
		func(_, src []byte) {
			zeebo.Reset()
			for len(src) > 0 {
				n := min(len(src), piece)
				_, _ = zeebo.Write(src[:n])
				src = src[n:]
			}
			var d [Size]byte
			zeebo.Sum(d[:0])
		},
		func(_, src []byte) {
			ours.Reset()
			for len(src) > 0 {
				n := min(len(src), piece)
				_, _ = ours.Write(src[:n])
				src = src[n:]
			}
			ours.Sum256()
		})
}
