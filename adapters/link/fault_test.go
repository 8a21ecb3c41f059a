package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// gate is a proxy between two agents. It carries limit bytes of each connection
// towards the dialler, and then cuts it or stops carrying.
type gate struct {
	l    net.Listener
	wait sync.WaitGroup

	limit func(conn int) int64 // bytes; below 0: no limit
	stop  bool                 // at the limit: stop carrying instead of cutting

	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func newGate(t *testing.T, to string, limit func(int) int64, stop bool) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{l: l, to: to, limit: limit, stop: stop}
	g.wait.Go(g.accept)
	t.Cleanup(g.close)
	return g
}

func (g *gate) close() {
	_ = g.l.Close()
	g.cut()
	g.wait.Wait()
}

// cut ends every connection.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		_ = c.Close()
	}
}

// lead leads the connections that come from now on elsewhere.
func (g *gate) lead(to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.to = to
}

func (g *gate) accept() {
	for n := 0; ; n++ {
		c, err := g.l.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		up, err := net.Dial("tcp", g.to)
		if err != nil {
			g.mu.Unlock()
			_ = c.Close()
			continue
		}
		g.conns = append(g.conns, c, up)
		g.mu.Unlock()
		limit := g.limit(n)
		g.wait.Go(func() {
			_, _ = io.Copy(up, c)
			_ = up.Close()
		})
		g.wait.Go(func() {
			if limit < 0 {
				_, _ = io.Copy(c, up)
			} else {
				_, _ = io.CopyN(c, up, limit)
			}
			if limit < 0 || !g.stop {
				_ = c.Close()
				_ = up.Close()
			}
		})
	}
}

func hostOf(s *side) string { return s.addr[len("tcp://"):] }

// gated is a pair with a gate between them.
func gated(t *testing.T, limit func(conn int) int64, stop bool) (a, b *side, p *Peer, g *gate) {
	t.Helper()
	noLeaks(t)
	b = start(t, 2, 20, "tcp://127.0.0.1:0", nil)
	g = newGate(t, hostOf(b), limit, stop)
	a = start(t, 1, 10, "", func(c *Config) { c.Peers = []PeerConfig{{Name: "b", Addr: "tcp://" + g.l.Addr().String()}} })
	return a, b, a.Peer("b"), g
}

func pullItems(ns wire.Namespace, sizes ...int) []fabric.Item {
	it := make([]fabric.Item, len(sizes))
	for i, n := range sizes {
		it[i] = fabric.Item{NS: ns, Key: key(ns, i), M: fabric.Mem{B: make([]byte, wire.HeaderLen+n)}}
	}
	return it
}

func TestPullGoesOnAfterALaneWasCut(t *testing.T) {
	// Connections 1 and 2 are the data lanes: both are cut in mid-body.
	a, b, p, _ := gated(t, func(n int) int64 {
		if n == 1 || n == 2 {
			return 700_000
		}
		return -1
	}, false)
	ready(t, p)
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{400_000, 600_000, 10, 900_000}
	for i, n := range sizes {
		b.store.Add(ns, key(ns, i), wire.OutputCritical, randomBody(n))
	}
	it := pullItems(ns, sizes...)
	p.Pull(testContext(t), it)
	for i := range it {
		if it[i].Err != nil {
			t.Errorf("item %d: %v", i, it[i].Err)
		}
		if h, body, err := wire.Decode(it[i].M.B, wire.Strict, wire.MaxBody); err != nil || h != it[i].Head || len(body) != sizes[i] {
			t.Errorf("item %d: %v", i, err)
		}
	}
}

