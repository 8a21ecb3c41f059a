package blake3

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/zeebo/blake3"
)

// patterned is the input of the official test vectors: byte i is i mod 251.
func patterned(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

// force sets the path for one test.
func force(tb testing.TB, p Path) {
	tb.Helper()
	before := Current()
	if err := Force(p); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := Force(before); err != nil {
			tb.Error(err)
		}
	})
}

func onEachPath(t *testing.T, f func(t *testing.T)) {
	for _, p := range Paths() {
		t.Run(p.String(), func(t *testing.T) {
			force(t, p)
			f(t)
		})
	}
}

// copied is CopySum256 of b. It checks the copy, and that no byte behind it
// changed.
func copied(tb testing.TB, b []byte) [Size]byte {
	tb.Helper()
	dst := bytes.Repeat([]byte{0xee}, len(b)+64)
	d := CopySum256(dst, b)
	if !bytes.Equal(dst[:len(b)], b) {
		tb.Errorf("CopySum256 of %d bytes: the copy differs", len(b))
	}
	if !bytes.Equal(dst[len(b):], bytes.Repeat([]byte{0xee}, 64)) {
		tb.Errorf("CopySum256 of %d bytes wrote behind the copy", len(b))
	}
	return d
}

// hashed is a Hasher's digest of b, in one piece.
func hashed(b []byte) [Size]byte {
	var h Hasher
	_, _ = h.Write(b)
	return h.Sum256()
}

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestEveryLength(t *testing.T) {
	const most = 20000
	b, dst := random(1, most), make([]byte, most)
	want := make([][Size]byte, most+1)
	for n := range want {
		want[n] = blake3.Sum256(b[:n])
	}
	onEachPath(t, func(t *testing.T) {
		var h Hasher
		for n, want := range want {
			clear(dst[:n])
			_, _ = h.Write(b[:n/3])
			_, _ = h.Write(b[n/3 : n])
			if Sum256(b[:n]) != want || CopySum256(dst, b[:n]) != want || h.Sum256() != want {
				t.Fatalf("%d bytes: wrong digest", n)
			}
			if !bytes.Equal(dst[:n], b[:n]) {
				t.Fatalf("%d bytes: wrong copy", n)
			}
			h.Reset()
		}
	})
}

// TestAroundSubtrees has lengths where lists end and complete subtrees become
// one.
func TestAroundSubtrees(t *testing.T) {
	const subtree = 256 << 10
	b := random(2, 9*subtree+1)
	var lengths []int
	for k := 1; k <= 9; k++ {
		for _, more := range []int{-chunkLen - 1, -1, 0, 1, chunkLen} {
			lengths = append(lengths, min(k*subtree+more, len(b)))
		}
	}
	onEachPath(t, func(t *testing.T) {
		for _, n := range lengths {
			want := blake3.Sum256(b[:n])
			if Sum256(b[:n]) != want || copied(t, b[:n]) != want || hashed(b[:n]) != want {
				t.Errorf("%d bytes: wrong digest", n)
			}
		}
	})
}

func TestEveryOffset(t *testing.T) {
	lengths := []int{1, 63, 64, 65, 1024, 1500, 7168, 16384, 17408, 65536 + 1}
	b, dst := random(3, 1<<17), make([]byte, 1<<17)
	onEachPath(t, func(t *testing.T) {
		for from := range 64 {
			for _, n := range lengths {
				src := b[from : from+n]
				want := blake3.Sum256(src)
				if Sum256(src) != want {
					t.Fatalf("%d bytes from %d: wrong digest", n, from)
				}
				for _, to := range []int{0, 32, 63 - from} {
					if CopySum256(dst[to:], src) != want || !bytes.Equal(dst[to:to+n], src) {
						t.Fatalf("%d bytes copied from %d to %d: wrong", n, from, to)
					}
				}
			}
		}
	})
}

