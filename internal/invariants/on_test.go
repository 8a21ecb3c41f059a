//go:build invariants

package invariants

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// panicOf returns what f panics with.
func panicOf(t *testing.T, f func()) (what string) {
	t.Helper()
	defer func() {
		r := recover()
		if r == nil {
			t.Fatal("no panic")
		}
		what = fmt.Sprint(r)
	}()
	f()
	return ""
}

func TestReleasedMemoryIsOverwrittenWhateverItsSize(t *testing.T) {
	for _, n := range []int{0, 1, 31, 4096, 4097, 16384, 16385, 1<<20 + 17} {
		b := make([]byte, n)
		Overwrite(b)
		Intact(b, "memory")
		if n <= 4*edge && bytes.Count(b, []byte{pattern}) != n {
			t.Errorf("%d bytes: not all are filled", n)
		}
		for _, at := range []int{0, n / 2 &^ (page - 1), n - 1} {
			if at < 0 || at >= n {
				continue
			}
			if b[at] != pattern {
				t.Errorf("%d bytes: byte %d is %#x", n, at, b[at])
				continue
			}
			b[at]++
			if what := panicOf(t, func() { Intact(b, "memory") }); !strings.Contains(what, fmt.Sprintf("memory: byte %d of %d", at, n)) {
				t.Errorf("%d bytes, byte %d: %s", n, at, what)
			}
			b[at]--
		}
	}
}

func TestASecondReleaseNamesTheFirst(t *testing.T) {
	var l Life
	l.Begin("place")
	endFirst(&l)
	what := panicOf(t, func() { l.End("place") })
	if !strings.Contains(what, "place is released twice") || !strings.Contains(what, "invariants.endFirst") {
		t.Error(what)
	}
	l.Begin("place")
	if what := panicOf(t, func() { l.Begin("place") }); !strings.Contains(what, "invariants.TestASecondReleaseNamesTheFirst") {
		t.Error(what)
	}
	l.End("place")
}

//go:noinline
func endFirst(l *Life) { l.End("place") }

func TestWhatIsLeftIsNamedByTheStackThatMadeIt(t *testing.T) {
	TakeLeft()
	Left("lease", Here(0))
	got := TakeLeft()
	if len(got) != 1 || !strings.Contains(got[0], "lease, made by\n\tmeridian/internal/invariants.TestWhatIsLeft") {
		t.Errorf("%q", got)
	}
	for range 2 * maxLeft {
		Left("lease", Stack{})
	}
	if n := len(TakeLeft()); n != maxLeft {
		t.Errorf("%d reports are kept, want %d", n, maxLeft)
	}
}
