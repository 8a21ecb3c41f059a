package link

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// tcpPair is a connection over loopback. buffer bounds what either side's socket
// takes; 0 leaves it to the kernel.
func tcpPair(t *testing.T, buffer int) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if here, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{here, there} {
		narrow(t, c, buffer)
	}
	return here, there
}

// narrow makes a socket take no more than buffer bytes beyond what its peer has
// room for, which is made small, too; less than some segments of loopback would
// make TCP wait for timers.
func narrow(t *testing.T, c net.Conn, buffer int) {
	t.Helper()
	tc, ok := c.(*net.TCPConn)
	if !ok || buffer == 0 {
		return
	}
	if err := errors.Join(tc.SetReadBuffer(128<<10), tc.SetWriteBuffer(buffer)); err != nil {
		t.Fatal(err)
	}
}

// bare is a session without HELLO, whose lanes the test drives.
func bare(n *side, dialler bool) *session { return limited(n, dialler, core.DefaultLimits) }

// limited is one to a peer with some limits.
func limited(n *side, dialler bool, l proto.Limits) *session {
	id := identity{name: "peer", agent: agentID(9), inc: 90, tenants: core.Tenants{All: true}}
	s := n.newSession(newPeer(n.Node, PeerConfig{Name: "peer"}), [16]byte{1}, id, viaTCP, "", dialler, &proto.Hello{Limits: l})
	n.mu.Lock()
	n.sessions[s.id] = s
	n.mu.Unlock()
	return s
}

// bareLane adds a lane, with writer in place of its writer.
func bareLane(t *testing.T, s *session, idx uint8, c net.Conn, writer func(*lane)) *lane {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	cl, err := s.core.AddLane(s.now(), idx, proto.Splitter{Begun: true})
	if err != nil {
		t.Fatal(err)
	}
	l := s.newLane(cl, c, c)
	s.node.running.Add(1)
	l.gone.Add(1)
	go l.reader()
	go writer(l)
	return l
}

// counting is a writer that counts how often it got the right to write.
func counting(writes *atomic.Int64) func(*lane) {
	return func(l *lane) {
		defer l.gone.Done()
		for {
			dead, flushed := l.await()
			if dead || flushed {
				interrupt(l.base)
				return
			}
			writes.Add(1)
			if err := l.out.write(); err != nil {
				interrupt(l.base)
				return
			}
		}
	}
}

// opened opens the test's namespace over a session, and fills the holder.
func opened(t *testing.T, s *session, here, there *side, sizes ...int) (num uint16, ns wire.Namespace, bodies [][]byte) {
	t.Helper()
	ns, err := here.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	if num, err = s.open(testContext(t), ns); err != nil {
		t.Fatal(err)
	}
	for i, n := range sizes {
		bodies = append(bodies, randomBody(n))
		there.store.Add(ns, key(ns, i), wire.OutputCritical, bodies[i])
	}
	return num, ns, bodies
}

func pullCall(num uint16, ns wire.Namespace, sizes ...int) *core.Call {
	c := &core.Call{Type: proto.TypePull}
	for i, n := range sizes {
		c.Items = append(c.Items, core.Item{NS: num, Key: key(ns, i), Room: make([]byte, n)})
	}
	return c
}

func wantBodies(t *testing.T, c *core.Call, bodies [][]byte) {
	t.Helper()
	for i := range c.Items {
		if it := &c.Items[i]; it.Code != wire.CodeOK || !bytes.Equal(it.Room, bodies[i]) {
			t.Errorf("item %d: %v, same bytes: %v", i, it.Code, bytes.Equal(it.Room, bodies[i]))
		}
	}
}

// Neither the request nor the answer of a small pull needs a goroutine that only
// writes.
func TestWhatTheSocketTakesIsWrittenWithoutTheWriter(t *testing.T) {
	noLeaks(t)
	here, there := start(t, 1, 10, "", nil), start(t, 2, 20, "", nil)
	a, b := bare(here, true), bare(there, false)
	var writes atomic.Int64
	for idx := range uint8(2) {
		x, y := tcpPair(t, 0)
		bareLane(t, a, idx, x, counting(&writes))
		bareLane(t, b, idx, y, counting(&writes))
	}
	sizes := []int{4000, 1, 12_000}
	num, ns, bodies := opened(t, a, here, there, sizes...)
	for range 20 {
		c := pullCall(num, ns, sizes...)
		a.call(testContext(t), c)
		wantBodies(t, c, bodies)
	}
	if n := writes.Load(); n != 0 {
		t.Errorf("the writers wrote %d times, want never", n)
	}
}

