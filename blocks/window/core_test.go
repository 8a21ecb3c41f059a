package window

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"meridian/blocks"
	"meridian/wire"
)

// check recounts what the core keeps twice.
func (c *core) check() error {
	var bytes, last uint64
	in := 0
	for _, w := range c.live {
		switch {
		case w.state == free || w.addr < last:
			return fmt.Errorf("window %#x is %s and comes after %#x", w.addr, w.state, last)
		case w.in > 0 && w.state != open && w.state != closing:
			return fmt.Errorf("window %#x is %s with %d accesses in", w.addr, w.state, w.in)
		case w.in == 0 && w.state == closing && w.end != wire.CodeOK:
			return fmt.Errorf("window %#x ended and is not free", w.addr)
		case w.state == open && w.end != wire.CodeOK:
			return fmt.Errorf("window %#x is open after its end", w.addr)
		case w.end == wire.CodeOK && w.until < c.due:
			return fmt.Errorf("window %#x is due at %v, the core at %v", w.addr, w.until, c.due)
		}
		last = w.addr + w.room
		bytes += w.room
		in += w.in
	}
	if last > c.next || bytes != c.bytes || in != c.st.InFlight {
		return fmt.Errorf("next %#x after %#x, bytes %d of %d, in flight %d of %d", c.next, last, c.bytes, bytes, c.st.InFlight, in)
	}
	return nil
}

// scenario runs the text files of testdata/core. Windows and accesses have the
// names that reserve and enter give them; addresses are offsets from the first.
type scenario struct {
	c        *core
	now      time.Duration
	windows  map[string]*win
	accesses map[string]access
	names    map[*win]string
}

func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/core", func(t *testing.T, path string) {
		s := &scenario{windows: map[string]*win{}, accesses: map[string]access{}, names: map[*win]string{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			for _, w := range s.c.takeFreed() {
				out += "free " + s.names[w] + "\n"
			}
			if err := s.c.check(); err != nil {
				d.Fatalf(t, "after %s: %v", d.Cmd, err)
			}
			if out == "" {
				out = "ok\n"
			}
			return out
		})
	})
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	str := func(key, def string) string {
		if a, ok := d.Arg(key); ok && len(a.Vals) > 0 {
			return a.Vals[0]
		}
		return def
	}
	num := func(key, def string) uint64 {
		n, err := strconv.ParseUint(str(key, def), 0, 64)
		if err != nil {
			d.Fatalf(t, "%s: %v", key, err)
		}
		return n
	}
	dur := func(key, def string) time.Duration {
		n, err := time.ParseDuration(str(key, def))
		if err != nil {
			d.Fatalf(t, "%s: %v", key, err)
		}
		return n
	}
	owner := blocks.Owner(num("owner", "1"))
	name := ""
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		name = d.CmdArgs[0].Key
	}
	w := s.windows[name]
	switch d.Cmd {
	case "new":
		s.c = newCore(num("first", "0x100000"), num("limit", "0x10000"), 4096)
	case "reserve":
		return s.reserve(d, owner, name, num("bytes", "0"), dur("ttl", "10s"))
	case "opened":
		return text(s.c.opened(s.now, w))
	case "failed":
		s.c.failed(w)
	case "enter":
		in, err := s.c.enter(s.now, str("peer", "p"), s.windows[str("at", "w")].addr+num("off", "0"), num("n", "1"), d.HasArg("write"))
		if err != nil {
			return text(err)
		}
		s.accesses[name] = in
		return fmt.Sprintf("%s+%d in=%d\n", s.names[in.w], in.off, in.w.in)
	case "own":
		in, err := s.c.own(s.now, owner, s.windows[str("at", "w")].addr+num("off", "0"), num("n", "1"))
		if err != nil {
			return text(err)
		}
		s.accesses[name] = in
		return fmt.Sprintf("%s+%d in=%d\n", s.names[in.w], in.off, in.w.in)
	case "touched":
		return fmt.Sprintln(w.touched)
	case "enter-raw":
		_, err := s.c.enter(s.now, "p", num("addr", "0"), num("n", "1"), false)
		return text(err)
	case "leave":
		return fmt.Sprintf("quiet=%t\n", s.c.leave(s.accesses[name], num("wrote", "0")))
	case "commit":
		_, err := s.c.take(s.now, owner, w.addr, int(num("items", "1")))
		return text(err)
	case "item":
		left, err := s.c.publishable(s.now, w)
		if err != nil {
			return text(err)
		}
		return fmt.Sprintf("%v left\n", left)
	case "done":
		s.c.done(w, 1)
	case "close":
		s.c.close(owner, w.addr)
	case "drop":
		s.c.drop(owner)
	case "step":
		s.now += dur("after", "0s")
		s.c.expire(s.now)
		return fmt.Sprintf("now=%v next=%v\n", s.now, s.c.nextDue())
	case "clock": // time goes on and nobody calls Step
		s.now += dur("after", "0s")
	case "state":
		return w.state.String() + "\n"
	case "stats":
		st := s.c.stats()
		return fmt.Sprintf("windows=%d bytes=%d in=%d opened=%d late=%d lapsed=%d blocks=%d\n",
			st.Windows, st.Bytes, st.InFlight, st.Opened, st.Late, st.Lapsed, st.Blocks)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return ""
}

