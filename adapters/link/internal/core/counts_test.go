package core

import (
	"testing"

	"meridian/wire"
	proto "meridian/wire/link"
)

// handedOut is a write of side i that the peer has in full before the writer is
// told so: what a second lane brings in between finds the request ended. finish
// tells the writer.
func (r *rig) handedOut(i int, idx uint8) (finish func()) {
	tx, rx := r.end[i].Lane(idx), r.end[1-i].Lane(idx)
	var run []byte
	for _, p := range tx.TxWant(nil) {
		run = append(run, p...)
	}
	for b := run; len(b) > 0; {
		took := 0
		for _, p := range rx.RxWant(nil) {
			took += copy(p, b[took:])
		}
		rx.RxGot(r.now, took)
		b = b[took:]
		r.gather(1-i, rx)
	}
	return func() { tx.TxDid(r.now, len(run)) }
}

// A request counts to its END and no longer: whoever has END may use its place by
// another lane at once, also while the write that carried END has not returned.
func TestAPlaceIsFreeOnceEndIsHandedOut(t *testing.T) {
	r := newRig(t, 2, proto.Limits{Reqs: 1, Items: 8, Frame: 65536, BytesInFlight: 1000})
	num := r.open(1)
	r.put(0, 900, "x", "y")
	c := r.pull(1, proto.ClassUrgent, num, 1000, "x")
	idx := c.r.lane.idx
	r.move(1, idx, r.piece)
	finish := r.handedOut(0, idx)
	wantCodes(t, c, wire.CodeOK)
	if st := r.end[0].Stats(); st.Served != 1 {
		t.Fatalf("%d requests are served: the writer has been told", st.Served)
	}
	next := &Call{Type: proto.TypePull, Items: []Item{{NS: num, Key: r.key("y"), Room: make([]byte, 1000)}}}
	r.end[1].StartOn(r.now, 3-idx, next)
	r.move(1, 3-idx, r.piece)
	finish()
	r.run()
	wantCodes(t, next, wire.CodeOK)
	if n := r.end[0].Stats().Totals.Busy; n != 0 {
		t.Errorf("BUSY %d times", n)
	}
	r.settled()
}

// A write that the peer did not take in full leaves the request counted.
func TestAPlaceIsTakenUntilEndIsOut(t *testing.T) {
	r := newRig(t, 2, proto.Limits{Reqs: 1, Items: 8, Frame: 65536, BytesInFlight: 1000})
	num := r.open(1)
	r.put(0, 900, "x")
	c := r.pull(1, proto.ClassUrgent, num, 1000, "x")
	idx := c.r.lane.idx
	r.move(1, idx, r.piece)
	for r.move(0, idx, 100) == 100 {
		if st := r.end[0].Stats(); st.ServedBytes != 1000 && !c.r.ended {
			t.Fatalf("%d bytes are counted before END is out", st.ServedBytes)
		}
		if c.over {
			break
		}
	}
	r.run()
	wantCodes(t, c, wire.CodeOK)
	r.settled()
}
