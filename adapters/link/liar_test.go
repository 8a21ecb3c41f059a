package link

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// liar is a listed peer that dialled b and proved itself, and whose lanes the test
// speaks for: it gets b's requests and answers what the test wants.
type liar struct {
	t     *testing.T
	lane  [2]*hello
	says  func(x *liar, f proto.Frame) []byte // to what is neither OPEN nor PING
	error chan wire.Code                      // what b said with ERROR, or LANE_LOST
}

// everyLink runs f for each transport, with b and the configuration of a peer that
// may dial it.
func everyLink(t *testing.T, f func(t *testing.T, b *side, dialler *Peer, ns wire.Namespace)) {
	for _, via := range []string{viaTCP, viaTLS, viaUnix} {
		t.Run(via, func(t *testing.T) {
			noLeaks(t)
			listen := map[string]string{
				viaTCP: "tcp://127.0.0.1:0", viaTLS: "tls://127.0.0.1:0", viaUnix: "unix://" + t.TempDir() + "/s",
			}[via]
			secure := func(*Config, string) {}
			if via == viaTLS {
				ca := newAuthority(t)
				secure = func(c *Config, name string) { c.Insecure, c.TLS = false, ca.issue(name, "t") }
			}
			b := start(t, 2, 20, listen, func(c *Config) {
				secure(c, "b")
				c.Peers = []PeerConfig{{Name: "liar"}}
			})
			a := start(t, 7, 70, "", func(c *Config) {
				c.Name = "liar"
				secure(c, "liar")
			})
			ns, err := b.ns.Add(testManifest("t"))
			if err != nil {
				t.Fatal(err)
			}
			f(t, b, newPeer(a.Node, PeerConfig{Name: "b", Addr: b.addr, Tenants: []string{"t"}}), ns)
		})
	}
}

// lie dials lanes 0 and 1, and answers what b asks over them.
func lie(t *testing.T, p *Peer, says func(x *liar, f proto.Frame) []byte) *liar {
	t.Helper()
	x := &liar{t: t, says: says, error: make(chan wire.Code, 2)}
	var session [16]byte
	for i := range x.lane {
		h, _, theirs, err := p.dialLane(session, uint8(i))
		if err != nil {
			t.Fatal(err)
		}
		session = theirs.Session
		_ = h.base.SetDeadline(time.Time{})
		x.lane[i] = h
	}
	done := make(chan struct{}, len(x.lane))
	for _, h := range x.lane {
		go func() {
			defer func() { done <- struct{}{} }()
			x.serve(h)
		}()
	}
	t.Cleanup(func() {
		for _, h := range x.lane {
			p.node.endOpening(h.base)
			_ = h.base.Close()
		}
		for range x.lane {
			<-done
		}
	})
	return x
}

// serve reads a lane until it ends.
func (x *liar) serve(h *hello) {
	buf := make([]byte, 64<<10)
	for {
		n := min(h.sp.Need(), len(buf))
		if _, err := io.ReadFull(h.conn, buf[:n]); err != nil {
			return
		}
		for b := buf[:n]; len(b) > 0; {
			used, ev, err := h.sp.Next(b)
			if err != nil {
				x.t.Errorf("b sends what is malformed: %v", err)
				return
			}
			b = b[used:]
			if ev.Kind != proto.EventMessage {
				continue
			}
			var answer []byte
			switch ev.Frame.Type {
			case proto.TypeError:
				m, _ := proto.Parse[proto.Error](ev.Payload)
				x.error <- m.Code
				return
			case proto.TypePing:
				answer = frame(proto.TypeEnd, ev.Frame.Req, proto.End{})
			case proto.TypeOpen:
				answer = frame(proto.TypeOpened, ev.Frame.Req, proto.Opened{NS: 1})
			default:
				answer = x.says(x, ev.Frame)
			}
			if _, err := h.conn.Write(answer); err != nil {
				return
			}
		}
	}
}

