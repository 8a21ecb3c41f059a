package engine_test

import (
	"fmt"
	"testing"

	"meridian/wire"
	"meridian/wire/link"
)

// A PUT that is taken back in mid-copy gives the room of what it did not store back
// at once, and not only when its deadline lapses or its engine goes.
func TestAPutThatStopsGivesItsRoomBack(t *testing.T) {
	n := startNode(t, nil)
	r, num := n.numbered(t)
	stopped := 0
	for round := range uint64(8) {
		items := make([]link.PutItem, 60)
		for i := range items {
			items[i] = link.PutItem{NS: num, Len: 120_000, Key: keyOf(fmt.Sprint(round, " ", i))}
		}
		req := 3 + 2*round
		b := message(link.TypePut, req, link.Put{DeadlineMS: 600_000, Items: items})
		r.write(append(b, message(link.TypeCancel, req, link.Empty{})...))
		for {
			got := r.next()
			if got.f.Type != link.TypeEnd {
				continue
			}
			for _, code := range r.end(got, req).Status {
				if code == wire.CodeCancelled {
					stopped++
				}
			}
			break
		}
		if st := n.store.Stats(); st.Reserved != 0 {
			t.Fatalf("round %d: %d slots are still reserved", round, st.Reserved)
		}
	}
	t.Logf("%d items were stopped in mid-copy", stopped)
}