func TestRandomPieces(t *testing.T) {
	b := random(4, 600<<10)
	r := rand.New(rand.NewPCG(5, 5))
	most := []int{3, 100, 1025, 20000, 70000, 300000}
	onEachPath(t, func(t *testing.T) {
		var h Hasher
		for _, most := range most {
			h.Reset()
			n := min(r.IntN(len(b)), 2000*most)
			for at := 0; at < n; {
				to := min(at+r.IntN(most+1), n)
				if w, err := h.Write(b[at:to]); w != to-at || err != nil {
					t.Fatalf("Write of %d bytes: %d, %v", to-at, w, err)
				}
				at = to
				if r.IntN(10) == 0 { // a digest on the way changes nothing
					if h.Sum256() != blake3.Sum256(b[:at]) {
						t.Fatalf("pieces up to %d: wrong digest after %d bytes", most, at)
					}
				}
			}
			if h.Sum256() != blake3.Sum256(b[:n]) {
				t.Errorf("pieces up to %d: wrong digest of %d bytes", most, n)
			}
		}
	})
}

// TestAlignedPieces has the pieces of a reader with a buffer: groups come in
// without a copy, and a list may be complete when the digest is asked for.
func TestAlignedPieces(t *testing.T) {
	b := random(6, 1<<20)
	onEachPath(t, func(t *testing.T) {
		for _, piece := range []int{16 << 10, 64 << 10, 256 << 10} {
			var h Hasher
			for at := 0; at < len(b); at += piece {
				_, _ = h.Write(b[at : at+piece])
				for range 2 {
					if h.Sum256() != blake3.Sum256(b[:at+piece]) {
						t.Fatalf("pieces of %d: wrong digest after %d bytes", piece, at+piece)
					}
				}
			}
		}
	})
}

func TestZeroHasherAndReset(t *testing.T) {
	onEachPath(t, func(t *testing.T) {
		var h Hasher
		if h.Sum256() != blake3.Sum256(nil) {
			t.Error("zero value: not the digest of nothing")
		}
		_, _ = h.Write(random(7, 300<<10))
		h.Reset()
		if h.Sum256() != blake3.Sum256(nil) {
			t.Error("after Reset: not the digest of nothing")
		}
		_, _ = h.Write([]byte("abc"))
		if h.Sum256() != blake3.Sum256([]byte("abc")) {
			t.Error("after Reset: what was before is still there")
		}
	})
}

func TestCopySumPanicsBeforeItCopies(t *testing.T) {
	onEachPath(t, func(t *testing.T) {
		dst := make([]byte, 20000)
		defer func() {
			if recover() == nil {
				t.Error("a short destination went through")
			}
			if !bytes.Equal(dst, make([]byte, len(dst))) {
				t.Error("bytes were copied before the panic")
			}
		}()
		CopySum256(dst[:len(dst):len(dst)], patterned(len(dst)+1))
	})
}

func TestNoAllocation(t *testing.T) {
	b, dst := random(8, 700<<10), make([]byte, 700<<10)
	onEachPath(t, func(t *testing.T) {
		for _, n := range []int{0, 64, 1024, 1025, 16 << 10, 64<<10 + 1, len(b)} {
			var h Hasher
			for name, f := range map[string]func(){
				"Sum256":     func() { Sum256(b[:n]) },
				"CopySum256": func() { CopySum256(dst, b[:n]) },
				"Hasher": func() {
					h.Reset()
					_, _ = h.Write(b[:n/2])
					_, _ = h.Write(b[n/2 : n])
					h.Sum256()
				},
			} {
				f() // the first call may fill a pool
				// The collector may empty a pool during a run, hence an average below one.
				if got := testing.AllocsPerRun(20, f); got >= 1 {
					t.Errorf("%s of %d bytes allocates %v times", name, n, got)
				}
			}
		}
	})
}

func FuzzAgainstZeebo(f *testing.F) {
	for _, n := range []int{0, 1, 64, 1024, 1025, 5000} {
		f.Add(patterned(n), uint16(n/2), uint8(1))
	}
	f.Fuzz(func(t *testing.T, piece []byte, split uint16, times uint8) {
		b := bytes.Repeat(piece, int(times)) // long inputs of few bytes
		b = b[:min(len(b), 600<<10)]
		want := blake3.Sum256(b)
		at := min(int(split), len(b))
		for _, p := range Paths() {
			force(t, p)
			var h Hasher
			_, _ = h.Write(b[:at])
			_, _ = h.Write(b[at:])
			if Sum256(b) != want || copied(t, b) != want || h.Sum256() != want {
				t.Fatalf("%s, %d bytes split at %d: wrong digest", p, len(b), at)
			}
		}
	})
}
