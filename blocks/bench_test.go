package blocks

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

const million = 1_000_000

// benchKey is a key as a hash would make it: uniform, reproducible.
func benchKey(i uint64) (k wire.Key) {
	for j := range 4 {
		x := (i+1)*0x9e3779b97f4a7c15 + uint64(j)*0xbf58476d1ce4e5b9
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(k[j*8:], x^x>>31)
	}
	return k
}

// fullCore holds n blocks of 16 KiB and has no room left, so that every
// reservation evicts. The blocks are published in a random order.
func fullCore(tb testing.TB, n int) (*Core, Owner, wire.Namespace) {
	tb.Helper()
	const body = 16 << 10
	per := (64<<20 + 64<<10) / (body + slotHead)
	extents := (n + per - 1) / per
	c, err := NewCore(CoreConfig{
		Capacity: uint64(extents) * 64 << 20, ExtentBytes: 64 << 20, ThinkFraction: 0.4, HoldBytes: 1 << 40, Rand: seeded(5), Advise: hugePages,
	})
	if err != nil {
		tb.Fatal(err)
	}
	ns := nsOf("bench")
	if err := c.AddNamespace(ns, tenantOf("t")); err != nil {
		tb.Fatal(err)
	}
	for range extents {
		if n := c.SegmentExtents(); n > 0 {
			c.AddSegment(tenantOf("t"), n)
		}
	}
	o := c.NewOwner(false)
	order := rand.New(rand.NewPCG(1, 1)).Perm(extents * per)
	churn := newChurn(c, o, ns, 64)
	for len(order) > 0 {
		n := min(64, len(order))
		for i := range n {
			churn.keys[i] = benchKey(uint64(order[i]))
		}
		if err := churn.turn(n); err != nil {
			tb.Fatal(err)
		}
		order = order[n:]
	}
	return c, o, ns
}

// churn reserves and commits a batch of blocks with buffers of its own.
type churn struct {
	c     *Core
	o     Owner
	ns    wire.Namespace
	keys  []wire.Key
	sizes []uint32
	views []View
	items []Commit
	head  wire.Header
}

func newChurn(c *Core, o Owner, ns wire.Namespace, batch int) *churn {
	h := &churn{
		c: c, o: o, ns: ns, keys: make([]wire.Key, batch), sizes: make([]uint32, batch),
		views: make([]View, 0, batch), items: make([]Commit, batch), head: wire.Header{BodyLen: 16 << 10},
	}
	for i := range h.sizes {
		h.sizes[i] = 16 << 10
	}
	return h
}

func (h *churn) turn(n int) error {
	v, err := h.c.Reserve(0, h.o, h.ns, wire.OutputCritical, h.sizes[:n], time.Second, false, h.views)
	if err != nil {
		return err
	}
	for i := range v {
		k := &h.items[i]
		k.Slot, k.Gen, k.Tier, k.Head = v[i].Ref.Slot, v[i].Ref.Gen, wire.OutputCritical, &h.head
		k.Key = h.keys[i]
	}
	h.c.Commit(0, h.o, h.items[:n])
	h.c.Gens()
	h.c.evicted = h.c.evicted[:0]
	return h.items[0].Err
}

// cpu reports the processor time an operation took, which a busy machine
// disturbs less than the time on the wall.
func cpu(b *testing.B, ops int) func() {
	used := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(ops), "cpu-ns/op") }
}

// BenchmarkAllocFree is one block's whole way at 10^6 blocks: evict the oldest
// (its index entry goes), reserve its slot, publish under a new key. Batches of
// 64 and, as a single call, 1.
func BenchmarkAllocFree(b *testing.B) {
	for _, batch := range []int{64, 1} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			c, o, ns := fullCore(b, million)
			h := newChurn(c, o, ns, batch)
			next := uint64(1 << 40)
			b.ReportAllocs()
			b.ResetTimer()
			defer cpu(b, b.N)()
			for n := 0; n < b.N; n += batch {
				for i := range h.keys {
					h.keys[i] = benchKey(next)
					next++
				}
				if err := h.turn(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkYardstick is what a bare Go map takes on this machine, now: put and
// delete at 10^6 entries, and 256 look-ups. It is the scale for the two above and
// below, which vary with the machine's memory by a factor of three.
func BenchmarkYardstick(b *testing.B) {
	fill := func() map[wire.Key]uint32 {
		m := make(map[wire.Key]uint32, million)
		for i := range uint64(million) {
			m[benchKey(i)] = uint32(i)
		}
		return m
	}
	b.Run("map-put-delete", func(b *testing.B) {
		m := fill()
		b.ResetTimer()
		defer cpu(b, b.N)()
		for i := range uint64(b.N) {
			m[benchKey(i+million)] = 1
			delete(m, benchKey(i))
		}
	})
	b.Run("map-get-256", func(b *testing.B) {
		m := fill()
		r := rand.New(rand.NewPCG(2, 2))
		keys := make([]wire.Key, 512*256)
		for i := range keys {
			keys[i] = benchKey(uint64(r.IntN(million)))
		}
		b.ResetTimer()
		defer cpu(b, b.N)()
		for n := range b.N {
			for _, k := range keys[n%512*256:][:256] {
				if _, ok := m[k]; !ok {
					b.Fatal("a miss")
				}
			}
		}
	})
}

// BenchmarkLookup256 looks a chain of 256 keys up among 10^6 blocks: all of
// them hits at random places, with views filled; then counted only.
func BenchmarkLookup256(b *testing.B) {
	c, _, ns := fullCore(b, million)
	r := rand.New(rand.NewPCG(2, 2))
	chains := make([][]wire.Key, 512)
	for i := range chains {
		chains[i] = make([]wire.Key, 256)
		for j := range chains[i] {
			chains[i][j] = benchKey(uint64(r.IntN(million)))
		}
	}
	for _, v := range [][]View{make([]View, 256), nil} {
		b.Run(fmt.Sprintf("views=%d", len(v)), func(b *testing.B) {
			b.ReportAllocs()
			defer cpu(b, b.N)()
			for n := range b.N {
				if hits := c.Lookup(ns, chains[n%len(chains)], v); hits != 256 {
					b.Fatal(hits)
				}
			}
		})
	}
}

// BenchmarkMemory reports what the bookkeeping of 10^6 blocks takes.
func BenchmarkMemory(b *testing.B) {
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c, _, _ := fullCore(b, million)
		runtime.GC()
		runtime.ReadMemStats(&after)
		blocks := c.count[published]
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6*million/float64(blocks), "MB/1e6-blocks")
		runtime.KeepAlive(c)
	}
}

// BenchmarkAcquireRelease leases and releases 16 blocks among 10^6.
func BenchmarkAcquireRelease(b *testing.B) {
	c, o, ns := fullCore(b, million)
	r := rand.New(rand.NewPCG(3, 3))
	v := make([]View, 16)
	keys := make([]wire.Key, 1<<14)
	for i := range keys {
		keys[i] = benchKey(uint64(r.IntN(million)))
	}
	b.ReportAllocs()
	b.ResetTimer()
	defer cpu(b, b.N)()
	for n := range b.N {
		for i := range v {
			v[i] = View{NS: ns, Key: keys[(n*16+i)%len(keys)]}
		}
		l, err := c.Acquire(0, o, v, time.Second, false)
		if err != nil {
			b.Fatal(err)
		}
		c.Release(o, l)
	}
}