func (s *scenario) reserve(d *datadriven.TestData, o blocks.Owner, name string, size uint64, ttl time.Duration) string {
	lens := []uint32{100}
	if a, ok := d.Arg("lens"); ok {
		lens = nil
		for _, v := range a.Vals {
			n, _ := strconv.ParseUint(v, 10, 32)
			lens = append(lens, uint32(n))
		}
	}
	spec := Spec{NS: wire.Namespace{1}, Lens: lens, TTL: ttl, Read: true, Write: true}
	if size > 0 {
		spec.Bytes, spec.Lens = size, nil
	}
	if a, ok := d.Arg("peers"); ok {
		spec.Peers = a.Vals
	}
	spec.Read, spec.Write = !d.HasArg("write-only"), !d.HasArg("read-only")
	w, err := s.c.reserve(s.now, o, spec)
	if err != nil {
		return text(err)
	}
	s.windows[name], s.names[w] = w, name
	out := fmt.Sprintf("addr=%#x size=%d room=%d items=%v\n", w.addr, w.size, w.room, w.items)
	if d.HasArg("open") {
		out += text(s.c.opened(s.now, w))
	}
	return out
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error() + "\n"
}

// What each call does to a window in each state, with and without an access in.
func TestEachCallInEachState(t *testing.T) {
	ends := map[string]func(*core){
		"close":    func(c *core) { c.close(1, 0x1000) },
		"drop":     func(c *core) { c.drop(1) },
		"deadline": func(c *core) { c.expire(10) },
		"commit":   func(c *core) { _, _ = c.take(0, 1, 0x1000, 1) },
		"stranger": func(c *core) { c.close(2, 0x1000); c.drop(2); _, _ = c.take(0, 2, 0x1000, 1) },
	}
	cancelled, deadline := wire.CodeCancelled, wire.CodeDeadline
	for _, want := range []struct {
		from state
		in   int
		call string
		to   state
		end  wire.Code
	}{
		{reserved, 0, "close", reserved, cancelled}, {reserved, 0, "drop", reserved, cancelled},
		{reserved, 0, "deadline", reserved, deadline}, {reserved, 0, "commit", reserved, 0}, {reserved, 0, "stranger", reserved, 0},
		{open, 0, "close", free, cancelled}, {open, 0, "drop", free, cancelled},
		{open, 0, "deadline", free, deadline}, {open, 0, "commit", hashing, 0}, {open, 0, "stranger", open, 0},
		{open, 2, "close", closing, cancelled}, {open, 2, "drop", closing, cancelled},
		{open, 2, "deadline", closing, deadline}, {open, 2, "commit", closing, 0}, {open, 2, "stranger", open, 0},
		{closing, 0, "close", free, cancelled}, {closing, 0, "drop", free, cancelled},
		{closing, 0, "deadline", free, deadline}, {closing, 0, "commit", hashing, 0}, {closing, 0, "stranger", closing, 0},
		{closing, 1, "close", closing, cancelled}, {closing, 1, "drop", closing, cancelled},
		{closing, 1, "deadline", closing, deadline}, {closing, 1, "commit", closing, 0}, {closing, 1, "stranger", closing, 0},
		{hashing, 0, "close", hashing, cancelled}, {hashing, 0, "drop", hashing, cancelled},
		{hashing, 0, "deadline", hashing, deadline}, {hashing, 0, "commit", hashing, 0}, {hashing, 0, "stranger", hashing, 0},
	} {
		name := fmt.Sprintf("%s in %s with %d in", want.call, want.from, want.in)
		c := newCore(0x1000, 1<<20, 4096)
		w, err := c.reserve(0, 1, Spec{Lens: []uint32{8}, TTL: 10, Read: true})
		if err != nil {
			t.Fatal(err)
		}
		w.state, w.in, c.st.InFlight = want.from, want.in, want.in
		for range 2 { // each is idempotent
			ends[want.call](c)
			if want.call == "commit" && want.from != closing && want.to == hashing {
				break // the second would be refused, and is below
			}
		}
		if w.state != want.to || w.end != want.end {
			t.Errorf("%s: %s, end %s; want %s, end %s", name, w.state, w.end, want.to, want.end)
		}
		if _, err := c.enter(5, "", 0x1000, 1, false); w.state != open && !errors.Is(err, wire.CodeStale) {
			t.Errorf("%s: an access afterwards: %v", name, err)
		}
		for w.in > 0 {
			c.leave(access{w: w}, 0)
		}
		if want.end != 0 && want.from != reserved && want.from != hashing && w.state != free {
			t.Errorf("%s: %s after the last access", name, w.state)
		}
		if n := len(c.takeFreed()); w.state == free && n != 1 || w.state != free && n != 0 {
			t.Errorf("%s: freed %d times, state %s", name, n, w.state)
		}
	}
}

