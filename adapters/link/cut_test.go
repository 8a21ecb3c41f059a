package link

import (
	"slices"
	"testing"

	proto "meridian/wire/link"
)

// A batch is cut into runs of as many items and bytes as the peer takes, to the last;
// what is too large by itself is a run of its own.
func TestABatchIsCutAtTheLimits(t *testing.T) {
	for _, c := range []struct {
		sizes []int
		items uint32
		bytes uint32
		want  []int
	}{
		{nil, 4, 300, nil},
		{[]int{100, 100, 100}, 4, 300, []int{3}},
		{[]int{100, 100, 101}, 4, 300, []int{2, 3}},
		{[]int{100, 100, 100}, 2, 300, []int{2, 3}},
		{[]int{100, 100}, 2, 300, []int{2}},
		{[]int{400, 100}, 4, 300, []int{1, 2}},
		{[]int{100, 400, 100}, 4, 300, []int{1, 2, 3}},
		{[]int{0, 0, 0}, 1, 300, []int{1, 2, 3}},
		{[]int{sliceBytes, 0, 1}, 4, 2 * sliceBytes, []int{2, 3}},
	} {
		l := proto.Limits{Items: c.items, BytesInFlight: c.bytes}
		if got := cut(len(c.sizes), func(k int) uint64 { return uint64(c.sizes[k]) }, l); !slices.Equal(got, c.want) {
			t.Errorf("%v with %d items and %d bytes: %v, want %v", c.sizes, c.items, c.bytes, got, c.want)
		}
	}
}