// A peer is killed in mid-pull and comes back at what is the same address for who
// dials it: the pull that ran ends, old references are stale, and blocks are found anew by key.
func TestRestartOnTheSameAddress(t *testing.T) {
	a, b, p, g := gated(t, func(n int) int64 {
		if n == 2 {
			return 500_000
		}
		return -1
	}, true)
	ready(t, p)
	ctx := testContext(t)
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	ref := b.store.Add(ns, key0(ns), wire.OutputCritical, randomBody(900_000))
	s, err := p.session()
	if err != nil {
		t.Fatal(err)
	}
	old := fabric.Item{NS: ns, Key: key0(ns), H: s.handle(ref.Slot, ref.Gen), M: fabric.Mem{B: make([]byte, 1_000_000)}}
	running := []fabric.Item{old}
	var done sync.WaitGroup
	done.Go(func() { p.Pull(fabric.WithClass(ctx, fabric.ClassBulk), running) }) // lane 2
	until(t, func() bool { return b.Stats().BytesOut > 0 })
	b.stop(t)
	g.cut()
	again := start(t, 2, 21, "tcp://127.0.0.1:0", nil)
	body := randomBody(900_000)
	again.store.Add(ns, key0(ns), wire.OutputCritical, body)
	g.lead(hostOf(again))
	done.Wait()
	if err := running[0].Err; !errors.Is(err, wire.CodeLaneLost) && !errors.Is(err, wire.CodeStale) && !errors.Is(err, wire.CodeIncarnation) && !errors.Is(err, wire.CodeUnreachable) {
		t.Errorf("the pull that ran by reference: %v", err)
	}
	until(t, func() bool { i := a.Peers()[0]; return i.Inc == 21 && i.State == StateReady })
	stale := []fabric.Item{old}
	p.Pull(ctx, stale)
	if !errors.Is(stale[0].Err, wire.CodeStale) {
		t.Errorf("an old reference: %v, want STALE", stale[0].Err)
	}
	fresh := pullItems(ns, 900_000)
	p.Pull(ctx, fresh)
	if fresh[0].Err != nil || !bytes.Equal(fresh[0].M.B[wire.HeaderLen:], body) {
		t.Errorf("the same key from the new incarnation: %v", fresh[0].Err)
	}
}

func TestCancelStormOverSocketsComesBackToZero(t *testing.T) {
	a, b, p := pair(t, "tcp://127.0.0.1:0")
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{100_000, 300_000, 50}
	for i, n := range sizes {
		b.store.Add(ns, key(ns, i), wire.OutputCritical, randomBody(n))
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for r := range 25 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration((w*7+r*13)%40)*20*time.Microsecond, cancel)
				if r%3 == 0 {
					push := []fabric.Item{{NS: ns, Key: key(ns, 1000+w*100+r), M: payload(t, wire.ThinkActive, randomBody(200_000))}}
					p.Push(ctx, push)
				} else {
					it := pullItems(ns, sizes...)
					p.Pull(fabric.WithClass(ctx, fabric.Class(r%4)), it)
					for i := range it {
						clear(it[i].M.B)
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	it := pullItems(ns, sizes...)
	p.Pull(testContext(t), it)
	for i := range it {
		if it[i].Err != nil {
			t.Errorf("a pull after the storm: %v", it[i].Err)
		}
	}
	until(t, func() bool {
		_, res, leases, pins := b.store.Counts()
		x, y := a.Stats(), b.Stats()
		return res+leases+pins+x.Calls+x.Refs+x.Waiting+y.Served+y.Refs == 0 && x.CallBytes+y.ServedBytes == 0
	})
}

func TestDrainLetsWhatRunsEnd(t *testing.T) {
	a, b, p := pair(t, "tcp://127.0.0.1:0")
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	b.store.Add(ns, key0(ns), wire.OutputCritical, randomBody(4<<20))
	ctx := testContext(t)
	it := pullItems(ns, 4<<20)
	p.Find(ctx, it)
	var wg sync.WaitGroup
	wg.Go(func() { p.Pull(ctx, it) })
	until(t, func() bool { return b.Stats().RequestsIn >= 2 })
	b.Drain(ctx)
	wg.Wait()
	if it[0].Err != nil {
		t.Errorf("what ran: %v", it[0].Err)
	}
	late := pullItems(ns, 4<<20)
	p.Pull(ctx, late)
	if !errors.Is(late[0].Err, wire.CodeDraining) && !errors.Is(late[0].Err, wire.CodeUnreachable) {
		t.Errorf("what came later: %v", late[0].Err)
	}
	until(t, func() bool { return a.Peers()[0].State == StateDraining })
}

func TestLeasesAreKeptRenewedAndReleased(t *testing.T) {
	a, b, p := pair(t, "tcp://127.0.0.1:0")
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	b.store.Add(ns, key0(ns), wire.OutputCritical, randomBody(500))
	s, err := p.session()
	if err != nil {
		t.Fatal(err)
	}
	lease := leased(t, s, ns)
	if _, _, leases, pins := b.store.Counts(); leases != 1 || pins != 1 {
		t.Errorf("%d leases, %d pins", leases, pins)
	}
	for i, c := range []struct {
		got, want wire.Code
	}{
		{renewed(t, s, lease), wire.CodeOK},
		{released(t, s, lease), wire.CodeOK},
		{renewed(t, s, lease), wire.CodeLeaseLost},
	} {
		if c.got != c.want {
			t.Errorf("step %d: %v, want %v", i, c.got, c.want)
		}
	}
	if _, _, leases, pins := b.store.Counts(); leases != 0 || pins != 0 {
		t.Errorf("after release: %d leases, %d pins", leases, pins)
	}
}

// rawHello is a connection to a node by a pipe, in virtual time.
func rawHello(t *testing.T, f func(t *testing.T, n *side, c net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1, 10, "", nil)
		here, there := net.Pipe()
		s.take(there, viaTCP)
		f(t, s, here)
		_ = here.Close()
		synctest.Wait()
		s.stop(t)
	})
}

