package chaos

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"meridian/wire/link"
)

// backend takes each connection's bytes to their end, and then, or with every
// read where echo is set, writes something back.
type backend struct {
	l    net.Listener
	wg   sync.WaitGroup
	got  chan []byte // of each connection, once its client's side has ended
	fail chan error  // how it ended
}

func newBackend(t *testing.T, network string, serve func(c net.Conn) ([]byte, error)) *backend {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "back")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{l: l, got: make(chan []byte, 64), fail: make(chan error, 64)}
	b.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() {
				defer func() { _ = c.Close() }()
				got, err := serve(c)
				b.got <- got
				b.fail <- err
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); b.wg.Wait() })
	return b
}

func (b *backend) addr() string { return b.l.Addr().Network() + "://" + b.l.Addr().String() }

func sink(c net.Conn) ([]byte, error) { return io.ReadAll(c) }

// echo sends back what it gets.
func echo(c net.Conn) ([]byte, error) {
	var got bytes.Buffer
	_, err := io.Copy(c, io.TeeReader(c, &got))
	return got.Bytes(), err
}

func newProxy(t *testing.T, target string, plan ...Action) *Proxy {
	t.Helper()
	p, err := NewProxy(ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: target, Seed: 42, Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	network, addr, err := split(p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// send writes b in pieces of n, ends the direction, and returns what came back.
func send(t *testing.T, c net.Conn, b []byte, n int) []byte {
	t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for len(b) > 0 {
			m := min(n, len(b))
			if _, err := c.Write(b[:m]); err != nil {
				return
			}
			b = b[m:]
		}
		closeWrite(c)
	})
	back, _ := io.ReadAll(c)
	return back
}

func stream1(n int) []byte { return body(key(77), n) }

func TestProxyHandsOnUnchanged(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			b := newBackend(t, network, echo)
			listen := "tcp://127.0.0.1:0"
			if network == "unix" {
				listen = "unix://" + filepath.Join(t.TempDir(), "front")
			}
			p, err := NewProxy(ProxyOptions{Listen: listen, Target: b.addr()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.Close() }()
			want := stream1(1 << 20)
			if back := send(t, dial(t, p), want, 100_000); !bytes.Equal(back, want) {
				t.Errorf("%d bytes came back, or others", len(back))
			}
			s := p.Stats()
			if s.ToBack != 1<<20 || s.ToFront != 1<<20 || s.Conns != 1 || len(s.Done) != 0 {
				t.Errorf("stats: %+v", s)
			}
		})
	}
}

func TestFlipTurnsOneBitOnceAndSaysWhere(t *testing.T) {
	b := newBackend(t, "tcp", sink)
	p := newProxy(t, b.addr(), Action{Kind: Flip, Dir: ToBack, At: 70_000, Bit: 5})
	want := stream1(100_000)
	send(t, dial(t, p), want, 977)
	got := <-b.got
	flips := p.Flips()
	if len(flips) != 1 || flips[0].Off != 70_000 || flips[0].Conn != 1 || flips[0].Dir != ToBack || flips[0].Bit != 5 {
		t.Fatalf("flips: %+v", flips)
	}
	var e *BodyError
	if !errors.As(CheckBody(got, key(77)), &e) || e.Off != 70_000 || e.Got != e.Want^1<<5 || len(got) != len(want) {
		t.Fatalf("damage: %v", e)
	}
	got[70_000] ^= 1 << 5
	if !bytes.Equal(got, want) {
		t.Error("more than one bit was turned")
	}
	send(t, dial(t, p), want, 1<<16)
	if got := <-b.got; !bytes.Equal(got, want) {
		t.Error("a second connection was hurt too")
	}
}