func frame(typ proto.Type, req uint64, m proto.Message) []byte {
	return proto.AppendMessage(nil, proto.Frame{Type: typ, Req: req}, m)
}

func frames(all ...[]byte) (out []byte) {
	for _, f := range all {
		out = append(out, f...)
	}
	return out
}

// haveOf describes a body as a holder would.
func haveOf(body []byte) proto.Have {
	head := wire.Header{BodyLen: uint32(len(body)), Tier: wire.ThinkActive, Sum: wire.SumOf(body)}
	return proto.Have{Len: head.BodyLen, Head: [wire.HeaderLen]byte(head.Append(nil)), Slot: 3, Gen: 2, Att: wire.AttestProducer}
}

// told waits for what b said of the lie.
func (x *liar) told() wire.Code {
	select {
	case c := <-x.error:
		return c
	case <-time.After(20 * time.Second):
		return wire.CodeOK
	}
}

var liarBody = make([]byte, 1000)

// A HAS whose answer is none of those that the page allows ends its lane with the
// code of the page, and none of its items is there.
func TestAFalseAnswerToHASFindsNothing(t *testing.T) {
	good := haveOf(liarBody)
	with := func(f func(h *proto.Have)) proto.Have { h := good; f(&h); return h }
	table := func(req uint64, h ...proto.Have) []byte { return frame(proto.TypeTable, req, proto.Table{Items: h}) }
	raw := func(req uint64, payload ...byte) []byte {
		return frame(proto.TypeTable, req, rawMessage(payload))
	}
	none := make([]byte, 16)
	lies := map[string]struct {
		answer func(req uint64) []byte
		want   wire.Code
	}{
		"more entries than asked":   {func(req uint64) []byte { return table(req, good, good, good) }, wire.CodeState},
		"fewer entries than asked":  {func(req uint64) []byte { return table(req, good) }, wire.CodeState},
		"no entry":                  {func(req uint64) []byte { return table(req) }, wire.CodeState},
		"a count beyond the bytes":  {func(req uint64) []byte { return raw(req, append(none, 2, 0, 0, 0)...) }, wire.CodeLength},
		"a count beyond the limit":  {func(req uint64) []byte { return raw(req, append(none, 0xff, 0xff, 0xff, 0xff)...) }, wire.CodeLength},
		"bytes behind the entries":  {func(req uint64) []byte { return raw(req, append(none, 0, 0, 0, 0, 9)...) }, wire.CodeLength},
		"a length beyond the block": {func(req uint64) []byte { return table(req, good, with(func(h *proto.Have) { h.Len++ })) }, wire.CodeInvalid},
		"an unknown tier":           {func(req uint64) []byte { return table(req, good, with(func(h *proto.Have) { h.Tier = 3 })) }, wire.CodeInvalid},
		"an unknown attestation":    {func(req uint64) []byte { return table(req, good, with(func(h *proto.Have) { h.Att = 3 })) }, wire.CodeInvalid},
		"a header that is none":     {func(req uint64) []byte { return table(req, good, with(func(h *proto.Have) { h.Head = [32]byte{} })) }, wire.CodeInvalid},
		"TABLE twice":               {func(req uint64) []byte { return frames(table(req, good, good), table(req, good, good)) }, wire.CodeState},
		"END OK without TABLE":      {func(req uint64) []byte { return frame(proto.TypeEnd, req, proto.End{}) }, wire.CodeState},
		"END with more statuses": {func(req uint64) []byte {
			return frames(table(req, good, good), frame(proto.TypeEnd, req, proto.End{Status: make([]wire.Code, 3)}))
		}, wire.CodeState},
		"GRANT":                {func(req uint64) []byte { return frame(proto.TypeGrant, req, proto.Grant{Status: make([]wire.Code, 2)}) }, wire.CodeState},
		"OPENED":               {func(req uint64) []byte { return frame(proto.TypeOpened, req, proto.Opened{NS: 1}) }, wire.CodeState},
		"for another request":  {func(req uint64) []byte { return table(req+2, good, good) }, wire.CodeState},
		"for one of the liars": {func(req uint64) []byte { return table(req+1, good, good) }, wire.CodeState},
	}
	everyLink(t, func(t *testing.T, b *side, dialler *Peer, ns wire.Namespace) {
		for name, c := range lies {
			t.Run(name, func(t *testing.T) {
				x := lie(t, dialler, func(_ *liar, f proto.Frame) []byte {
					if f.Type != proto.TypeHas {
						return nil
					}
					return c.answer(f.Req)
				})
				ready(t, b.Peer("liar"))
				it := []fabric.Item{{NS: ns, Key: key(ns, 0)}, {NS: ns, Key: key(ns, 1)}}
				b.Peer("liar").Find(testContext(t), it)
				if got := x.told(); got != c.want {
					t.Errorf("b says %v, want %v", got, c.want)
				}
				for i := range it {
					if it[i].Err == nil && name != "TABLE twice" && name != "END with more statuses" {
						t.Errorf("item %d is there", i)
					}
				}
			})
		}
		// What is odd and no lie: one place for two keys, and a status of later times.
		lie(t, dialler, func(_ *liar, f proto.Frame) []byte {
			return frames(table(f.Req, good, good, proto.Have{Status: 199}), frame(proto.TypeEnd, f.Req, proto.End{}))
		})
		ready(t, b.Peer("liar"))
		it := []fabric.Item{{NS: ns, Key: key(ns, 0)}, {NS: ns, Key: key(ns, 1)}, {NS: ns, Key: key(ns, 2)}}
		b.Peer("liar").Find(testContext(t), it)
		if it[0].Err != nil || it[1].Err != nil || wire.CodeOf(it[2].Err) != 199 {
			t.Errorf("%v, %v, %v", it[0].Err, it[1].Err, it[2].Err)
		}
	})
}

