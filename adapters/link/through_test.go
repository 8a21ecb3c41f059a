package link

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// chain is a gate between those that bring blocks to it and a far node to which it sends
// them on while they come.
type chain struct {
	t     *testing.T
	gate  *side
	far   *side // nil: the test is the far end
	ns    wire.Namespace
	toFar *Peer
	ca    *authority   // nil: no TLS
	jump  atomic.Int64 // by which the gate's clock is ahead

	running sync.WaitGroup
	mu      sync.Mutex
	ended   []error // of the Streams
}

// newChain makes a gate that lists the peers that bring, and a far node that listens at
// listen; by TLS the gate does too. Without real the far peer dials by itself.
func newChain(t *testing.T, listen string, real bool) *chain {
	t.Helper()
	noLeaks(t)
	c := &chain{t: t}
	g := &scripted{}
	g.through = func(b fabric.Brought, x fabric.Coming) *fabric.Growing {
		var grow *fabric.Growing
		grow = fabric.NewGrowing(func() { c.running.Go(func() { c.stream(b, x, grow) }) })
		return grow
	}
	far, near := PeerConfig{Name: "far"}, "tcp://127.0.0.1:0"
	if strings.HasPrefix(listen, "tls:") {
		c.ca, near = newAuthority(t), listen
	}
	if real {
		c.far = start(t, 3, 30, listen, func(cfg *Config) {
			cfg.Name, cfg.TLS = "far", c.certificate("far")
			cfg.Peers, cfg.Standing = []PeerConfig{{Name: "agent2"}}, -1 // what is reserved is of a push
		})
		far.Addr = c.far.addr
	}
	began := time.Now()
	c.gate = start(t, 2, 20, near, func(cfg *Config) {
		cfg.TLS = c.certificate("agent2")
		cfg.Peers, cfg.Gateway, cfg.Standing = []PeerConfig{{Name: "agent1"}, {Name: "liar"}, far}, g, -1
		cfg.Clock = func() time.Duration { return 1000*time.Hour + time.Since(began) + time.Duration(c.jump.Load()) }
	})
	t.Cleanup(c.running.Wait)
	var err error
	if c.ns, err = c.gate.ns.Add(testManifest("t")); err != nil {
		t.Fatal(err)
	}
	c.toFar = c.gate.Peer("far")
	if real {
		ready(t, c.toFar)
	}
	return c
}

// certificate is a node's, where the chain has TLS.
func (c *chain) certificate(name string) *TLS {
	if c.ca == nil {
		return nil
	}
	return c.ca.issue(name, "t")
}

func (c *chain) stream(b fabric.Brought, x fabric.Coming, grow *fabric.Growing) {
	ctx, cancel := context.WithTimeout(fabric.WithHops(fabric.WithClass(context.Background(), fabric.ClassNormal), 1), 30*time.Second)
	defer cancel()
	it := fabric.Item{NS: b.NS, Key: b.Key, Head: x.Head, Att: x.Att, M: fabric.Mem{B: x.Body}}
	c.toFar.Stream(ctx, &it, grow)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, it.Err)
}

// streamed waits until n Streams have ended, and returns how.
func (c *chain) streamed(n int) []error {
	c.t.Helper()
	var out []error
	until(c.t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		out = c.ended
		return len(out) == n
	})
	return out
}

// quiet demands that nothing runs at either node, and nothing is held but n blocks.
func (c *chain) quiet(n int) {
	c.t.Helper()
	for _, s := range []*side{c.gate, c.far} {
		if s == nil {
			continue
		}
		until(c.t, func() bool {
			st := s.Stats()
			_, reserved, leases, pins := s.store.Counts()
			return st.Calls+st.Served+st.Refs+reserved+leases+pins == 0 && st.CallBytes+st.ServedBytes == 0
		})
		if got, _, _, _ := s.store.Counts(); got != n {
			c.t.Errorf("%d blocks are there, want %d", got, n)
		}
	}
}