// naive is a window as somebody would keep it who has all the time in the world.
type naive struct {
	w     *win
	owner blocks.Owner
	until time.Duration
	in    int
	state state
	ended wire.Code
}

// Random calls, the clock now and then ahead of Step: the core agrees with the
// naive table after each, no address comes twice, and all counts return to zero.
func TestModelAgreesOverRandomCalls(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 7))
		c := newCore(0x10000, 64<<10, 4096)
		var all []*naive
		now, top := time.Duration(0), uint64(0)
		freed := map[*win]int{}
		lapse := func() {
			for _, n := range all {
				if n.state != free && n.until <= now {
					n.finish(wire.CodeDeadline)
				}
			}
		}
		for step := range 600 {
			now += time.Duration(r.IntN(3))
			var n *naive
			if len(all) > 0 {
				n = all[max(0, len(all)-1-r.IntN(8))]
			}
			switch op := r.IntN(10); {
			case n == nil || op == 0:
				lapse()
				o, ttl := blocks.Owner(r.IntN(3)), time.Duration(1+r.IntN(60))
				if w, err := c.reserve(now, o, Spec{Lens: []uint32{uint32(1 + r.IntN(9000))}, TTL: ttl, Read: true}); err == nil {
					if w.addr < top {
						t.Fatalf("address %#x comes again", w.addr)
					}
					top = w.addr + w.size
					all = append(all, &naive{w: w, owner: o, until: now + ttl, state: reserved})
				} else if !errors.Is(err, wire.CodeFull) {
					t.Fatal(err)
				}
			case op == 1 && n.state == reserved:
				lapse()
				err := c.opened(now, n.w)
				if wire.CodeOf(err) != n.ended {
					t.Fatalf("opened: %v, want %s", err, n.ended)
				}
				if n.state = open; err != nil {
					n.state = free
				}
			case op <= 4:
				lapse()
				_, err := c.enter(now, "", n.w.addr, n.w.size, false)
				if (err == nil) != (n.state == open) {
					t.Fatalf("seed %d, step %d: enter: %v in %s", seed, step, err, n.state)
				}
				if err == nil {
					n.in++
				}
			case op <= 6 && n.in > 0:
				c.leave(access{w: n.w}, 0)
				n.in--
				n.settle()
			case op == 7:
				n.commit(t, c, now, lapse)
			case op == 8 && n.state == hashing:
				c.done(n.w, 1)
				n.state = free
			case op == 9 && r.IntN(2) == 0:
				c.close(n.owner, n.w.addr)
				n.finish(wire.CodeCancelled)
			case op == 9:
				c.expire(now)
				lapse()
			}
			for _, w := range c.takeFreed() {
				freed[w]++
			}
			if err := c.check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			for _, n := range all {
				if n.w.state != n.state || n.w.in != n.in || (n.state == free) != (freed[n.w] == 1) {
					t.Fatalf("seed %d, step %d: %#x is %s with %d in, freed %d times; want %s with %d", seed, step, n.w.addr, n.w.state, n.w.in, freed[n.w], n.state, n.in)
				}
			}
		}
		drain(t, c, all)
	}
}