// rawMessage is a payload as it is.
type rawMessage []byte

func (m rawMessage) Length() int            { return len(m) }
func (m rawMessage) Append(b []byte) []byte { return append(b, m...) }

// A PUSH whose GRANT or what follows is none of those that the page allows ends its
// lane, and the pusher never counts a block as stored.
func TestAFalseGrantStoresNothing(t *testing.T) {
	grant := func(req uint64, codes ...wire.Code) []byte {
		return frame(proto.TypeGrant, req, proto.Grant{Status: codes})
	}
	done := func(req uint64, have ...proto.Have) []byte {
		return frames(frame(proto.TypeTable, req, proto.Table{Items: have}), frame(proto.TypeEnd, req, proto.End{}))
	}
	good := haveOf(liarBody)
	other := good
	other.Head[20] ^= 1
	lies := map[string]struct {
		first, afterCommit func(req uint64) []byte
		want               wire.Code
	}{
		"more items than asked":   {func(req uint64) []byte { return grant(req, 0, 0, 0) }, nil, wire.CodeState},
		"fewer items than asked":  {func(req uint64) []byte { return grant(req, 0) }, nil, wire.CodeState},
		"no item":                 {func(req uint64) []byte { return grant(req) }, nil, wire.CodeState},
		"twice":                   {func(req uint64) []byte { return frames(grant(req, 0, 0), grant(req, 0, 0)) }, nil, wire.CodeState},
		"a count beyond the rest": {func(req uint64) []byte { return frame(proto.TypeGrant, req, rawMessage{2, 0, 0, 0}) }, nil, wire.CodeLength},
		"of another request":      {func(req uint64) []byte { return grant(req+2, 0, 0) }, nil, wire.CodeState},
		"TABLE in its place":      {func(req uint64) []byte { return done(req, good, good) }, nil, wire.CodeState},
		"END OK in its place":     {func(req uint64) []byte { return frame(proto.TypeEnd, req, proto.End{}) }, nil, wire.CodeState},
		"DATA in its place": {func(req uint64) []byte {
			return append(proto.AppendData(nil, proto.Frame{Req: req}, 0, 4), 1, 2, 3, 4)
		}, nil, wire.CodeFlowViolation},
		"END OK without TABLE": {func(req uint64) []byte { return grant(req, 0, 0) }, func(req uint64) []byte {
			return frame(proto.TypeEnd, req, proto.End{})
		}, wire.CodeState},
		"stored what was not granted": {func(req uint64) []byte { return grant(req, 0, wire.CodeFull) }, func(req uint64) []byte {
			return done(req, good, good)
		}, wire.CodeInvalid},
		"stored another block": {func(req uint64) []byte { return grant(req, 0, 0) }, func(req uint64) []byte {
			return done(req, good, other)
		}, wire.CodeInvalid},
		"stored more": {func(req uint64) []byte { return grant(req, 0, 0) }, func(req uint64) []byte {
			return done(req, good, good, good)
		}, wire.CodeState},
	}
	everyLink(t, func(t *testing.T, b *side, dialler *Peer, ns wire.Namespace) {
		for name, c := range lies {
			t.Run(name, func(t *testing.T) {
				x := lie(t, dialler, func(_ *liar, f proto.Frame) []byte {
					switch {
					case f.Type == proto.TypePush:
						return c.first(f.Req)
					case f.Type == proto.TypeCommit && c.afterCommit != nil:
						return c.afterCommit(f.Req)
					}
					return nil
				})
				ready(t, b.Peer("liar"))
				it := make([]fabric.Item, 2)
				for i := range it {
					it[i] = fabric.Item{NS: ns, Key: key(ns, i), M: payload(t, wire.ThinkActive, liarBody)}
				}
				b.Peer("liar").Push(testContext(t), it)
				if got := x.told(); got != c.want {
					t.Errorf("b says %v, want %v", got, c.want)
				}
				for i := range it {
					if it[i].Err == nil {
						t.Errorf("block %d counts as stored", i)
					}
				}
				until(t, func() bool { st := b.Stats(); return st.Calls+st.Refs == 0 && st.CallBytes == 0 })
			})
		}
	})
}