// With a socket that is full again and again, the right to write goes to and fro between
// callers, readers, workers and the writer, and no byte goes twice or is lost.
func TestDirectWritesAndTheWriterTakeTurns(t *testing.T) {
	noLeaks(t)
	here, there := start(t, 1, 10, "", nil), start(t, 2, 20, "", nil)
	a, b := bare(here, true), bare(there, false)
	var writes atomic.Int64
	for idx := range uint8(2) {
		x, y := tcpPair(t, 64<<10)
		bareLane(t, a, idx, x, counting(&writes))
		bareLane(t, b, idx, y, counting(&writes))
	}
	sizes := []int{100, 300_000, 5000, 40_000, 700_001}
	num, ns, bodies := opened(t, a, here, there, sizes...)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for round := range 5 {
				n := 1 + (w+round)%len(sizes)
				c := pullCall(num, ns, sizes[:n]...)
				c.Class = proto.Class(w % 4)
				a.call(testContext(t), c)
				wantBodies(t, c, bodies)
				push := pushCall(num, ns, 1000+w*10+round, bodies[n-1])
				a.call(testContext(t), push)
				if push.Items[0].Code != wire.CodeOK {
					t.Errorf("push: %v", push.Items[0].Code)
				}
			}
		})
	}
	wg.Wait()
	if writes.Load() == 0 {
		t.Error("the writers never wrote: the sockets were not full")
	}
	until(t, func() bool { return quiet(a) && quiet(b) })
}

func pushCall(num uint16, ns wire.Namespace, i int, body []byte) *core.Call {
	h := wire.Header{BodyLen: uint32(len(body)), Tier: wire.OutputCritical, Sum: wire.SumOf(body)}
	return &core.Call{Type: proto.TypePush, Items: []core.Item{{
		NS: num, Key: key(ns, i), Tier: wire.OutputCritical, Att: wire.AttestProducer, Room: body, Head: [wire.HeaderLen]byte(h.Append(nil)),
	}}}
}

// quiet reports whether a session runs nothing and nobody has the right to write.
func quiet(s *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		if l != nil && l.writing != writingNone {
			return false
		}
	}
	st := s.core.Stats()
	return st.Calls+st.Served+st.Refs+st.Waiting == 0
}

// mute is a peer that speaks frames by hand, on a lane of its own beside those
// of a session, and reads nothing unless told to.
type mute struct {
	t    *testing.T
	conn net.Conn
	req  uint64
}

func (m *mute) send(typ proto.Type, class proto.Class, req uint64, msg proto.Message) {
	m.t.Helper()
	if _, err := m.conn.Write(proto.AppendMessage(nil, proto.Frame{Type: typ, Class: class, Req: req}, msg)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mute) pull(class proto.Class, num uint16, ns wire.Namespace, i, size int) uint64 {
	m.t.Helper()
	m.req += 2
	m.send(proto.TypePull, class, m.req, proto.Pull{DeadlineMS: 30_000, Items: []proto.Want{{NS: num, Max: uint32(size), Key: key(ns, i)}}})
	return m.req
}

// muted is two sessions with lanes 0 and 1, and a mute peer on lane 2 of b.
func muted(t *testing.T, sizes ...int) (a, b *session, m *mute, num uint16, ns wire.Namespace, bodies [][]byte) {
	t.Helper()
	noLeaks(t)
	here, there := start(t, 1, 10, "", nil), start(t, 2, 20, "", nil)
	a, b = bare(here, true), bare(there, false)
	for idx := range uint8(2) {
		x, y := tcpPair(t, 0)
		bareLane(t, a, idx, x, (*lane).writer)
		bareLane(t, b, idx, y, (*lane).writer)
	}
	num, ns, bodies = opened(t, a, here, there, sizes...)
	x, y := tcpPair(t, 64<<10)
	t.Cleanup(func() { _ = x.Close() })
	bareLane(t, b, 2, y, (*lane).writer)
	return a, b, &mute{t: t, conn: x, req: 1<<40 | 1}, num, ns, bodies
}

func served(s *session) core.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Stats()
}

