package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/adapters/mooncake/segment"
	"meridian/wire"
)

// known is a metadata plane of one segment that a test may change.
type known struct {
	mu    sync.Mutex
	d     segment.Descriptor
	err   error
	asked int
}

func (k *known) Get(context.Context, string) (segment.Descriptor, string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	return k.d, "127.0.0.1", k.err
}

func (k *known) set(port uint16, addr uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.d = segment.Descriptor{Protocols: []string{segment.TCP}, DataPort: port, Proto: 2, Buffers: []segment.Buffer{{Name: "b", Addr: addr, Len: 8 << 20}}}
}

// pair is an initiator and a target on the loopback.
type pair struct {
	*far
	known *known
	in    *Initiator
	seg   *Segment
	dials atomic.Int64
}

func newPair(t testing.TB, n int) *pair {
	t.Helper()
	p := &pair{far: newFar(TargetConfig{}, n), known: &known{}}
	t.Cleanup(func() { p.target.Close() })
	p.known.set(p.listen(t, p.target), base)
	p.in = NewInitiator(InitiatorConfig{Resolver: p.known, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		p.dials.Add(1)
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}})
	t.Cleanup(p.in.Close)
	var err error
	if p.seg, err = p.in.Open(t.Context(), "a:1"); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pair) listen(t testing.TB, target *Target) uint16 {
	t.Helper()
	at, err := target.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return at.Port()
}

func (p *pair) one(ctx context.Context, write bool, addr uint64, b []byte) error {
	ops := []Op{{Addr: addr, B: b}}
	p.seg.run(ctx, ops, write)
	return ops[0].Err
}

func TestABatchMovesEveryOperationByItself(t *testing.T) {
	const n = 24 << 20
	p := newPair(t, n)
	want := make([]byte, n)
	var ops []Op
	at := 0
	for i := 0; at < n; i++ { // of all sizes, up to several requests long
		size := min([]int{1, 4096, 64<<10 + 1, 0, maxRequest, 2*maxRequest + 3, 7}[i%7], n-at)
		b := bytes.Repeat([]byte{byte(i + 1)}, size)
		copy(want[at:], b)
		ops = append(ops, Op{Addr: base + uint64(at), B: b})
		at += size
	}
	bad := []Op{{Addr: base + n - 1, B: make([]byte, 2)}, {Addr: 1<<64 - 1, B: make([]byte, 2)}, {Addr: base - 1, B: make([]byte, 1)}}
	ops = append(append(bad[:2:2], ops...), bad[2])
	p.seg.Write(t.Context(), ops)
	for i, op := range ops {
		switch code := wire.CodeOf(op.Err); {
		case i == 0 || i == len(ops)-1:
			var rejected *RejectedError
			if code != wire.CodeStale || !errors.As(op.Err, &rejected) {
				t.Errorf("operation %d: %v", i, op.Err)
			}
		case i == 1 && code != wire.CodeInvalid, i > 1 && op.Err != nil:
			t.Errorf("operation %d: %v", i, op.Err)
		}
	}
	if !bytes.Equal(p.b, want) {
		t.Error("other bytes were written")
	}
	got := make([]byte, n)
	read := []Op{{Addr: base, B: got[:n/3]}, {Addr: base + n/3, B: got[n/3:]}}
	if p.seg.Read(t.Context(), read); read[0].Err != nil || read[1].Err != nil || !bytes.Equal(got, want) {
		t.Errorf("read: %v, %v", read[0].Err, read[1].Err)
	}
	p.seg.Read(t.Context(), nil)
}