// The places depend on the seed alone, not on how the bytes were cut.
func TestPlacesByTheSeedRepeat(t *testing.T) {
	places := func(seed uint64, piece int) []Flipped {
		b := newBackend(t, "tcp", sink)
		p, err := NewProxy(ProxyOptions{Listen: "tcp://127.0.0.1:0", Target: b.addr(), Seed: seed,
			Plan: []Action{{Kind: Flip, Dir: ToBack, Every: 5000, Repeat: true}}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		want := stream1(100_000)
		send(t, dial(t, p), want, piece)
		got := <-b.got
		flips := p.Flips()
		for _, f := range flips {
			got[f.Off] ^= 1 << f.Bit
		}
		if !bytes.Equal(got, want) {
			t.Error("the reported flips are not the ones that were done")
		}
		return flips
	}
	first := places(1, 1<<20)
	if len(first) < 8 || len(first) > 50 {
		t.Errorf("%d flips in 100000 bytes at one in 5000", len(first))
	}
	same := func(a, b []Flipped) bool {
		if len(a) != len(b) {
			return false
		}
		for i := range a {
			if a[i] != b[i] {
				return false
			}
		}
		return true
	}
	if !same(first, places(1, 313)) {
		t.Error("another cut of the stream moved the places")
	}
	if same(first, places(2, 313)) {
		t.Error("another seed gave the same places")
	}
}

// dataStream is a lane's bytes: control frames around DATA frames of the given
// body sizes. It returns the stream offset of each body.
func dataStream(t *testing.T, sizes ...int) (b []byte, bodies []int) {
	t.Helper()
	for i, n := range sizes {
		b = link.AppendMessage(b, link.Frame{Type: link.TypeGrant, Req: uint64(2*i + 1)}, link.Grant{})
		b = link.AppendData(b, link.Frame{Type: link.TypeData, Req: 99, Arg: uint32(i)}, 0, n)
		bodies = append(bodies, len(b))
		b = append(b, body(key(i), n)...)
	}
	return b, bodies
}

func TestFlipInsideTheBodyOfAFrame(t *testing.T) {
	wantStream, bodies := dataStream(t, 1000, 70_000, 500)
	for _, c := range []struct {
		action    Action
		off, body uint64
	}{
		{Action{Kind: Flip, Frame: 1, Body: 0}, uint64(bodies[0]), 0},
		{Action{Kind: Flip, Frame: 2, Body: 69_999, Bit: 7}, uint64(bodies[1] + 69_999), 69_999},
		{Action{Kind: Flip, Frame: 3, Body: 1 << 40}, uint64(bodies[2] + 499), 499}, // the last byte there is
	} {
		for _, piece := range []int{1, 23, 1 << 20} {
			if piece == 1 && testing.Short() {
				continue
			}
			b := newBackend(t, "tcp", sink)
			p := newProxy(t, b.addr(), c.action)
			send(t, dial(t, p), wantStream, max(piece, 7))
			got := <-b.got
			flips := p.Flips()
			if len(flips) != 1 || flips[0].Off != c.off || flips[0].Body != c.body ||
				flips[0].Frame != c.action.Frame || flips[0].Req != 99 {
				t.Fatalf("%+v: flips %+v, want offset %d", c.action, flips, c.off)
			}
			got[c.off] ^= 1 << c.action.Bit
			if !bytes.Equal(got, wantStream) {
				t.Fatal("other bytes were changed")
			}
		}
	}
	// By the seed: somewhere in the body, the same place each time.
	var first Flipped
	for round := range 2 {
		b := newBackend(t, "tcp", sink)
		p := newProxy(t, b.addr(), Action{Kind: Flip, Frame: 2, Body: -1})
		send(t, dial(t, p), wantStream, 4096)
		<-b.got
		f := p.Flips()
		if len(f) != 1 || f[0].Off < uint64(bodies[1]) || f[0].Off >= uint64(bodies[1]+70_000) {
			t.Fatalf("flips: %+v", f)
		}
		if round == 0 {
			first = f[0]
		} else if f[0] != first {
			t.Errorf("%+v, then %+v", first, f[0])
		}
	}
}

func TestFramesAreCountedByType(t *testing.T) {
	want, bodies := dataStream(t, 100, 100)
	b := newBackend(t, "tcp", sink)
	p := newProxy(t, b.addr(), Action{Kind: Flip, Frame: 2, Type: link.TypeGrant, Body: 0})
	send(t, dial(t, p), want, 1<<20)
	<-b.got
	if f := p.Flips(); len(f) != 1 || f[0].Req != 3 || f[0].Off != uint64(bodies[0]+100+link.FrameLen) {
		t.Errorf("flips: %+v", f)
	}
}

func TestStreamThatIsNoLinkIsLeftAlone(t *testing.T) {
	b := newBackend(t, "tcp", sink)
	p := newProxy(t, b.addr(), Action{Kind: Flip, Dir: ToBack, Frame: 1})
	want := stream1(100_000)
	send(t, dial(t, p), want, 1000)
	if got := <-b.got; !bytes.Equal(got, want) {
		t.Error("bytes were changed")
	}
	if s := p.Stats(); s.Unframed != 1 || len(p.Flips()) != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestDuplicate(t *testing.T) {
	want := stream1(50_000)
	b := newBackend(t, "tcp", sink)
	p := newProxy(t, b.addr(), Action{Kind: Duplicate, Dir: ToBack, At: 1000, Len: 300})
	send(t, dial(t, p), want, 211)
	twice := append(append(append([]byte(nil), want[:1300]...), want[1000:1300]...), want[1300:]...)
	if got := <-b.got; !bytes.Equal(got, twice) {
		t.Errorf("%d bytes came, want %d", len(got), len(twice))
	}
	frames, bodies := dataStream(t, 100, 90_000, 100)
	start, end := bodies[1]-link.FrameLen-link.DataPrefixLen, bodies[1]+90_000
	p = newProxy(t, b.addr(), Action{Kind: Duplicate, Dir: ToBack, Frame: 2})
	send(t, dial(t, p), frames, 5000)
	twice = append(append(append([]byte(nil), frames[:end]...), frames[start:end]...), frames[end:]...)
	if got := <-b.got; !bytes.Equal(got, twice) {
		t.Errorf("%d bytes came, want %d with the second DATA frame twice", len(got), len(twice))
	}
	if s := p.Stats(); s.Done["duplicate"] != 1 || s.ToBack != uint64(len(twice)) {
		t.Errorf("stats: %+v", s)
	}
}

func TestCutEndsBothDirectionsAtTheByte(t *testing.T) {
	for _, kind := range []ActionKind{Cut, Reset} {
		b := newBackend(t, "tcp", sink)
		p := newProxy(t, b.addr(), Action{Kind: kind, Dir: ToBack, At: 12_345})
		c := dial(t, p)
		_, _ = c.Write(stream1(50_000))
		if n, err := io.Copy(io.Discard, c); n != 0 {
			t.Errorf("%v: %d bytes came back, %v", kind, n, err)
		}
		got := <-b.got
		if err := <-b.fail; kind == Cut && (len(got) != 12_345 || err != nil) || len(got) > 12_345 {
			t.Errorf("%v: %d bytes arrived, %v", kind, len(got), err)
		}
		if s := p.Stats(); s.Done[kind.String()] != 1 {
			t.Errorf("stats: %+v", s)
		}
	}
}

func TestHalfCloseLeavesTheOtherDirection(t *testing.T) {
	b := newBackend(t, "tcp", func(c net.Conn) ([]byte, error) {
		got, err := io.ReadAll(c)
		_, _ = c.Write([]byte("answer after the end"))
		return got, err
	})
	p := newProxy(t, b.addr(), Action{Kind: HalfClose, Dir: ToBack, At: 400})
	back := send(t, dial(t, p), stream1(5000), 100)
	if got := <-b.got; len(got) != 400 {
		t.Errorf("%d bytes arrived", len(got))
	}
	if string(back) != "answer after the end" {
		t.Errorf("came back: %q", back)
	}
	for p.Stats().Open > 0 {
		runtime.Gosched() // both directions come to their ends by themselves
	}
	if s := p.Stats(); s.Discarded != 4600 || s.ToBack != 400 {
		t.Errorf("stats: %+v", s)
	}
}

func TestDelayAndThrottleWaitAsTold(t *testing.T) {
	b := newBackend(t, "tcp", sink)
	var mu sync.Mutex
	var waits []time.Duration
	p, err := NewProxy(ProxyOptions{
		Listen: "tcp://127.0.0.1:0", Target: b.addr(),
		Plan: []Action{
			{Kind: Delay, Dir: ToBack, At: 10, For: time.Hour},
			{Kind: Throttle, Dir: ToBack, At: 1000, Rate: 2000},
		},
		Wait: func(_ context.Context, d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, d)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	want := stream1(2000)
	send(t, dial(t, p), want, 2000)
	if got := <-b.got; !bytes.Equal(got, want) {
		t.Error("bytes were changed")
	}
	mu.Lock()
	defer mu.Unlock()
	var sum time.Duration
	for _, d := range waits[1:] {
		sum += d
	}
	if waits[0] != time.Hour || sum != time.Second/2 { // 1000 bytes at 2000 a second
		t.Errorf("waits: %v", waits)
	}
}