// A holder that cannot get rid of its answers goes on reading: it takes what is
// asked up to its limits, and hears CANCEL. Other lanes do not notice.
func TestAPeerThatDoesNotReadIsStillHeard(t *testing.T) {
	const size, asked = 1 << 20, 40
	a, b, m, num, ns, bodies := muted(t, size)
	var reqs []uint64
	for range asked {
		reqs = append(reqs, m.pull(proto.ClassUrgent, num, ns, 0, size))
	}
	until(t, func() bool { return served(b).Served == asked })
	c := pullCall(num, ns, size)
	a.call(testContext(t), c)
	wantBodies(t, c, bodies)
	for _, r := range reqs[1:] {
		m.send(proto.TypeCancel, proto.ClassUrgent, r, proto.Empty{})
	}
	// The first one keeps the socket full; another may have a frame at hand, that
	// must be finished, and keeps its pin.
	until(t, func() bool { st := served(b); return st.Served <= 2 && st.ServedBytes <= 2*size })
	until(t, func() bool { // it takes as many answers as agreed to wait, and no more
		m.req += 2
		_, err := m.conn.Write(proto.AppendMessage(nil, proto.Frame{Type: proto.TypePing, Req: m.req}, proto.Empty{}))
		return err != nil || b.node.Stats().Refusals > 0
	})
	until(t, func() bool { return b.node.Stats().Refusals == 1 })
	_ = m.conn.Close()
	until(t, func() bool { st := served(b); return st.Served+st.Refs == 0 })
	c = pullCall(num, ns, size)
	a.call(testContext(t), c)
	wantBodies(t, c, bodies)
}

// The reader writes an answer itself until the socket is full, and then reads on:
// a request that is more urgent overtakes the answer at the next frame.
func TestAnUrgentRequestOvertakesAnAnswerUnderWay(t *testing.T) {
	const size = 4 << 20
	_, b, m, num, ns, _ := muted(t, size, 5000)
	bulk := m.pull(proto.ClassBulk, num, ns, 0, size)
	until(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.lanes[2].writing == writingWriter
	})
	urgent := m.pull(proto.ClassUrgent, num, ns, 1, 5000)
	until(t, func() bool { return served(b).Totals.RequestsIn == 2 })
	sp := proto.Splitter{Begun: true}
	buf := make([]byte, 64<<10)
	got := map[uint64]int{}
	var ends []uint64
	for len(ends) < 2 {
		n, err := m.conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		for in := buf[:n]; len(in) > 0; {
			k, ev, err := sp.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			in = in[k:]
			switch {
			case ev.Kind == proto.EventBytes:
				got[ev.Frame.Req] += len(ev.Payload)
			case ev.Kind == proto.EventMessage && ev.Frame.Type == proto.TypeEnd:
				ends = append(ends, ev.Frame.Req)
				if len(ends) == 1 && got[bulk] > 2*proto.MaxChunk {
					t.Errorf("the urgent answer came behind %d bytes of the other", got[bulk])
				}
			}
		}
	}
	if ends[0] != urgent || ends[1] != bulk || got[bulk] != size || got[urgent] != 5000 {
		t.Errorf("ends %v, bytes %v, want %d first", ends, got, urgent)
	}
}

// gatedConn stops each direct write of a lane between the core's word for it and
// its system call, until the test lets it go.
type gatedConn struct {
	syscall.RawConn
	at, pass chan struct{}
}

func (g *gatedConn) Control(f func(fd uintptr)) error {
	g.at <- struct{}{}
	<-g.pass
	return g.RawConn.Control(f)
}

