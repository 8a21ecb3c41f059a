package blocks

import (
	"fmt"
	"testing"
)

// A ring leaves room for half a segment; when it goes, the other half has room and
// no place of its own among the segments.
func TestTheRoomThatRingsLeaveAndGiveBackIsUsed(t *testing.T) {
	for _, ahead := range []uint64{0, 1 << 40} {
		r := aheadRig(t, ahead, func(c *Config) { c.StagingBytes = 2 << 20 })
		for round := range 3 {
			o := r.NewOwner(0)
			if _, err := r.Staging(o, 256<<10, 256<<10); err != nil {
				t.Fatal(err)
			}
			r.prepare()
			r.fillExtents(fmt.Sprint(round, "a"), 16)
			r.Drop(o)
			r.prepare()
			r.fillExtents(fmt.Sprint(round, "b"), 16)
			if st := r.Stats(); st.Extents > 16 || st.Leaked != 0 {
				t.Fatalf("%d extents, %d leaked", st.Extents, st.Leaked)
			}
			r.check()
		}
	}
}
