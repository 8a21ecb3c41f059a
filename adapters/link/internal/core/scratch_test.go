package core

import (
	"testing"

	"meridian/wire"
	proto "meridian/wire/link"
)

// scratchOf is how many bytes of scratch a session and its lanes have.
func scratchOf(s *Session) (n int) {
	for _, l := range s.lanes {
		if l != nil {
			n += len(l.rx.scratch)
		}
	}
	return n + len(s.idleScratch)
}

// Lanes that wait for bytes have no memory of their own to read to, however many
// there are. One in the middle of a long message keeps what it has: else a peer that
// sends it byte by byte would have new memory made for each.
func TestLanesThatWaitShareTheirScratch(t *testing.T) {
	r := newRig(t, 4, proto.Limits{Reqs: 8, Items: 4096, Frame: 65536, BytesInFlight: 1 << 20})
	num := r.open(1)
	r.put(0, 900, "x")
	wait := func() {
		for i := range 5 {
			for _, e := range r.end {
				e.Lane(uint8(i)).RxWant(nil)
				e.Lane(uint8(i)).RxGot(r.now, 0)
			}
		}
	}
	for range 3 {
		c := r.pull(1, proto.ClassUrgent, num, 1000, "x")
		r.run()
		wantCodes(t, c, wire.CodeOK)
		wait()
		for i, e := range r.end {
			if n := scratchOf(e); n != idleRead {
				t.Errorf("side %d holds %d bytes, want %d", i, n, idleRead)
			}
		}
	}

	long := &Call{Type: proto.TypeHas, Items: make([]Item, 1000)}
	for i := range long.Items {
		long.Items[i] = Item{NS: num, Key: r.key("x")}
	}
	r.end[1].Start(r.now, long)
	r.move(1, 0, 3*idleRead)
	l := r.end[0].Lane(0)
	for range 3 {
		l.RxWant(nil)
		had := &l.rx.scratch[0]
		l.RxGot(r.now, 0)
		if l.rx.sp.Need() <= idleRead {
			t.Fatalf("the lane needs %d bytes: no long message is under way", l.rx.sp.Need())
		}
		if l.rx.scratch == nil || had != &l.rx.scratch[0] {
			t.Fatal("a lane in the middle of a message gave its memory back")
		}
	}
	r.run()
	wantCodes(t, long, make([]wire.Code, 1000)...)
	wait()
	if n := scratchOf(r.end[0]); n > idleRead {
		t.Errorf("after a long message %d bytes are held", n)
	}
	r.settled()
}
