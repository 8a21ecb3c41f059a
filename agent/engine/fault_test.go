package engine_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// conversation is one of each message that an engine sends, behind HELLO.
func conversation() []byte {
	want := []link.Want{{Key: keyOf("a")}, {Key: keyOf("b")}}
	b := message(link.TypeOpen, 1, link.Open{Manifest: manifest("acme").Append(nil)})
	b = append(b, message(link.TypePut, 3, link.Put{DeadlineMS: 1000, Items: []link.PutItem{{Len: 100, Key: keyOf("a"), Req: 1}}})...)
	b = append(b, message(link.TypeHas, 5, link.Has{DeadlineMS: 1000, Items: want})...)
	b = append(b, message(link.TypeAcquire, 7, link.Acquire{DeadlineMS: 1000, LeaseMS: 1000, Items: want})...)
	b = append(b, message(link.TypeRenew, 9, link.Renew{MS: 5})...)
	b = append(b, message(link.TypeRelease, 11, link.Release{Leases: [][16]byte{{1}}})...)
	b = append(b, message(link.TypeBegin, 13, link.Begin{Req: 1, ID: "x", Model: "m", Prompt: []int32{1, 2}})...)
	b = append(b, message(link.TypeTokens, 0, link.Tokens{Req: []uint32{1}, N: []uint8{1}, Tok: []int32{5}})...)
	b = append(b, message(link.TypeFinish, 15, link.Finish{Req: 1})...)
	b = append(b, message(link.TypeCancel, 99, link.Empty{})...)
	b = append(b, message(link.TypeMap, 17, link.Map{})...)
	return append(b, message(link.TypePing, 19, link.Empty{})...)
}

func TestConversationIsAnswered(t *testing.T) {
	n := startNode(t, nil)
	r := n.greeted(t)
	r.write(conversation())
	for req := uint64(1); req <= 19; req += 2 {
		f := r.next()
		for f.f.Type != link.TypeEnd {
			f = r.next()
		}
		e := r.end(f, req)
		want := wire.CodeOK
		if req == 9 {
			want = wire.CodeLeaseLost
		}
		if e.Code != want {
			t.Errorf("request %d ended %s, want %s", req, e.Code, want)
		}
	}
}

// Every place at which an engine can die in what it sends.
func TestTruncatedAtEveryByte(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.StagingBytes = 64 << 10 })
	other, ns := n.open(t)
	all := append(hello(), conversation()...)
	for cut := 0; cut < len(all); cut++ {
		r := n.raw(t)
		r.write(all[:cut])
		if err := r.c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for {
			f, err := r.read()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				break
			}
			if f.f.Type == link.TypeError {
				e, _ := link.Parse[link.Error](f.p)
				t.Fatalf("cut at %d: ERROR %s for a clean prefix", cut, e.Code)
			}
		}
		r.c.Close()
		n.wait(1)
	}
	st := n.store.Stats()
	if st.Leases != 0 || st.Reserved != 0 || st.StagingBytes != 0 || st.Leaked != 0 {
		t.Errorf("held by dead sessions: %d leases, %d reservations, %d staging bytes, %d leaked", st.Leases, st.Reserved, st.StagingBytes, st.Leaked)
	}
	acquire(t, other, ns, client.AcquireOptions{}, "a").Release() // not disturbed
}

// Every byte is covered by a checksum, so each flip is found and ends that
// session only, with one code.
func TestFlippedAtEveryByte(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.StagingBytes = 64 << 10 })
	other, _ := n.open(t)
	all := append(hello(), conversation()...)
	for at := range all {
		bad := append([]byte(nil), all...)
		bad[at] ^= 0x41
		r := n.raw(t)
		r.write(bad)
		if at < len(hello()) {
			// A damaged header of the first frame is no HELLO; its payload has a CRC.
			r.refusedWith(wire.CodeLinkMagic, wire.CodeCRC)
		} else {
			r.refusedWith(wire.CodeCRC)
		}
		r.c.Close()
		n.wait(1)
	}
	if err := other.Ping(ctx); err != nil {
		t.Error(err)
	}
	if got := n.srv.Stats().Refused; got != uint64(len(all)) {
		t.Errorf("%d refusals counted, want %d", got, len(all))
	}
}

func TestUnknownTypeIsAnsweredAndTheSessionStays(t *testing.T) {
	n := startNode(t, nil)
	r := n.greeted(t)
	for i, typ := range []link.Type{200, link.TypeWindow, link.TypePull, link.TypeStat} {
		req := uint64(2*i + 1)
		switch typ {
		case link.TypeWindow:
			r.write(message(typ, req, link.WindowReq{Len: []uint32{1}}))
		case link.TypePull:
			r.write(message(typ, req, link.Pull{DeadlineMS: 1}))
		case link.TypeStat:
			r.write(message(typ, req, link.Has{DeadlineMS: 1}))
		default:
			r.write(message(typ, req, link.Empty{}))
		}
		if e := r.end(r.next(), req); e.Code != wire.CodeUnsupported {
			t.Errorf("%s: %s", typ, e.Code)
		}
	}
	r.write(message(link.TypePing, 99, link.Empty{}))
	r.end(r.next(), 99)
	r.write(link.AppendMessage(nil, link.Frame{Type: 200, Req: 101, Flags: link.FlagCritical}, link.Empty{}))
	r.refusedWith(wire.CodeUnsupported)
}

