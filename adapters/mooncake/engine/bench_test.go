package engine

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// Both sides in one process: what a batch of 16 costs in processor time.
func BenchmarkBatch(b *testing.B) {
	const set = 64 << 20
	p := newPair(b, set)
	for _, write := range []bool{false, true} {
		for _, size := range []int{16 << 10, 64 << 10, 1 << 20} {
			name := "read"
			if write {
				name = "write"
			}
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				ops := make([]Op, 16)
				for i := range ops {
					ops[i].B = make([]byte, size)
				}
				b.SetBytes(int64(16 * size))
				began := processorTime(b)
				for n := 0; b.Loop(); n++ {
					for i := range ops {
						ops[i].Addr = base + uint64((n*16+i)*size%set)
					}
					p.seg.run(b.Context(), ops, write)
					for i := range ops {
						if ops[i].Err != nil {
							b.Fatal(ops[i].Err)
						}
					}
				}
				b.ReportMetric((processorTime(b)-began).Seconds()/(float64(b.N)*float64(16*size)/1e9), "cpu-s/GB")
			})
		}
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