// However many calls run, a peer gets so many connections and one request on each; and
// they serve the next calls.
func TestLanesAreBoundedAndUsedAgain(t *testing.T) {
	p := newPair(t, 1<<20)
	most := atomic.Int64{}
	p.onLeave(func(uint64) {
		for {
			n := int64(p.target.Active())
			if was := most.Load(); n <= was || most.CompareAndSwap(was, n) {
				return
			}
		}
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ops := make([]Op, 50)
			for i := range ops {
				ops[i] = Op{Addr: base + uint64(i)*100, B: make([]byte, 100)}
			}
			p.seg.Read(t.Context(), ops)
			for _, op := range ops {
				if op.Err != nil {
					t.Error(op.Err)
				}
			}
		})
	}
	wg.Wait()
	if n := p.dials.Load(); n > DefaultLanes || most.Load() > DefaultLanes {
		t.Errorf("%d connections, %d requests at once, want %d at most", n, most.Load(), DefaultLanes)
	}
}

// restart ends what a target has, as a restart of its process would, and starts
// another on the same port or on a new one.
func (p *pair) restart(t *testing.T, samePort bool) {
	t.Helper()
	p.target.Close()
	p.target = NewTarget(p.target.cfg)
	addr := "127.0.0.1:0"
	if samePort {
		addr = fmt.Sprintf("127.0.0.1:%d", p.known.d.DataPort)
	}
	at, err := p.target.Listen(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	p.known.set(at.Port(), p.known.d.Buffers[0].Addr)
}

func TestAPeersRestartIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		samePort, write bool
		moved           uint64 // where its memory is afterwards, beyond base
		fails           bool
	}{
		"a read, same port":                       {true, false, 0, false},
		"a write, same port":                      {true, true, 0, false},
		"a read, another port":                    {false, false, 0, false},
		"a write, another port: it may be wrong":  {false, true, 0, true},
		"a read, another port and other memory":   {false, false, 1 << 40, true},
		"a write, the same port and other memory": {true, true, 1 << 40, false}, // the idle lane is seen to be closed, so nothing is known of it
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, 4096)
			b := bytes.Repeat([]byte{7}, 100)
			if err := p.one(t.Context(), true, base, b); err != nil {
				t.Fatal(err)
			}
			_, before := p.seg.Descriptor()
			p.known.set(p.known.d.DataPort, base+c.moved)
			p.restart(t, c.samePort)
			err := p.one(t.Context(), c.write, base, bytes.Clone(b))
			if (err != nil) != c.fails || c.fails && !errors.Is(err, wire.CodeUnreachable) {
				t.Errorf("the first call: %v", err)
			}
			if _, after := p.seg.Descriptor(); (after > before) != !c.samePort {
				t.Errorf("descriptor %d, before %d", after, before)
			}
			if err := p.one(t.Context(), c.write, base, bytes.Clone(b)); err != nil {
				t.Errorf("the second call: %v", err)
			}
		})
	}
}

func TestARefreshTellsOtherMemory(t *testing.T) {
	p := newPair(t, 4096)
	_, first := p.seg.Descriptor()
	if err := p.seg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, again := p.seg.Descriptor(); again != first {
		t.Errorf("%d, then %d, of an equal descriptor", first, again)
	}
	p.known.set(p.known.d.DataPort, base+4096)
	if err := p.seg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, again := p.seg.Descriptor(); again != first+1 || d.Buffers[0].Addr != base+4096 {
		t.Errorf("%d, then %d: %+v", first, again, d)
	}
	p.known.err = wire.CodeUnreachable
	if err := p.seg.Refresh(t.Context()); !errors.Is(err, wire.CodeUnreachable) {
		t.Error(err)
	}
}