func TestMessagesOutOfPlaceEndTheSession(t *testing.T) {
	n := startNode(t, nil)
	for name, c := range map[string]struct {
		bytes []byte
		code  wire.Code
	}{
		"even request":      {message(link.TypePing, 2, link.Empty{}), wire.CodeState},
		"request 0":         {message(link.TypePing, 0, link.Empty{}), wire.CodeState},
		"second HELLO":      {append([]byte(nil), hello()...), wire.CodeState},
		"END":               {message(link.TypeEnd, 1, link.End{}), wire.CodeState},
		"MAP with segments": {message(link.TypeMap, 1, link.Map{Segs: []link.Seg{{ID: 1, Size: 1, Kind: 1}}}), wire.CodeState},
		"DATA":              {append(link.AppendData(nil, link.Frame{Req: 1}, 0, 1), 7), wire.CodeFlowViolation},
		"too long":          {link.Frame{Type: link.TypePing, Req: 1, Len: 5}.Append(nil), wire.CodeLength},
		"tier 3":            {message(link.TypePut, 1, link.Put{DeadlineMS: 1, Items: []link.PutItem{{Tier: 3}}}), wire.CodeInvalid},
	} {
		r := n.greeted(t)
		r.write(c.bytes)
		e := r.refusedWith(c.code)
		if e.Offset < uint64(len(hello())) {
			t.Errorf("%s: fault at byte %d, inside of HELLO", name, e.Offset)
		}
		if name == "tier 3" {
			_, err := link.Parse[link.Put](c.bytes[link.FrameLen : len(c.bytes)-link.TrailerLen])
			inPut, _ := errors.AsType[*link.FrameError](err)
			if want := uint64(len(hello())+link.FrameLen) + inPut.Offset; e.Offset != want {
				t.Errorf("%s: fault at byte %d, want %d", name, e.Offset, want)
			}
		}
	}
}

func TestHelloIsCheckedFirst(t *testing.T) {
	n := startNode(t, nil)
	for name, c := range map[string]struct {
		h    link.Hello
		code wire.Code
	}{
		"version":  {link.Hello{Min: 7, Max: 9, Features: link.FeatureLocal}, wire.CodeLinkVersion},
		"no LOCAL": {link.Hello{Min: 1, Max: 1}, wire.CodeUnsupported},
		"lane":     {link.Hello{Min: 1, Max: 1, Lane: 1, Features: link.FeatureLocal}, wire.CodeState},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.raw(t)
			r.write(message(link.TypeHello, 0, c.h))
			r.refusedWith(c.code)
			n.wait(1)
			n.watch.mu.Lock()
			defer n.watch.mu.Unlock()
			if got := n.watch.refused; len(got) == 0 || got[len(got)-1] != c.code {
				t.Errorf("the observer heard of %v", got)
			}
		})
	}
	t.Run("no HELLO", func(t *testing.T) {
		r := n.raw(t)
		r.write(message(link.TypePing, 1, link.Empty{}))
		r.refusedWith(wire.CodeLinkMagic)
	})
	t.Run("silence", func(t *testing.T) { // takes link.HelloTimeout
		t.Parallel()
		m := startNode(t, nil)
		m.raw(t).refusedWith(wire.CodeHelloTimeout)
	})
}

func TestLimitsOfABatch(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.Items = 3 })
	r, _ := n.opened(t, "acme")
	r.write(message(link.TypeAcquire, 3, link.Acquire{DeadlineMS: 1, Items: make([]link.Want, 4)}))
	if e := r.end(r.next(), 3); e.Code != wire.CodeTooLarge {
		t.Errorf("four items of three: %s", e.Code)
	}
	r.write(message(link.TypePut, 5, link.Put{DeadlineMS: 0}))
	if e := r.end(r.next(), 5); e.Code != wire.CodeDeadline {
		t.Errorf("no time left: %s", e.Code)
	}
	e, ns := n.open(t)
	_, err := e.Acquire(ctx, ns, make([]wire.Key, 4), client.AcquireOptions{})
	is(t, err, wire.CodeTooLarge)
	var in []client.Block // Put cuts by itself
	for i := range 10 {
		in = append(in, client.Block{NS: ns, Key: keyOf(fmt.Sprint(i)), Body: body(1, 10)})
	}
	for _, err := range e.Put(ctx, in) {
		if err != nil {
			t.Error(err)
		}
	}
}