// bringer is a node that pushes to the gate.
func (c *chain) bringer() *Peer {
	c.t.Helper()
	a := start(c.t, 1, 10, "", func(cfg *Config) {
		cfg.Peers, cfg.TLS = []PeerConfig{{Name: "agent2", Addr: c.gate.addr}}, c.certificate("agent1")
	})
	if _, err := a.ns.Add(testManifest("t")); err != nil {
		c.t.Fatal(err)
	}
	p := a.Peer("agent2")
	ready(c.t, p)
	return p
}

// What comes is at the far node with the same header and the same body, over each
// transport; several blocks of a push one after the other, and those of several pushes at the
// same time.
func TestWhatComesGoesOnUnchanged(t *testing.T) {
	for _, via := range []string{"tcp://127.0.0.1:0", "tls://127.0.0.1:0", "unix://" + t.TempDir() + "/s"} {
		t.Run(via[:4], func(t *testing.T) {
			c := newChain(t, via, true)
			p := c.bringer()
			var all sync.WaitGroup
			var mu sync.Mutex
			want := map[wire.Key]fabric.Mem{}
			for k := range 4 {
				all.Go(func() {
					var it []fabric.Item
					for i := range 3 {
						x := fabric.Item{NS: c.ns, Key: key(c.ns, 10*k+i), Tier: wire.ThinkActive, Att: wire.AttestProducer, M: payload(t, wire.ThinkActive, randomBody(1<<20+77*k+i))}
						it = append(it, x)
						mu.Lock()
						want[x.Key] = x.M
						mu.Unlock()
					}
					p.Push(testContext(t), it)
					for i := range it {
						if it[i].Err != nil {
							t.Error(it[i].Err)
						}
					}
				})
			}
			all.Wait()
			for _, err := range c.streamed(12) {
				if err != nil {
					t.Error(err)
				}
			}
			for k, m := range want {
				it := []fabric.Item{{NS: c.ns, Key: k, M: fabric.Mem{B: make([]byte, len(m.B))}}}
				if c.toFar.Pull(testContext(t), it); it[0].Err != nil || !bytes.Equal(it[0].M.B, m.B) {
					t.Errorf("%v: %v", k, it[0].Err)
				}
			}
			c.quiet(12)
		})
	}
}

// raw is a listed peer whose lanes the test writes itself.
type raw struct {
	c      *chain
	lane   [2]*hello
	closed bool
}

func (c *chain) raw() *raw {
	c.t.Helper()
	a := start(c.t, 7, 70, "", func(cfg *Config) { cfg.Name = "liar" })
	d := newPeer(a.Node, PeerConfig{Name: "b", Addr: c.gate.addr, Tenants: []string{"t"}})
	x := &raw{c: c}
	var session [16]byte
	for i := range x.lane {
		h, _, theirs, err := d.dialLane(session, uint8(i))
		if err != nil {
			c.t.Fatal(err)
		}
		session = theirs.Session
		_ = h.base.SetDeadline(time.Now().Add(30 * time.Second))
		x.lane[i] = h
		c.t.Cleanup(func() { d.node.endOpening(h.base); _ = h.base.Close() })
	}
	x.write(0, frame(proto.TypeOpen, 1, proto.Open{Manifest: testManifest("t").Append(nil)}))
	await(c.t, x.lane[0], proto.TypeOpened)
	return x
}

func (x *raw) write(i int, b []byte) {
	x.c.t.Helper()
	if _, err := x.lane[i].conn.Write(b); err != nil {
		x.c.t.Fatal(err)
	}
}

// push begins a push of a body, and waits for GRANT.
func (x *raw) push(req uint64, body []byte) {
	x.c.t.Helper()
	h := wire.Header{BodyLen: uint32(len(body)), Tier: wire.ThinkActive, Sum: wire.SumOf(body)}
	x.write(1, proto.AppendMessage(nil, proto.Frame{Type: proto.TypePush, Class: proto.ClassNormal, Req: req}, proto.Push{DeadlineMS: 30_000, Items: []proto.PushItem{{
		NS: 1, Key: key(x.c.ns, int(req)), Have: proto.Have{Tier: h.Tier, Att: wire.AttestProducer, Len: h.BodyLen, Head: [wire.HeaderLen]byte(h.Append(nil))},
	}}}))
	await(x.c.t, x.lane[1], proto.TypeGrant)
}