// A side that says GOAWAY in the middle of a load goes on with it; one that says so
// and goes costs the load an error, and what it had got is given back.
func TestGoAwayInTheMiddleOfALoad(t *testing.T) {
	bye := frame(proto.TypeGoAway, 0, proto.GoAway{MS: 1000, Code: wire.CodeDraining})
	body := randomBody(1000)
	for name, stays := range map[string]bool{"and goes on": true, "and goes": false} {
		t.Run("the holder says so "+name, func(t *testing.T) {
			everyLink(t, func(t *testing.T, b *side, dialler *Peer, ns wire.Namespace) {
				half := func(req uint64, from, to int) []byte {
					return append(proto.AppendData(nil, proto.Frame{Req: req}, uint32(from), to-from), body[from:to]...)
				}
				lie(t, dialler, func(x *liar, f proto.Frame) []byte {
					if f.Type != proto.TypePull {
						return nil
					}
					begun := frames(frame(proto.TypeTable, f.Req, proto.Table{Items: []proto.Have{haveOf(body)}}), half(f.Req, 0, 500))
					if _, err := x.lane[1].conn.Write(begun); err != nil {
						return nil
					}
					if _, err := x.lane[0].conn.Write(bye); err != nil {
						return nil
					}
					until(t, func() bool { return b.Peer("liar").Usable(ns) != nil })
					if !stays {
						for _, h := range x.lane {
							_ = h.base.Close()
						}
						return nil
					}
					return frames(half(f.Req, 500, 1000), frame(proto.TypeEnd, f.Req, proto.End{}))
				})
				ready(t, b.Peer("liar"))
				it := []fabric.Item{{NS: ns, Key: key0(ns), M: fabric.Mem{B: make([]byte, wire.HeaderLen+len(body))}}}
				b.Peer("liar").Pull(testContext(t), it)
				if (it[0].Err == nil) != stays {
					t.Errorf("the load: %v", it[0].Err)
				}
				until(t, func() bool { st := b.Stats(); return st.Calls+st.Refs == 0 && st.CallBytes == 0 })
			})
		})
	}
	t.Run("the asker says so", func(t *testing.T) {
		everyLink(t, func(t *testing.T, b *side, dialler *Peer, ns wire.Namespace) {
			b.store.Add(ns, key0(ns), wire.OutputCritical, randomBody(8<<20)) // more than the sockets hold
			h, _, theirs, err := dialler.dialLane([16]byte{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			data, _, _, err := dialler.dialLane(theirs.Session, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range []*hello{h, data} {
				_ = l.base.SetDeadline(time.Now().Add(30 * time.Second))
				defer func() { dialler.node.endOpening(l.base); _ = l.base.Close() }()
			}
			write := func(c net.Conn, b []byte) {
				if _, err := c.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			write(h.conn, frame(proto.TypeOpen, 1, proto.Open{Manifest: testManifest("t").Append(nil)}))
			await(t, h, proto.TypeOpened)
			write(data.conn, frame(proto.TypePull, 3, proto.Pull{DeadlineMS: 30_000, Items: []proto.Want{{NS: 1, Max: 8 << 20, Key: key0(ns)}}}))
			until(t, func() bool { return b.Stats().Served == 1 })
			write(h.conn, bye)
			if n := await(t, data, proto.TypeEnd); n != 8<<20 {
				t.Errorf("%d bytes came", n)
			}
			until(t, func() bool { _, _, leases, pins := b.store.Counts(); return leases+pins+b.Stats().Served == 0 })
		})
	})
}

// await reads a lane up to a message, and counts the bytes of bodies.
func await(t *testing.T, h *hello, typ proto.Type) (bodies int) {
	t.Helper()
	buf := make([]byte, 64<<10)
	for {
		n := min(h.sp.Need(), len(buf))
		if _, err := io.ReadFull(h.conn, buf[:n]); err != nil {
			t.Fatalf("before %v: %v", typ, err)
		}
		for b := buf[:n]; len(b) > 0; {
			used, ev, err := h.sp.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			b = b[used:]
			switch {
			case ev.Kind == proto.EventBytes:
				bodies += len(ev.Payload)
			case ev.Kind == proto.EventMessage && ev.Frame.Type == typ:
				return bodies
			case ev.Kind == proto.EventMessage && ev.Frame.Type == proto.TypeError:
				m, err := proto.Parse[proto.Error](ev.Payload)
				t.Fatal(errors.Join(err, m.Code))
			}
		}
	}
}

// A load that lost its lanes waits a moment for others, but not for a peer that had
// said that it leaves.
func TestNobodyWaitsForAPeerThatHasLeft(t *testing.T) {
	for name, leaves := range map[string]bool{"it said so": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, 1, 10, "", nil)
				s := bare(n, true)
				here, there := net.Pipe()
				bareLane(t, s, 0, here, (*lane).writer)
				if leaves {
					if _, err := there.Write(frame(proto.TypeGoAway, 0, proto.GoAway{MS: 1000, Code: wire.CodeDraining})); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				s.drop(wire.CodeLaneLost)
				_ = there.Close()
				began := time.Now()
				b := &batch{p: newPeer(n.Node, PeerConfig{Name: "peer"}), s: s}
				if b.move(t.Context(), nil, nil) != nil {
					t.Error("it goes on over a session that is gone")
				}
				if took := time.Since(began); (took == 0) != leaves {
					t.Errorf("it waited for %v", took)
				}
				synctest.Wait()
				n.stop(t)
			})
		})
	}
}
