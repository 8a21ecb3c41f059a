package wire

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// blake3Vectors are BLAKE3-256 of patterned(n), made with the authors'
// reference implementation. The lengths lie around blocks (64), chunks (1024)
// and the widths of the vector kernels.
var blake3Vectors = []struct {
	n   int
	hex string
}{
	{0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
	{1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
	{63, "e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b"},
	{64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"},
	{65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee"},
	{1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
	{1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
	{1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
	{2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
	{2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
	{3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
	{8191, "bae8dc916e8643c6cf024097237cde1cba35c05b5d84c02834cb6b886edb76d9"},
	{8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63"},
	{8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
	{16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
	{16385, "1dabe216be2578830263b049de1639f39f05a4da616b9b78c7a5e4e41662fd1f"},
	{31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
	{65535, "de7d0f4c044c56f56e0c5f7ab247be9491c4520e8688f0f0d25406f46fdfbd03"},
	{65536, "68d647e619a930e7b1082f74f334b0c65a315725569bdc123f0ee11881717bfe"},
	{65537, "7c99f9840a73dfcb6e5bfe4ff6d1558acab7e015640790c26411818bdbe17eca"},
	{102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
	{1048576, "74cb441fd087764ca9c3694da742ebe30cbeb3060a17009ca81825c7a8d10343"},
}

func TestSumIsTheFirstHalfOfBLAKE3(t *testing.T) {
	for _, v := range blake3Vectors {
		body := patterned(v.n)
		if got := SumOf(body).String(); got != v.hex[:32] {
			t.Errorf("SumOf, %d bytes: %s, want %s", v.n, got, v.hex[:32])
		}
		if got := Key(digestOf(body)).String(); got != v.hex {
			t.Errorf("digest, %d bytes: %s, want %s", v.n, got, v.hex)
		}
		dst := bytes.Repeat([]byte{0xee}, v.n+5)
		if got := CopySum(dst, body).Sum().String(); got != v.hex[:32] {
			t.Errorf("CopySum, %d bytes: %s, want %s", v.n, got, v.hex[:32])
		}
		if !bytes.Equal(dst[:v.n], body) || !bytes.Equal(dst[v.n:], bytes.Repeat([]byte{0xee}, 5)) {
			t.Errorf("CopySum, %d bytes: wrong bytes in dst", v.n)
		}
	}
}

// TestHashPathIsTheForcedOne is for runs with the variable set: each path's
// run of this package's tests is one of that path.
func TestHashPathIsTheForcedOne(t *testing.T) {
	got := HashPath()
	if !slices.Contains([]string{"generic", "avx2", "avx512"}, got) {
		t.Errorf("path %q has no such name", got)
	}
	if os.Getenv("MERIDIAN_BLAKE3") == "generic" && got != "generic" {
		t.Errorf("generic was forced, and %s hashes", got)
	}
}

func TestHasherInPieces(t *testing.T) {
	body := patterned(70000)
	want := SumOf(body)
	var h Hasher
	for _, piece := range []int{1, 7, 64, 1000, 1024, 4096, 8192, 8193, 65536, 70000} {
		for rest := body; len(rest) > 0; {
			n := min(piece, len(rest))
			if w, err := h.Write(rest[:n]); w != n || err != nil {
				t.Fatalf("Write of %d bytes: %d, %v", n, w, err)
			}
			rest = rest[n:]
		}
		if got := h.Sum(); got != want {
			t.Errorf("pieces of %d: %s, want %s", piece, got, want)
		}
		h.Reset()
	}
}

func TestHasherSumChangesNothing(t *testing.T) {
	body := patterned(20000)
	var h Hasher
	if got := h.Sum(); got != SumOf(nil) {
		t.Fatalf("zero value: %s", got)
	}
	for n := 0; n < len(body); n += 500 {
		_, _ = h.Write(body[n : n+500])
		for range 2 {
			if got, want := h.Sum(), SumOf(body[:n+500]); got != want {
				t.Fatalf("after %d bytes: %s, want %s", n+500, got, want)
			}
		}
	}
	h.Reset()
	if got := h.Sum(); got != SumOf(nil) {
		t.Fatalf("after Reset: %s", got)
	}
}

func TestCopySumPanicsBeforeItCopies(t *testing.T) {
	dst := make([]byte, 99)
	defer func() {
		if recover() == nil {
			t.Fatal("a short destination went through")
		}
		if !bytes.Equal(dst, make([]byte, 99)) {
			t.Fatal("bytes were copied before the panic")
		}
	}()
	CopySum(dst[:99:99], patterned(100))
}

// TestCopySumWhileAnotherMappingWrites lets a second mapping of the same pages
// change the source all the time, as a process that shares a window can. The
// sum must be of the bytes that arrived.
func TestCopySumWhileAnotherMappingWrites(t *testing.T) {
	const size, rounds = 192 << 10, 300
	mine, theirs := sharedPages(t, size)

	var stop atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		for v := byte(1); !stop.Load(); v++ {
			for i := int(v) % 64; i < size; i += 64 {
				theirs[i] = v
			}
		}
	})
	dst := make([]byte, size)
	distinct := map[Sum]bool{}
	for i := 0; i < rounds || len(distinct) < 2; i++ { // two sums: the source did change
		got := CopySum(dst, mine).Sum()
		if want := SumOf(dst); got != want {
			t.Errorf("sum %s is not of the bytes in dst, which have %s", got, want)
			break
		}
		distinct[got] = true
	}
	stop.Store(true)
	writer.Wait()
}

// sharedPages maps one file twice.
func sharedPages(t *testing.T, size int) (a, b []byte) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "pages")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	maps := make([][]byte, 2)
	for i := range maps {
		maps[i], err = syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Munmap(maps[i]) })
	}
	return maps[0], maps[1]
}
