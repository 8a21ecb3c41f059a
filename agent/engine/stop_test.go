package engine_test

import (
	"context"
	"errors"
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

// A holder that does not answer what LOADs wait for does not keep the server.
func TestCloseEndsQuestionsForWhatIsWaitedFor(t *testing.T) {
	n := startNode(t, nil)
	asked := make(chan context.Context, 16)
	n.host.mu.Lock()
	n.host.silent = asked
	n.host.mu.Unlock()
	r := n.loader(t)
	r.load(3, r.item("a", link.WantWait|link.WantFetch))
	ctx := <-asked
	n.srv.Close()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the question ended with %v", err)
	}
}
