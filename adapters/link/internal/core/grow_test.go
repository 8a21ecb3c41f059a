package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// Who sends on what comes in is told of each body when its bytes are next, after each
// growStep of it, and when it is whole; in this order, and of what is in place only.
func TestWhoSendsABodyOnIsToldHowItComes(t *testing.T) {
	for _, piece := range []int{1 << 30, 1000, 300_000} {
		t.Run(fmt.Sprint("pieces of ", piece), func(t *testing.T) {
			r := newRig(t, 1, proto.Limits{})
			r.piece, r.quiet = piece, true
			num := r.open(0)
			var told []string
			names := map[wire.Key]string{}
			for _, n := range []string{"p", "q", "r"} {
				names[r.key(n)] = n
			}
			r.store[1].came = func(b *Block, n int) {
				if !slices.Equal(b.Body[:n], body(names[b.Key], 700_000)[:n]) {
					t.Errorf("of %s %d bytes are said to be there", names[b.Key], n)
				}
				what := fmt.Sprint(names[b.Key], " ", n/growStep)
				if n == len(b.Body) {
					what = names[b.Key] + " whole"
				}
				told = append(told, what)
			}
			r.push(0, proto.ClassUrgent, num, 700_000, "p", "q", "r")
			r.run()
			want := []string{}
			for _, n := range []string{"p", "q", "r"} {
				want = append(want, n+" 0", n+" 1", n+" 2", n+" whole")
			}
			if !slices.Equal(told, want) {
				t.Errorf("told %v\nwant %v", told, want)
			}
			r.settled()
		})
	}
}

// Of a push that has ended nothing more is told: its memory is somebody else's.
func TestNothingIsToldOfAPushThatIsOver(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	over, late := false, 0
	r.store[1].came = func(*Block, int) {
		if over {
			late++
		}
	}
	c := r.push(0, proto.ClassUrgent, num, 900_000, "p", "q")
	r.move(0, 1, 1<<20)
	r.move(1, 1, 1<<20)
	r.move(0, 1, 300_000)
	r.end[1].endServed(r.now, r.end[1].served[c.r.id], wire.CodeDeadline, "")
	over = true
	r.run()
	if late != 0 {
		t.Errorf("told %d times", late)
	}
	r.settled()
}

// What else the lane carries is no progress of a push whose source stands still: other
// pushes go on, and it ends in its time.
func TestOthersDoNotKeepAStarvedPushAlive(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	c := r.stream(0, num, 900_000, "p")
	r.end[0].Grow(r.now, c, 300_000)
	r.run()
	n := 0
	r.endsAt(t, c, func() {
		r.push(0, proto.ClassUrgent, num, 200_000, fmt.Sprint("other", n))
		n++
		r.run()
	})
	if !c.Starved {
		t.Error("it is not said that the source gave nothing")
	}
	r.run()
	r.settled()
}

// COMMIT of a push whose body comes meanwhile goes out for the proof of that memory and
// that checksum only, at whatever moment the proof comes.
func TestNoCommitWithoutTheProofOfTheBody(t *testing.T) {
	const size = 600_000
	other := body("p", size)
	for name, proof := range map[string]func(c *Call) wire.Verified{
		"none":               func(*Call) wire.Verified { return wire.Verified{} },
		"of a part":          func(c *Call) wire.Verified { return wire.Hash(c.Items[0].Room[:size-1]) },
		"of equal bytes":     func(*Call) wire.Verified { return wire.Hash(other) },
		"of what is corrupt": func(c *Call) wire.Verified { c.Items[0].Room[9] ^= 1; return wire.Hash(c.Items[0].Room) },
	} {
		for _, n := range []int{0, 300_000, size} {
			t.Run(fmt.Sprint(name, " after ", n), func(t *testing.T) {
				r := newRig(t, 1, proto.Limits{})
				r.quiet = true
				num := r.open(0)
				c := r.stream(0, num, size, "p")
				r.end[0].Grow(r.now, c, n)
				r.run()
				if r.end[0].Agree(r.now, c, proof(c)) {
					t.Error("it is agreed to")
				}
				r.end[0].Grow(r.now, c, size)
				r.run()
				r.pass(time.Second, r.run)
				if len(r.store[1].blocks) != 0 || c.over {
					t.Errorf("%d blocks are there, over %v", len(r.store[1].blocks), c.over)
				}
				r.end[0].Cancel(r.now, c, wire.CodeCancelled)
				r.run()
				r.settled()
			})
		}
	}
}

// What does not grow is not touched by the calls for what does, and neither is what is
// over or is no block that is pushed.
func TestGrowIsForPushesThatGrow(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(0)
	c := r.push(0, proto.ClassUrgent, num, 1000, "p")
	r.end[0].Grow(r.now, c, 10)
	if r.end[0].Agree(r.now, c, wire.Hash(c.Items[0].Room)) {
		t.Error("a push that does not grow is agreed to")
	}
	r.run()
	wantCodes(t, c, wire.CodeOK)
	for _, bad := range []*Call{
		{Type: proto.TypePull, Grows: true, Items: make([]Item, 1)},
		{Type: proto.TypePush, Grows: true},
		{Type: proto.TypePush, Grows: true, Items: make([]Item, 2)},
	} {
		r.end[0].Start(r.now, bad)
		r.end[0].Grow(r.now, bad, 10)
		if !bad.over || bad.Code != wire.CodeInvalid {
			t.Errorf("%v of %d items: %v", bad.Type, len(bad.Items), bad.Code)
		}
	}
	r.run()
	r.settled()
}

// A body that comes in one flight is told of as any other, but for small ones, and one
// that is refused is dropped while the push goes on.
func TestABodyInOneFlightIsToldOfToo(t *testing.T) {
	for _, c := range []struct {
		size  int
		shut  bool
		want  []int
		code  wire.Code
		label string
	}{
		{growStep + 1000, false, []int{0, 1, 1}, wire.CodeOK, "large"},
		{growStep - 1, false, nil, wire.CodeOK, "small"},
		{growStep + 1000, true, nil, wire.CodeBusy, "refused"},
	} {
		t.Run(c.label, func(t *testing.T) {
			r := newHomeRig(t, 1, proto.Limits{}, 4)
			r.quiet = true
			m := manifest("t")
			m.Role, m.BlockBytes = "even", growStep+growStep/2
			open := &Call{Type: proto.TypeOpen, Manifest: m.Append(nil), Timeout: time.Second}
			r.end[0].Start(r.now, open)
			r.run()
			num := open.Opened.NS
			r.push(0, proto.ClassUrgent, num, c.size, "first")
			r.run()
			var told []int
			r.store[1].shut, r.store[1].came = c.shut, func(_ *Block, n int) { told = append(told, n/growStep) }
			call := r.push(0, proto.ClassUrgent, num, c.size, "p")
			r.mustDeliver(call)
			r.run()
			wantCodes(t, call, c.code)
			if !slices.Equal(told, c.want) {
				t.Errorf("told %v, want %v", told, c.want)
			}
			r.store[1].shut = false
			r.end[1].GoAway(r.now, 1000, wire.CodeDraining, "")
			r.run()
			r.settled()
		})
	}
}