// A call that is cancelled while its bytes are being written comes back when the
// write is over, not before: until then its memory is in use.
func TestCancelDuringADirectWriteWaitsForIt(t *testing.T) {
	noLeaks(t)
	here, there := start(t, 1, 10, "", nil), start(t, 2, 20, "", nil)
	a, b := bare(here, true), bare(there, false)
	x, y := tcpPair(t, 0)
	bareLane(t, a, 0, x, (*lane).writer)
	bareLane(t, b, 0, y, (*lane).writer)
	num, ns, _ := opened(t, a, here, there)
	x, y = tcpPair(t, 0)
	l := bareLane(t, a, 1, x, (*lane).writer)
	gate := &gatedConn{RawConn: l.out.raw, at: make(chan struct{}), pass: make(chan struct{})}
	a.mu.Lock()
	l.out.raw = gate
	a.mu.Unlock()

	body := randomBody(2 * proto.MaxChunk) // more than the frame at hand
	push := pushCall(num, ns, 0, body)
	push.Timeout, push.Done = time.Minute, make(chan struct{})
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		a.mu.Lock()
		a.core.Start(a.now(), push)
		a.unlock()
	}()
	<-gate.at // PUSH, by the caller
	gate.pass <- struct{}{}
	<-asked
	bareLane(t, b, 1, y, (*lane).writer)
	<-gate.at // DATA, by the reader that got GRANT
	a.mu.Lock()
	a.core.Cancel(a.now(), push, wire.CodeCancelled)
	a.unlock()
	select {
	case <-push.Done:
		t.Error("the call came back while its bytes were being written")
	default:
	}
	if st := served(a); st.Refs != 1 {
		t.Errorf("%d uses of memory, want the one of the write", st.Refs)
	}
	gate.pass <- struct{}{}
	go func() { // whatever else goes out
		for {
			select {
			case <-gate.at:
				gate.pass <- struct{}{}
			case <-t.Context().Done():
				return
			}
		}
	}()
	<-push.Done
	clear(body) // with the race detector: nothing reads it any more
	if push.Code != wire.CodeCancelled {
		t.Errorf("the call ended %v", push.Code)
	}
	until(t, func() bool { return quiet(a) && quiet(b) })
	if n, res, _, _ := there.store.Counts(); n != 0 || res != 0 {
		t.Errorf("the holder has %d blocks and %d reservations of a push that was taken back", n, res)
	}
}

// Both sides send to each other over the only data lane, with sockets that hold
// next to nothing: nobody stops reading in order to write.
func TestBothSidesSendAtTheSameTime(t *testing.T) {
	noLeaks(t)
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) { c.Peers = []PeerConfig{{Name: "agent1", Tenants: []string{"t"}}}; c.Lanes = 1 })
	a := start(t, 1, 10, "", func(c *Config) { c.Peers = []PeerConfig{{Name: "b", Addr: b.addr}}; c.Lanes = 1 })
	ready(t, a.Peer("b"))
	ready(t, b.Peer("agent1"))
	for _, n := range []*side{a, b} {
		for _, s := range n.allSessions() {
			s.mu.Lock()
			for _, l := range s.lanes {
				if l != nil {
					narrow(t, l.base, 64<<10)
				}
			}
			s.mu.Unlock()
		}
	}
	const blocks, size = 8, 600_000
	var wg sync.WaitGroup
	for _, d := range []struct {
		from, to *side
		p        *Peer
	}{{b, a, a.Peer("b")}, {a, b, b.Peer("agent1")}} {
		ns, err := d.to.ns.Add(testManifest("t"))
		if err != nil {
			t.Fatal(err)
		}
		sizes := make([]int, blocks)
		for i := range sizes {
			sizes[i] = size
			d.from.store.Add(ns, key(ns, i), wire.OutputCritical, randomBody(size))
		}
		ctx := testContext(t)
		for w := range 3 {
			wg.Go(func() {
				it := pullItems(ns, sizes...)
				d.p.Pull(ctx, it)
				for i := range it {
					if _, body, err := wire.Decode(it[i].M.B, wire.Strict, wire.MaxBody); it[i].Err != nil || err != nil || len(body) != size {
						t.Errorf("pull: %v, %v", it[i].Err, err)
					}
				}
			})
			wg.Go(func() {
				push := make([]fabric.Item, blocks)
				for i := range push {
					k := wire.KeyOf(ns, fmt.Appendf(nil, "from %s %d %d", d.p.Name(), w, i))
					push[i] = fabric.Item{NS: ns, Key: k, Tier: wire.ThinkActive, M: payload(t, wire.ThinkActive, randomBody(size))}
				}
				d.p.Push(ctx, push)
				for i := range push {
					if push[i].Err != nil {
						t.Errorf("push: %v", push[i].Err)
					}
				}
			})
		}
	}
	wg.Wait()
	until(t, func() bool {
		x, y := a.Stats(), b.Stats()
		return x.Calls+x.Served+x.Refs+y.Calls+y.Served+y.Refs == 0
	})
}
