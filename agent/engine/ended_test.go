package engine_test

import (
	"testing"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// A process that joins, holds a block and leaves, again and again, is another engine
// each time, and what it holds counts on: until it is told BUSY. One session of the
// store is left of all of them, and a later session of the process gives back what an
// earlier one held.
func TestAProcessThatComesAgainKeepsWhatItHolds(t *testing.T) {
	const most = 4
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) { b.HoldBytes = most * (256<<10 + 4096) })
	first, _ := n.join(t, member{agent: 1, inc: 1})
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 256<<10)})
	var held [][16]byte
	for inc := uint64(2); ; inc++ {
		r, _ := n.join(t, member{agent: 1, inc: inc})
		ns := r.open(1, "acme")
		code, lease := r.lease(3, ns, "a", true)
		if code != wire.CodeOK {
			_, e := r.ask(5, message(link.TypeAcquire, 5, link.Acquire{DeadlineMS: 1000, Hold: true, Items: []link.Want{{NS: ns, Key: keyOf("a")}}}))
			t.Log(e.Text)
			if e.Code != wire.CodeBusy || len(held) == 0 || len(held) > most {
				t.Fatalf("after %d sessions: END %s (%s)", len(held), e.Code, e.Text)
			}
			break
		}
		held = append(held, lease)
		if len(held) > most {
			t.Fatalf("%d sessions of one process hold a block each", len(held))
		}
		r.c.Close()
		n.wait(1)
	}
	if st := n.store.Stats(); st.Orphans != 1 || st.Holds != len(held) {
		t.Errorf("%d owners are kept for one process, with %d holds of %d", st.Orphans, st.Holds, len(held))
	}
	first.release(7, held...)
	if st := n.store.Stats(); st.Holds != 0 {
		t.Errorf("%d holds are left", st.Holds)
	}
}