// errorOf reads frames until ERROR.
func errorOf(t *testing.T, c net.Conn) proto.Error {
	t.Helper()
	h := hello{conn: c, base: c}
	for {
		_, err := h.receive()
		var re *RemoteError
		if errors.As(err, &re) {
			return proto.Error{Code: re.Code, Offset: re.Offset, Text: re.Text}
		}
		if err != nil {
			t.Fatalf("no ERROR: %v", err)
		}
	}
}

func TestHelloThatIsWrongIsAnsweredWithItsCode(t *testing.T) {
	good := proto.Hello{Min: 1, Max: 1, Agent: agentID(7), Inc: 1, Auth: []proto.TLV{{Type: proto.AuthNone}}}
	frame := func(m proto.Hello) []byte {
		return proto.AppendMessage(nil, proto.Frame{Type: proto.TypeHello, Flags: proto.FlagCritical}, m)
	}
	with := func(f func(*proto.Hello)) proto.Hello { m := good; f(&m); return m }
	for _, c := range []struct {
		name string
		send [][]byte
		want wire.Code
	}{
		{"another protocol", [][]byte{[]byte("GET / HTTP/1.1\r\nHost: example.invalid\r\n\r\n")}, wire.CodeLinkMagic},
		{"another message first", [][]byte{proto.AppendMessage(nil, proto.Frame{Type: proto.TypePing, Req: 1}, proto.Empty{})}, wire.CodeLinkMagic},
		{"a version of the future", [][]byte{frame(with(func(h *proto.Hello) { h.Min, h.Max = 2, 9 }))}, wire.CodeLinkVersion},
		{"no proof that is taken", [][]byte{frame(with(func(h *proto.Hello) { h.Auth = []proto.TLV{{Type: proto.AuthPSK}} }))}, wire.CodeAuth},
		{"a lane of no session", [][]byte{frame(with(func(h *proto.Hello) { h.Lane, h.Session = 1, [16]byte{1} })), frame(with(func(h *proto.Hello) { h.Lane, h.Session = 1, [16]byte{1} }))}, wire.CodeState},
		{"a second HELLO that differs", [][]byte{frame(good), frame(with(func(h *proto.Hello) { h.Inc = 2 }))}, wire.CodeState},
		{"no agent", [][]byte{frame(with(func(h *proto.Hello) { h.Agent = [16]byte{} })), frame(with(func(h *proto.Hello) { h.Agent = [16]byte{} }))}, wire.CodeAuth},
		{"nothing", nil, wire.CodeHelloTimeout},
		{"half a HELLO", [][]byte{frame(good)[:50]}, wire.CodeHelloTimeout},
		{"one HELLO and no more", [][]byte{frame(good)}, wire.CodeHelloTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			rawHello(t, func(t *testing.T, n *side, conn net.Conn) {
				go func() {
					for _, b := range c.send {
						if _, err := conn.Write(b); err != nil {
							return
						}
					}
				}()
				if e := errorOf(t, conn); e.Code != c.want || e.Text == "" {
					t.Errorf("ERROR %v %q, want %v", e.Code, e.Text, c.want)
				}
				if n.Stats().Sessions != 0 {
					t.Error("a session was begun")
				}
			})
		})
	}
}
