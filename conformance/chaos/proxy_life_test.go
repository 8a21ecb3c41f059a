package chaos

import (
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/wire"
)

func TestStallHoldsAndCutAllEnds(t *testing.T) {
	b := newBackend(t, "tcp", echo)
	p := newProxy(t, b.addr())
	c := dial(t, p)
	ping := func() { // through both directions
		t.Helper()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	ping()
	p.Stall(true)
	if _, err := c.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	p.Stall(false)
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.Stall(true)
	_, _ = c.Write([]byte("held for ever"))
	if n := p.CutAll(); n != 1 {
		t.Errorf("%d connections were cut", n)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives after CutAll")
	}
	if got := <-b.got; string(got) != "xy" {
		t.Errorf("the target got %q", got)
	}
}

func TestRefuseAndRetarget(t *testing.T) {
	first, second := newBackend(t, "tcp", sink), newBackend(t, "unix", sink)
	p := newProxy(t, first.addr())
	send(t, dial(t, p), []byte("one"), 9)
	if got := <-first.got; string(got) != "one" {
		t.Errorf("first target got %q", got)
	}
	must(t, p.Retarget(second.addr()))
	send(t, dial(t, p), []byte("two"), 9)
	if got := <-second.got; string(got) != "two" {
		t.Errorf("second target got %q", got)
	}
	p.Refuse(true)
	if back := send(t, dial(t, p), []byte("three"), 9); len(back) != 0 {
		t.Errorf("a refused connection gave %q", back)
	}
	p.Refuse(false)
	must(t, p.Arm(Action{Kind: Cut, Dir: ToBack, At: 1}))
	send(t, dial(t, p), []byte("four"), 9)
	if got := <-second.got; string(got) != "f" {
		t.Errorf("after Arm the target got %q", got)
	}
	if s := p.Stats(); s.Refused != 1 || s.Conns != 3 {
		t.Errorf("stats: %+v", s)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	b := newBackend(t, "tcp", echo)
	p, err := NewProxy(ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: b.addr(), Conns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	for range 2 {
		c := dial(t, p)
		_, _ = c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(dial(t, p), make([]byte, 1)); err == nil {
		t.Error("a third connection got through")
	}
	if s := p.Stats(); s.Open != 2 || s.Refused != 1 {
		t.Errorf("stats: %+v", s)
	}
}

func TestTargetThatIsNotThere(t *testing.T) {
	b := newBackend(t, "tcp", sink)
	_ = b.l.Close()
	p := newProxy(t, b.addr())
	if n, _ := io.Copy(io.Discard, dial(t, p)); n != 0 {
		t.Error("bytes came from nowhere")
	}
}

func TestPlansThatMakeNoSenseAreRefused(t *testing.T) {
	for _, a := range []Action{
		{}, {Kind: actionKinds}, {Kind: Throttle}, {Kind: Duplicate, Len: MaxDuplicate + 1},
		{Kind: Flip, Bit: 8}, {Kind: Cut, Dir: 3}, {Kind: Cut, Frame: -1}, {Kind: Cut, Conn: -1},
	} {
		_, err := NewProxy(ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: "tcp://127.0.0.1:1", Plan: []Action{a}})
		if !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	for _, addr := range []string{"", "127.0.0.1:1", "udp://127.0.0.1:1", "tcp://"} {
		if _, err := NewProxy(ProxyOptions{Listen: addr, Target: "tcp://127.0.0.1:1"}); err == nil {
			t.Errorf("listens on %q", addr)
		}
		if _, err := NewProxy(ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: addr}); err == nil {
			t.Errorf("goes to %q", addr)
		}
	}
}

// Close leaves no goroutine, with connections stalled, delayed, half-closed and
// idle.
func TestCloseLeavesNothing(t *testing.T) {
	b := newBackend(t, "tcp", echo)
	p := newProxy(t, b.addr(),
		Action{Kind: Delay, Conn: 1, At: 0, For: time.Hour},
		Action{Kind: HalfClose, Conn: 2, Dir: ToBack, At: 1},
		Action{Kind: Throttle, Conn: 3, At: 0, Rate: 1},
	)
	for range 4 {
		_, _ = dial(t, p).Write(stream1(3000))
	}
	c := dial(t, p)
	_, _ = c.Write([]byte("x"))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.Stall(true)
	_, _ = c.Write([]byte("held"))
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.Stats(); s.Open != 0 {
		t.Errorf("%d connections are open", s.Open)
	}
	// A goroutine that has told of its end is there for a moment more.
	buf := make([]byte, 1<<20)
	for end := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		all := string(buf[:runtime.Stack(buf, true)])
		left := slices.ContainsFunc([]string{"(*pump).", "(*Proxy).accept", "(*Proxy).connect"}, func(name string) bool { return strings.Contains(all, name) })
		if !left {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a goroutine of the proxy is left:\n%s", all)
		}
	}
}
