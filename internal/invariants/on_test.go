//go:build invariants

package invariants

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"meridian/internal/testbed"
)

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
			if what := testbed.Panic(t, func() { Intact(b, "memory") }); !strings.Contains(what, fmt.Sprintf("memory: byte %d of %d", at, n)) {
				t.Errorf("%d bytes, byte %d: %s", n, at, what)
			}
			b[at]--
		}
	}
}

func TestASecondReleaseNamesTheFirst(t *testing.T) {
	var l Life
	Begin(&l, "place")
	endFirst(&l)
	what := testbed.Panic(t, func() { End(&l, "place") })
	if !strings.Contains(what, "place is released twice") || !strings.Contains(what, "invariants.endFirst") {
		t.Error(what)
	}
	Begin(&l, "place")
	if what := testbed.Panic(t, func() { Begin(&l, "place") }); !strings.Contains(what, "invariants.TestASecondReleaseNamesTheFirst") {
		t.Error(what)
	}
	End(&l, "place")
}

//go:noinline
func endFirst(l *Life) { End(l, "place") }

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

func TestMemoryOfItemsIsOverwrittenToItsCapacity(t *testing.T) {
	type item struct {
		n   uint16
		key [16]byte
	}
	all := make([]item, 4)
	OverwriteItems(all[:1])
	if all[3].n != 0xCCCC || all[3].key[15] != pattern {
		t.Errorf("%+v", all)
	}
	if what := testbed.Panic(t, func() { OverwriteItems([]*item{nil}) }); !strings.Contains(what, "*invariants.item holds pointers") {
		t.Error(what)
	}
}