// An engine that asks and never reads must not hold the daemon up.
func TestEngineThatDoesNotReadIsDropped(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.SendTimeout = 20 * time.Millisecond })
	r, _ := n.opened(t, "acme")
	ask := message(link.TypeHas, 3, link.Has{DeadlineMS: 1000, Items: make([]link.Want, 1000)})
	for {
		if _, err := r.c.Write(ask); err != nil {
			break
		}
	}
	n.wait(1)
}

func init() {
	roles["holder"] = holderRole
	roles["putter"] = putterRole
}

// holderRole takes a hold and a timed lease and waits to be killed.
func holderRole(args []string) {
	e, err := client.DialEngine(ctx, args[0], client.Options{})
	childFail(err)
	ns, err := e.Open(ctx, manifest("acme"))
	childFail(err)
	for _, hold := range []bool{true, false} {
		l, err := e.Acquire(ctx, ns, []wire.Key{keyOf("a")}, client.AcquireOptions{Hold: hold})
		childFail(err)
		childFail(l.Blocks[0].Err)
	}
	if args[1] == "close" {
		childFail(e.Close())
	}
	say("holding")
	untilTold()
}

// putterRole puts until it is killed.
func putterRole(args []string) {
	e, err := client.DialEngine(ctx, args[0], client.Options{})
	childFail(err)
	ns, err := e.Open(ctx, manifest("acme"))
	childFail(err)
	b := body(5, 900<<10)
	for i := 0; ; i++ {
		err := e.Put(ctx, []client.Block{{NS: ns, Key: keyOf(fmt.Sprint(args[1], i)), Tier: wire.Tier(i % 3), Body: b}})[0]
		childFail(err)
		if i == 0 {
			say("putting")
		}
	}
}

// A process that still runs may read what it holds, whatever became of its
// socket; one that is gone may not.
func TestHoldsOfAProcessLastUntilItIsGone(t *testing.T) {
	for _, how := range []string{"stay", "close"} {
		n := startNode(t, func(b *blocks.Config, _ *engine.Config) { b.Capacity = 1 << 20 })
		e, ns := n.open(t)
		put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100<<10)})
		c := spawn(t, "holder", n.path, how)
		c.expect(t, "holding")
		if how == "close" {
			n.wait(1)
			st := n.store.Stats()
			if st.Holds != 1 || st.Leases != 1 || st.Orphans != 1 {
				t.Errorf("after the socket: %d holds, %d leases, %d orphans; want the hold alone", st.Holds, st.Leases, st.Orphans)
			}
			for i := range 30 { // more than the arena
				put(t, e, client.Block{NS: ns, Key: keyOf(fmt.Sprint(i)), Body: body(2, 100<<10)})
			}
			acquire(t, e, ns, client.AcquireOptions{}, "a").Release()
			if err := e.Ping(ctx); err != nil { // RELEASE travels in front of it
				t.Fatal(err)
			}
		}
		c.kill()
		if how == "stay" {
			n.wait(1)
		}
		for n.store.Stats().Holds != 0 { // SIGKILL was waited for: the next step sees it
			n.store.Step(blocks.Input{})
		}
		if st := n.store.Stats(); st.Leases != 0 || st.Orphans != 0 || st.Leaked != 0 {
			t.Errorf("after the process: %d leases, %d orphans, %d leaked", st.Leases, st.Orphans, st.Leaked)
		}
	}
}

func TestEngineKilledWhilePuttingLeavesNothing(t *testing.T) {
	n := startNode(t, nil)
	for round := range 5 {
		c := spawn(t, "putter", n.path, fmt.Sprint(round, "/"))
		c.expect(t, "putting")
		c.kill()
		n.wait(1)
		st := n.store.Stats()
		if st.Reserved != 0 || st.StagingBytes != 0 || st.Leases != 0 || st.Quarantined != 0 || st.Leaked != 0 {
			t.Errorf("%d reserved, %d staging bytes, %d leases, %d quarantined, %d leaked", st.Reserved, st.StagingBytes, st.Leases, st.Quarantined, st.Leaked)
		}
	}
	n.store.List(func(v blocks.View) bool {
		if err := n.store.Verify(v); err != nil {
			t.Errorf("%s: %v", v.Key, err)
		}
		return true
	})
}

// Descriptors that an engine sends are dropped by the kernel, not gathered.
func TestDescriptorsFromAnEngineAreNotTaken(t *testing.T) {
	n := startNode(t, nil)
	r := n.greeted(t)
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	if _, _, err := r.c.WriteMsgUnix(message(link.TypePing, 1, link.Empty{}), unix.UnixRights(p[1]), nil); err != nil {
		t.Fatal(err)
	}
	unix.Close(p[1])
	r.end(r.next(), 1)
	// The other end is closed: nobody kept the descriptor that was sent.
	if k, err := unix.Read(p[0], make([]byte, 1)); k != 0 || err != nil {
		t.Errorf("the descriptor still lives: read %d, %v", k, err)
	}
}
