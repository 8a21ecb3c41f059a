package agent

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/wire"
)

// BenchmarkLoads prints what fetches of one engine cost, one large one and sixteen side
// by side: GB a second, and seconds of processor time a GB of both daemons and the
// engine together. Other work on the machine changes the first figure more than the
// second.
func BenchmarkLoads(b *testing.B) {
	for _, c := range []struct{ loads, blocks, size int }{{1, 64, 1 << 20}, {16, 8, 1 << 20}, {1, 512, 64 << 10}, {16, 32, 64 << 10}, {16, 32, 4 << 10}} {
		b.Run(fmt.Sprintf("%dx%dx%dKiB", c.loads, c.blocks, c.size>>10), func(b *testing.B) {
			prefill, decode := pairWith(b, "[kv_memory]\ncapacity_bytes = \"512MiB\"\n")
			m := testManifest("acme")
			m.BlockBytes = 1 << 20
			p, e := prefill.engineOf(b, m), decode.engineOf(b, m)
			all := make([][]wire.Key, c.loads)
			for i := range all {
				all[i] = e.keys(fmt.Sprint("load ", i), c.blocks)
				for at := 0; at < c.blocks; at += 8 {
					p.put(b, all[i][at:min(at+8, c.blocks)], c.size, wire.OutputCritical, 0)
				}
			}
			var used, took time.Duration
			for b.Loop() {
				for _, keys := range all {
					decode.store.Discard(e.ns, keys)
				}
				began, cpu := time.Now(), processor()
				var wg sync.WaitGroup
				for _, keys := range all {
					wg.Go(func() {
						l, err := e.Acquire(b.Context(), e.space, keys, client.AcquireOptions{Fetch: true})
						if err != nil {
							b.Error(err)
							return
						}
						for i := range l.Blocks {
							if l.Blocks[i].Err != nil {
								b.Error(l.Blocks[i].Err)
							}
						}
						l.Release()
					})
				}
				wg.Wait()
				took, used = took+time.Since(began), used+processor()-cpu
			}
			gb := float64(b.N*c.loads*c.blocks*c.size) / 1e9
			b.ReportMetric(gb/took.Seconds(), "GB/s")
			b.ReportMetric(used.Seconds()/gb, "cpu-s/GB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// processor is the processor time of this process until now.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for this process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFiveLoads prints when each of five fetches of eight blocks of 1 MiB ends that
// one engine begins together: as a part of the time after which all have ended.
func BenchmarkFiveLoads(b *testing.B) {
	const loads = 5
	prefill, decode := pairWith(b, "[kv_memory]\ncapacity_bytes = \"256MiB\"\n")
	m := testManifest("acme")
	m.BlockBytes = 1 << 20
	p, e := prefill.engineOf(b, m), decode.engineOf(b, m)
	all := make([][]wire.Key, loads)
	for i := range all {
		all[i] = e.keys(fmt.Sprint("load ", i), 8)
		p.put(b, all[i], 1<<20, wire.OutputCritical, 0)
	}
	var at [loads]float64
	for b.Loop() {
		for _, keys := range all {
			decode.store.Discard(e.ns, keys)
		}
		began := time.Now()
		ended := make([]time.Duration, 0, loads)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, keys := range all {
			wg.Go(func() {
				l, err := e.Acquire(b.Context(), e.space, keys, client.AcquireOptions{Fetch: true})
				if err != nil {
					b.Error(err)
					return
				}
				l.Release()
				mu.Lock()
				ended = append(ended, time.Since(began))
				mu.Unlock()
			})
		}
		wg.Wait()
		for i := range at {
			at[i] += float64(ended[i]) / float64(ended[loads-1])
		}
	}
	for i := range at {
		b.ReportMetric(100*at[i]/float64(b.N), fmt.Sprint("%-load-", i+1))
	}
	b.ReportMetric(0, "ns/op")
}