func (x *raw) closes() {
	x.closed = true
	for _, h := range x.lane {
		_ = h.base.Close()
	}
}

// data sends bytes from, to of a body.
func (x *raw) data(req uint64, body []byte, from, to int) {
	x.c.t.Helper()
	for at := from; at < to; at += proto.MaxChunk {
		n := min(proto.MaxChunk, to-at)
		x.write(1, append(proto.AppendData(nil, proto.Frame{Class: proto.ClassNormal, Req: req}, uint32(at), n), body[at:at+n]...))
	}
}

// arriving waits until the far node has got some of a body.
func (c *chain) arriving(n int) {
	c.t.Helper()
	until(c.t, func() bool { return c.far.Stats().BytesIn >= uint64(n) || c.gate.Stats().BytesOut >= uint64(n) })
}

// A peer that lies about a body, or goes in the middle of one, or stands still: the far node
// gets bytes, and never COMMIT. It does not even count a body that failed its check. Nothing
// is left at either node.
func TestABodyThatIsNoneIsNeverCommitted(t *testing.T) {
	const size = 3 << 20
	body := randomBody(size)
	for name, lie := range map[string]func(x *raw){
		"a wrong byte": func(x *raw) {
			other := bytes.Clone(body)
			other[size/2] ^= 1
			x.data(3, other, 0, size)
			x.write(1, frame(proto.TypeCommit, 3, proto.Empty{}))
			await(x.c.t, x.lane[1], proto.TypeEnd)
		},
		"no COMMIT": func(x *raw) {
			x.data(3, body, 0, size)
			x.c.arriving(size)
			x.write(1, frame(proto.TypeAbort, 3, proto.Empty{}))
		},
		"killed in mid-body": func(x *raw) {
			x.data(3, body, 0, size/2)
			x.c.arriving(size / 4)
			x.closes()
		},
		"taken back": func(x *raw) {
			x.data(3, body, 0, size/2)
			x.c.arriving(size / 4)
			x.write(1, frame(proto.TypeAbort, 3, proto.Empty{}))
			await(x.c.t, x.lane[1], proto.TypeEnd)
		},
		"stands still": func(x *raw) {
			x.data(3, body, 0, size/2)
			x.c.arriving(size / 2)
			x.c.jump.Store(int64(proto.NoProgress + time.Second))
			await(x.c.t, x.lane[1], proto.TypeEnd)
			x.closes() // it answers no PING
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChain(t, "tcp://127.0.0.1:0", true)
			x := c.raw()
			x.push(3, body)
			lie(x)
			if err := c.streamed(1)[0]; err == nil {
				t.Error("it is said to have arrived")
			}
			c.quiet(0)
			if n := c.far.Stats().ChecksumFailures; n != 0 {
				t.Errorf("the far node was asked to publish: %d bodies failed there", n)
			}
			if n := c.gate.Stats().ChecksumFailures; (n == 1) != (name == "a wrong byte") {
				t.Errorf("%d bodies failed at the gate", n)
			}
			// The way is free for the next one.
			if !x.closed {
				x.push(5, body)
				x.data(5, body, 0, size)
				x.write(1, frame(proto.TypeCommit, 5, proto.Empty{}))
				if err := c.streamed(2)[1]; err != nil {
					t.Error(err)
				}
				c.quiet(1)
			}
		})
	}
}

