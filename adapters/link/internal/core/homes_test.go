package core

import (
	"fmt"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// stockOf is how many homes side b has for a namespace that it knows by num.
func (r *rig) stockOf(num uint16) int { return len(r.end[1].nsIn[num-1].stock.homes) }

// as opens a namespace of blocks of that many bytes from side a.
func (r *rig) as(role string, blockBytes uint32) uint16 {
	r.tb.Helper()
	m := manifest("t")
	m.Role, m.BlockBytes = role, blockBytes
	c := &Call{Type: proto.TypeOpen, Manifest: m.Append(nil), Timeout: time.Second}
	r.end[0].Start(r.now, c)
	r.run()
	if c.Code != wire.CodeOK {
		r.tb.Fatal(c.Code)
	}
	return c.Opened.NS
}

// pushes pushes n blocks that fit a home, and returns the call.
func (r *rig) pushes(num uint16, size, n int, name string) *Call {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint(name, i))
	}
	c := r.push(0, proto.ClassUrgent, num, size, names...)
	r.run()
	for i := range c.Items {
		if c.Items[i].Code != wire.CodeOK {
			r.tb.Errorf("%s%d: %v", name, i, c.Items[i].Code)
		}
	}
	return c
}

// A stock is filled up once half of it is gone, up to the limits of number and bytes.
func TestAStockIsFilledUpWhenHalfOfItIsGone(t *testing.T) {
	r := newHomeRig(t, 1, proto.Limits{}, 8)
	r.quiet = true
	r.end[1].cfg.HomeBytes = 6 * 4096
	num := r.as("a", 4096)
	r.pushes(num, 3000, 7, "more than could ever stand ready")
	if got := r.stockOf(num); got != 0 {
		t.Errorf("%d homes for pushes that they are too few for", got)
	}
	r.pushes(num, 3000, 6, "as many as may")
	for _, c := range []struct{ push, left int }{{2, 4}, {1, 6}, {3, 6}} {
		before := r.stockOf(num)
		if before != 6 && before != 4 {
			t.Fatalf("%d homes", before)
		}
		r.mustDeliver(r.pushes(num, 3000, c.push, fmt.Sprint("push of ", c.push, " of ", before, " ")))
		if got := r.stockOf(num); got != c.left {
			t.Errorf("%d of %d homes were used, then there were %d, want %d", c.push, before, got, c.left)
		}
	}
	r.over()
}

// What one namespace holds is not there for another; what is left is, to the last.
func TestNamespacesShareTheHomesOfASession(t *testing.T) {
	r := newHomeRig(t, 1, proto.Limits{}, 8)
	r.quiet = true
	r.end[1].cfg.HomeBytes = 8 * 4096
	big, small := r.as("big", 3*4096), r.as("small", 4096)
	r.pushes(big, 10_000, 1, "big")
	r.pushes(small, 3000, 1, "small")
	if a, b := r.stockOf(big), r.stockOf(small); a != 2 || b != 2 {
		t.Errorf("%d large homes and %d small ones, want 2 and 2", a, b)
	}
	if s := r.end[1]; s.homes != 4 || s.homeBytes != 8*4096 {
		t.Errorf("%d homes of %d bytes", s.homes, s.homeBytes)
	}
	r.over()
}

// In a batch of two namespaces each is judged by its own blocks.
func TestABatchOfTwoNamespacesStocksBoth(t *testing.T) {
	r := newHomeRig(t, 1, proto.Limits{}, 8)
	r.quiet = true
	r.end[1].cfg.HomeBytes = 8 * 4096
	big, small := r.as("big", 3*4096), r.as("small", 4096)
	c := &Call{Type: proto.TypePush, Timeout: time.Second}
	for i := range 9 {
		num, b := small, body("x", 3000)
		if i < 2 {
			num, b = big, body("x", 10_000)
		}
		h := wire.Header{BodyLen: uint32(len(b)), Tier: wire.OutputCritical, Sum: wire.SumOf(b)}
		c.Items = append(c.Items, Item{NS: num, Key: r.key(fmt.Sprint(i)), Room: b, Tier: wire.OutputCritical, Head: [32]byte(h.Append(nil))})
	}
	r.end[0].Start(r.now, c)
	r.run()
	if a, b := r.stockOf(big), r.stockOf(small); a != 2 || b != 2 {
		t.Errorf("%d and %d homes", a, b)
	}
	r.over()
}

// A home takes a body of more than half of it, and up to all of it.
func TestWhatFitsAHome(t *testing.T) {
	for _, c := range []struct {
		n, size uint32
		fits    bool
	}{{4096, 4096, true}, {4097, 4096, false}, {2049, 4096, true}, {2048, 4096, false}, {0, 0, false}, {1, 1, true}} {
		if fitsHome(c.n, c.size) != c.fits {
			t.Errorf("%d in a home of %d: %v", c.n, c.size, !c.fits)
		}
	}
}

// What is under way to homes is taken off what STANDING says there are.
func TestStandingCountsWithoutWhatIsUnderWay(t *testing.T) {
	s := New(Config{Store: newMemStore()})
	s.allowed = map[uint16]*allowance{1: {out: 3}}
	for n, want := range map[uint32]int{10: 7, 3: 0, 2: 0} {
		if err := s.standing((proto.Standing{NS: 1, N: n, Len: 100}).Append(nil)); err != nil || s.allowed[1].have != want {
			t.Errorf("of %d: %d, %v; want %d", n, s.allowed[1].have, err, want)
		}
	}
}

// All namespaces together have as many homes as a session may, and no job is begun for
// none.
func TestNoJobIsBegunForNoHomes(t *testing.T) {
	r := newHomeRig(t, 1, proto.Limits{}, 8)
	r.quiet = true
	first := r.as("a", 4096)
	r.pushes(first, 3000, 1, "of the first")
	if got := r.stockOf(first); got != 8 {
		t.Fatalf("%d homes, want 8", got)
	}
	second := r.as("b", 4096)
	r.stockHeld = true
	r.pushes(second, 3000, 1, "of the second")
	if len(r.stocks[1]) != 0 || r.end[1].homes != 8 {
		t.Errorf("%d jobs for homes, %d homes", len(r.stocks[1]), r.end[1].homes)
	}
	r.stockHeld = false
	r.pushes(first, 3000, 4, "more of the first ") // which are filled up again, below half
	r.pushes(second, 3000, 1, "more of the second")
	if r.end[1].homes > 8 {
		t.Errorf("%d homes of all namespaces, want 8 at most", r.end[1].homes)
	}
}

// A DELIVER names what namespace it likes: of numbers that were not given none has a home,
// and the item beside them has its own.
func TestADeliverOfNoNamespaceHasNoHome(t *testing.T) {
	r, num := homeRig(t)
	head := bodyHead(3000)
	head.Tier = wire.OutputCritical // as the homes are
	have := proto.Have{Len: 3000, Tier: head.Tier, Head: [32]byte(head.Append(nil))}
	items := []proto.PushItem{{NS: 0, Key: r.key("x"), Have: have}, {NS: num + 1, Key: r.key("y"), Have: have}, {NS: num, Key: r.key("z"), Have: have}}
	r.feed(1, frameOf(proto.TypeDeliver, 201, proto.Push{DeadlineMS: 5000, Items: items}))
	q := r.end[1].served[201]
	if q == nil {
		t.Fatal("it is not served")
	}
	for i, want := range []wire.Code{wire.CodeNSUnknown, wire.CodeNSUnknown, wire.CodeOK} {
		if got := q.blocks[i].Code; got != want {
			t.Errorf("item %d: %v, want %v", i, got, want)
		}
	}
	r.over()
}