func TestOpenSaysWhyASegmentCannotBeUsed(t *testing.T) {
	k := &known{}
	in := NewInitiator(InitiatorConfig{Resolver: k})
	for _, c := range []struct {
		d    segment.Descriptor
		err  error
		code wire.Code
	}{
		{segment.Descriptor{Protocols: []string{"rdma"}}, nil, wire.CodeUnsupported},
		{segment.Descriptor{Protocols: []string{segment.TCP}}, nil, wire.CodeInvalid},
		{segment.Descriptor{}, wire.CodeUnreachable, wire.CodeUnreachable},
	} {
		k.d, k.err = c.d, c.err
		if _, err := in.Open(t.Context(), "x:1"); wire.CodeOf(err) != c.code {
			t.Errorf("%+v: %v", c.d, err)
		}
	}
	k.err = nil
	k.set(9, base)
	for i := range MaxSegments {
		if _, err := in.Open(t.Context(), fmt.Sprint("s", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Open(t.Context(), "one more"); !errors.Is(err, wire.CodeTooMany) {
		t.Error(err)
	}
	in.Forget("s0")
	s, err := in.Open(t.Context(), "one more")
	if err != nil {
		t.Error(err)
	}
	if again, err := in.Open(t.Context(), "one more"); err != nil || again != s {
		t.Error("another segment of the name", err)
	}
	in.Close()
	ops := []Op{{Addr: base, B: make([]byte, 1)}}
	if s.Read(t.Context(), ops); !errors.Is(ops[0].Err, wire.CodeUnreachable) {
		t.Error("a closed segment:", ops[0].Err)
	}
	if _, err := in.Open(t.Context(), "s1"); !errors.Is(err, wire.CodeUnreachable) {
		t.Error("a closed initiator:", err)
	}
}

// What is done with the context ends with it, and so does who waits for a lane.
func TestACallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiar(0, statusFine)
		s := l.segment(t, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		ops := make([]Op, 3*DefaultLanes)
		for i := range ops {
			ops[i] = Op{Addr: base, B: make([]byte, 4)}
		}
		waits := make(chan error)
		go func() {
			time.Sleep(time.Millisecond)
			late := []Op{{Addr: base, B: make([]byte, 4)}}
			s.Read(ctx, late)
			waits <- late[0].Err
		}()
		s.Read(ctx, ops)
		for i, op := range append(ops, Op{Err: <-waits}) {
			if wire.CodeOf(op.Err) != wire.CodeDeadline || !errors.Is(op.Err, context.DeadlineExceeded) {
				t.Errorf("operation %d: %v", i, op.Err)
			}
		}
		if took := time.Since(began); took != time.Second || len(s.busy) != 0 {
			t.Errorf("%v, %d lanes are taken", took, len(s.busy))
		}
		_ = l.Close()
		s.end()
		l.wg.Wait()
	})
	p := newPair(t, 4096)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.one(ctx, false, base, make([]byte, 1)); !errors.Is(err, wire.CodeCancelled) {
		t.Error(err)
	}
}

// Transfers that need a connection each leave no descriptor and no goroutine behind.
func TestFiveThousandShortTransfersLeaveNothingBehind(t *testing.T) {
	const n = 5000
	p := newPair(t, 4096)
	p.known.mu.Lock()
	p.known.d.Proto = 1 // a connection for each request
	p.known.mu.Unlock()
	if err := p.seg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	files := func() int { return openFiles(t) }
	if err := p.one(t.Context(), false, base, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	settled(t, func() bool { return p.target.Conns() == 0 })
	before, running := files(), runtime.NumGoroutine()
	for done := 0; done < n; done += 500 {
		ops := make([]Op, 500)
		for i := range ops {
			ops[i] = Op{Addr: base + uint64(i*8), B: make([]byte, 8)}
		}
		p.seg.run(t.Context(), ops, done%1000 == 0)
		for _, op := range ops {
			if op.Err != nil {
				t.Fatal(op.Err)
			}
		}
	}
	settled(t, func() bool { return p.target.Conns() == 0 && files() <= before && runtime.NumGoroutine() <= running })
	if got := p.dials.Load(); got < n {
		t.Errorf("%d connections", got)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// settled waits for what ends by itself.
func settled(t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("something is left")
		}
	}
}

func TestHeadersAreLittleEndian(t *testing.T) {
	var b [headerLen]byte
	header{addr: 0x0102030405060708, size: 0x1112131415161718, acked: true}.put(&b)
	if binary.BigEndian.Uint64(b[:]) != 0x1817161514131211 || binary.BigEndian.Uint64(b[8:]) != 0x0807060504030201 || b[16] != 0x80 {
		t.Errorf("% x", b)
	}
}