// A far node that grants and then takes nothing, or never grants, does not hold up who
// brings: the push is acknowledged while the far node hangs. Its own push ends in time, for the
// peer's fault, and leaves nothing behind.
func TestAFarNodeThatHangsHoldsUpNobody(t *testing.T) {
	for _, grants := range []bool{true, false} {
		c := newChain(t, "", false)
		farNode := start(t, 9, 90, "", func(cfg *Config) { cfg.Name = "far" })
		hang := make(chan struct{})
		lie(t, newPeer(farNode.Node, PeerConfig{Name: "b", Addr: c.gate.addr, Tenants: []string{"t"}}), func(x *liar, f proto.Frame) []byte {
			if f.Type != proto.TypePush || !grants {
				return nil
			}
			if _, err := x.lane[1].conn.Write(frame(proto.TypeGrant, f.Req, proto.Grant{Status: []wire.Code{wire.CodeOK}})); err != nil {
				t.Error(err)
			}
			<-hang // it reads nothing more
			return nil
		})
		ready(t, c.toFar)
		p := c.bringer()
		it := pushed(t, c.ns, 0, 8)
		p.Push(testContext(t), it)
		for i := range it {
			if it[i].Err != nil {
				t.Errorf("block %d: %v", i, it[i].Err)
			}
		}
		if n, _, _, _ := c.gate.store.Counts(); n != 8 {
			t.Errorf("%d blocks are at the gate", n)
		}
		c.mu.Lock()
		for _, err := range c.ended {
			if err == nil {
				t.Error("a block has arrived at a node that takes nothing")
			}
		}
		c.mu.Unlock()
		c.jump.Store(int64(proto.NoProgress + time.Second))
		for _, err := range c.streamed(8) {
			if errors.Is(err, fabric.ErrStarved) || !errors.Is(err, wire.CodeNoProgress) && !errors.Is(err, wire.CodeBusy) {
				t.Errorf("grants %v: %v", grants, err)
			}
		}
		close(hang)
		if st := c.gate.Stats(); st.Refs != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// Stream says what is wrong with what it is asked for, and sends nothing then.
func TestStreamChecksWhatItIsAskedFor(t *testing.T) {
	c := newChain(t, "tcp://127.0.0.1:0", true)
	body := randomBody(1000)
	head := wire.Header{BodyLen: 1000, Tier: wire.ThinkActive, Sum: wire.SumOf(body)}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, x := range map[string]struct {
		ctx  context.Context
		to   fabric.Streamer
		it   fabric.Item
		want wire.Code
	}{
		"a length":       {t.Context(), c.toFar, fabric.Item{NS: c.ns, Key: key0(c.ns), Head: head, M: fabric.Mem{B: body[:999]}}, wire.CodeInvalid},
		"a namespace":    {t.Context(), c.toFar, fabric.Item{Key: key0(c.ns), Head: head, M: fabric.Mem{B: body}}, wire.CodeNSUnknown},
		"a context":      {over, c.toFar, fabric.Item{NS: c.ns, Key: key0(c.ns), Head: head, M: fabric.Mem{B: body}}, wire.CodeCancelled},
		"nobody to take": {t.Context(), start(t, 8, 80, "", nil).Group(), fabric.Item{NS: c.ns, Key: key0(c.ns), Head: head, M: fabric.Mem{B: body}}, wire.CodeUnreachable},
	} {
		x.to.Stream(x.ctx, &x.it, fabric.NewGrowing(func() {}))
		if wire.CodeOf(x.it.Err) != x.want {
			t.Errorf("%s: %v, want %v", name, x.it.Err, x.want)
		}
	}
	it := fabric.Item{NS: c.ns, Key: key0(c.ns), Head: head, Att: wire.AttestProducer, M: fabric.Mem{B: body}}
	grow := fabric.NewGrowing(func() {})
	grow.Came(1000)
	grow.Prove(wire.Hash(body))
	grow.End(nil)
	if c.gate.Group().Stream(t.Context(), &it, grow); it.Err != nil || it.H == (fabric.Handle{}) || it.Via != "tcp" {
		t.Errorf("%+v", it)
	}
	grow = fabric.NewGrowing(func() {})
	grow.Came(1000)
	grow.End(nil) // without its proof
	it.Key = key(c.ns, 5)
	if c.toFar.Stream(t.Context(), &it, grow); wire.CodeOf(it.Err) != wire.CodeCancelled {
		t.Errorf("without proof: %v", it.Err)
	}
	until(t, func() bool { n, reserved, _, _ := c.far.store.Counts(); return n == 1 && reserved == 0 })
}
