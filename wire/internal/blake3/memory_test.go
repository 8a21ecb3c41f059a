//go:build unix

package blake3

import (
	"bytes"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/zeebo/blake3"
)

// guarded returns size bytes between two pages that no one may touch. size is
// rounded up to whole pages.
func guarded(t *testing.T, size int) []byte {
	t.Helper()
	page := os.Getpagesize()
	size = (size + page - 1) / page * page
	b, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(b) })
	for _, guard := range [][]byte{b[:page], b[page+size:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return b[page : page+size : page+size]
}

// TestNothingBesideTheBuffers would end the process at a read or a write
// outside them.
func TestNothingBesideTheBuffers(t *testing.T) {
	const most = 300 << 10
	src, dst := guarded(t, most), guarded(t, most)
	copy(src, random(10, len(src)))
	lengths := []int{most, most - 1, 256 << 10, 64<<10 + 1, 64 << 10}
	for n := range 40 << 10 {
		if n < 200 || n%chunkLen < 2 || n%chunkLen > chunkLen-2 || n%509 == 0 {
			lengths = append(lengths, n)
		}
	}
	onEachPath(t, func(t *testing.T) {
		for _, n := range lengths {
			ends := len(src) - n
			for _, b := range [][]byte{src[:n:n], src[ends:]} {
				want := blake3.Sum256(b)
				var h Hasher
				_, _ = h.Write(b)
				if Sum256(b) != want || h.Sum256() != want {
					t.Fatalf("%d bytes: wrong digest", n)
				}
				for _, to := range [][]byte{dst[:n:n], dst[ends:]} {
					if CopySum256(to, b) != want || !bytes.Equal(to, b) {
						t.Fatalf("%d bytes copied: wrong", n)
					}
				}
			}
		}
	})
}

// TestCopySumWhileAnotherMappingWrites lets a second mapping of the same pages
// change the source all the time. The digest must be of the bytes that arrived.
func TestCopySumWhileAnotherMappingWrites(t *testing.T) {
	const size, rounds = 192<<10 + 700, 100
	f, err := os.CreateTemp(t.TempDir(), "pages")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	var maps [2][]byte
	for i := range maps {
		maps[i], err = syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Munmap(maps[i]) }()
	}
	onEachPath(t, func(t *testing.T) {
		var stop atomic.Bool
		var writer sync.WaitGroup
		writer.Go(func() {
			for v := byte(1); !stop.Load(); v++ {
				for i := int(v) % 64; i < size; i += 64 {
					maps[1][i] = v
				}
			}
		})
		dst := make([]byte, size)
		distinct := map[[Size]byte]bool{}
		for i := 0; i < rounds || len(distinct) < 2; i++ { // two digests: the source did change
			got := CopySum256(dst, maps[0])
			if got != blake3.Sum256(dst) {
				t.Error("the digest is not of the bytes in dst")
				break
			}
			distinct[got] = true
		}
		stop.Store(true)
		writer.Wait()
	})
}

// TestCollectionsAndMovingStacks hashes bytes on the heap and on stacks that
// grow, while the collector runs all the time.
func TestCollectionsAndMovingStacks(t *testing.T) {
	onEachPath(t, func(t *testing.T) {
		var stop atomic.Bool
		var collector, workers sync.WaitGroup
		collector.Go(func() {
			for !stop.Load() {
				runtime.GC()
			}
		})
		for w := range 4 {
			workers.Go(func() {
				for i := range 60 {
					b := random(uint64(w), 1000+i*1777)
					want := blake3.Sum256(b)
					if Sum256(b) != want || copied(t, b) != want || hashed(b) != want {
						t.Errorf("worker %d, %d bytes: wrong digest", w, len(b))
					}
				}
				deeper(t, 40)
			})
		}
		workers.Wait()
		stop.Store(true)
		collector.Wait()
	})
}

// deeper hashes an array on the stack, at each depth.
func deeper(t *testing.T, depth int) {
	var b [3000]byte
	for i := range b {
		b[i] = byte(i * depth)
	}
	if Sum256(b[:]) != blake3.Sum256(b[:]) {
		t.Errorf("depth %d: wrong digest", depth)
	}
	if depth > 0 {
		deeper(t, depth-1)
	}
}