func drain(t *testing.T, c *core, all []*naive) {
	t.Helper()
	for o := range blocks.Owner(3) {
		c.drop(o)
	}
	for _, n := range all {
		for ; n.in > 0; n.in-- {
			c.leave(access{w: n.w}, 0)
		}
		switch n.w.state {
		case reserved:
			c.failed(n.w)
		case hashing:
			c.done(n.w, 0)
		}
	}
	if st := c.stats(); st.Windows != 0 || st.Bytes != 0 || st.InFlight != 0 {
		t.Fatalf("counts do not return to zero: %+v", st)
	}
}

func (n *naive) finish(why wire.Code) {
	if n.ended == wire.CodeOK {
		n.ended = why
	}
	if n.state == open {
		n.state = closing
	}
	n.settle()
}

func (n *naive) settle() {
	if n.state == closing && n.ended != wire.CodeOK && n.in == 0 {
		n.state = free
	}
}

func (n *naive) commit(t *testing.T, c *core, now time.Duration, lapse func()) {
	t.Helper()
	there := n.state != free
	lapse()
	want := wire.CodeStale
	switch {
	case there && n.ended == wire.CodeDeadline:
		want = wire.CodeDeadline
	case n.ended != wire.CodeOK || n.state == reserved || n.state == hashing || n.state == free:
	case n.in > 0:
		want, n.state = wire.CodeBusy, closing
	default:
		want, n.state = wire.CodeOK, hashing
	}
	if _, err := c.take(now, n.owner, n.w.addr, 1); wire.CodeOf(err) != want {
		t.Fatalf("commit in %s: %v, want %s", n.state, err, want)
	}
}

// At the end of the address space windows are refused; no address wraps round. The
// last address is used.
func TestAddressesEndBeforeTheyWouldComeAgain(t *testing.T) {
	c := newCore(addressSpace-4*4096, 1<<30, 4096)
	for range 2 {
		w, err := c.reserve(0, 1, Spec{Lens: []uint32{1}, TTL: math.MaxInt64, Read: true})
		if err != nil || w.until != never {
			t.Fatal(w, err)
		}
		c.failed(w)
	}
	_, err := c.reserve(0, 1, Spec{Lens: []uint32{1}, TTL: 1, Read: true})
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != wire.CodeFull || e.Have != 0 || e.Need != 2*4096 || !strings.Contains(err.Error(), "addresses") {
		t.Errorf("beyond the last address: %v", err)
	}
	_, err = newCore(addressSpace-3*4096, 1<<30, 4096).reserve(0, 1, Spec{Bytes: 4096 * 3, TTL: 1, Read: true})
	if e, ok := errors.AsType[*Error](err); !ok || e.Have != 3*4096 || e.Need != 4*4096 {
		t.Errorf("too large for the rest: %v", err)
	}
}

// What is left of a window's time is from now on.
func TestTheTimeThatIsLeftToPublish(t *testing.T) {
	c := newCore(0x1000, 1<<30, 4096)
	w, err := c.reserve(time.Hour, 1, Spec{Lens: []uint32{1}, TTL: 10 * time.Second, Read: true})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := c.publishable(time.Hour+3*time.Second, w); err != nil || left != 7*time.Second {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestRoundUp(t *testing.T) {
	for n, want := range map[uint64]uint64{0: 0, 1: 4096, 4095: 4096, 4096: 4096, 4097: 8192} {
		if got := roundUp(n, 4096); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

func TestWindowsAreCounted(t *testing.T) {
	c := newCore(0x1000, 1<<40, 4096)
	for range MaxWindows {
		if _, err := c.reserve(0, 1, Spec{Lens: []uint32{1}, TTL: 1, Read: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.reserve(0, 1, Spec{Lens: []uint32{1}, TTL: 1, Read: true}); !errors.Is(err, wire.CodeFull) {
		t.Errorf("above MaxWindows: %v", err)
	}
}
