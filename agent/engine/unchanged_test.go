package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// A refused message changes nothing: not the store, not the shares, not what the
// connection has. Each message of LOCAL is sent in each state that an engine's
// connection can be in, in a form that must be refused: END refuses it and all is
// as before, or ERROR ends the connection and all is as if it had just closed.
func TestARefusedMessageChangesNothing(t *testing.T) {
	for _, sc := range scenes {
		t.Run(sc.name, func(t *testing.T) {
			n := startNode(t, func(b *blocks.Config, c *engine.Config) {
				b.Shares.Engine, b.StagingBytes = 0.05, 2<<20
				c.Process = func(socket, _ int) (blocks.Process, error) { return likeItsSocket(socket) }
				c.Limits.Namespaces, c.Limits.Items, c.Limits.Reqs = 1, 4, 1
				c.Scheduler = scheduler.Config{MaxRequests: 1}
			})
			gate := make(chan struct{})
			defer close(gate)
			n.host.mu.Lock()
			n.host.gate = gate
			n.host.mu.Unlock()
			n.hangUp(n.enter(t, scene{set: []step{askRing, putThere}}))
			var closed string
			if !sc.leaves {
				n.hangUp(n.enter(t, sc)) // what a scene stores is there in all rounds
				closed = n.digest()
			}
			var r *raw
			for _, m := range refusals {
				if m.flies && !sc.flies || m.begun && !sc.begun || m.open && sc.closed || m.hello && sc.silent {
					continue // here it would not be refused
				}
				if r == nil || !sc.leaves {
					r = n.enter(t, sc)
				}
				before := n.digest()
				_, _ = r.c.Write(append(slices.Clone(m.frame), message(link.TypePing, pingReq, link.Empty{})...)) // ERROR may be on its way
				if r.untilPing(m) {
					if sc.leaves {
						break // the daemon takes no other
					}
					n.hangUp(r)
					n.same(t, m.name+", and ERROR,", closed, n.digest())
					continue
				}
				n.landed(sc)
				n.same(t, m.name, before, n.digest())
				if !sc.leaves {
					n.hangUp(r)
				}
			}
		})
	}
}

// socketLife is a process that ends when its connection does, and so do its holds.
type socketLife struct{ fd int }

func likeItsSocket(socket int) (blocks.Process, error) {
	fd, err := unix.FcntlInt(uintptr(socket), unix.F_DUPFD_CLOEXEC, 0)
	return socketLife{fd}, err
}

func (p socketLife) Gone() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLRDHUP}}, 0)
	return err == nil && n == 1
}

func (p socketLife) Close() error { return unix.Close(p.fd) }

// landed waits for the flights whose END has come already.
func (n *node) landed(sc scene) {
	want := 0
	if sc.flies {
		want = 1
	}
	for n.srv.Stats().InFlight != want {
		time.Sleep(100 * time.Microsecond)
	}
}

func (n *node) same(t *testing.T, name, before, after string) {
	t.Helper()
	if before != after {
		t.Errorf("%s changed\n%s\nto\n%s", name, before, after)
	}
}

func (n *node) hangUp(r *raw) {
	r.c.Close()
	n.wait(1)
	n.store.Step(blocks.Input{}) // its process is over as well
}

// digest is the whole state that a refusal could change, in words.
func (n *node) digest() string {
	var b strings.Builder
	b.WriteString(n.srv.Digest())
	st := n.store.Stats()
	fmt.Fprintf(&b, "\narena: %d used, %d free, %d of segments, %d of rings, blocks %v with %v, %d reserved, %d leases, %d holds with %d, %d transient, %d quarantined, %d owners, %d leaked; %d namespaces open\n",
		st.Used, st.Free, st.SegmentBytes, st.StagingBytes, st.Blocks, st.BlockBytes, st.Reserved, st.Leases, st.Holds, st.HoldBytes, st.Transient, st.Quarantined, st.Owners, st.Leaked, n.host.open.Load())
	for _, q := range n.store.Quota() {
		fmt.Fprintf(&b, "%s of %s: %d used by %d\n", q.Resource, q.Kind, q.Used, q.Holders)
	}
	var list []string
	n.store.List(func(v blocks.View) bool {
		list = append(list, fmt.Sprintf("block %x of %x, %s, generation %d, %d references\n", v.Key[:4], v.NS[:4], v.Tier, v.Ref.Gen, v.Refs))
		return true
	})
	slices.Sort(list)
	return b.String() + strings.Join(list, "")
}

// step is a message of a scene, which is answered with END OK.
type step struct {
	typ link.Type
	m   link.Message
}

// scene is a state that a connection can be in.
type scene struct {
	name   string
	silent bool // HELLO has not come
	closed bool // no namespace is open
	set    []step
	leaves bool // the daemon drains
	flies  bool // a fetch is in flight
	begun  bool // request 5 runs
}

var (
	acmeWant = func(name string) []link.Want { return []link.Want{{Key: keyOf(name)}} }
	askRing  = step{link.TypeMap, link.Map{Segs: []link.Seg{{Kind: link.SegStaging, Size: 1 << 18}}}}
	putThere = step{link.TypePut, link.Put{DeadlineMS: 9000, Items: []link.PutItem{{Len: 100, Key: keyOf("there")}}}}
	putOne   = step{link.TypePut, link.Put{DeadlineMS: 9000, Items: []link.PutItem{{Len: 100, Tier: wire.OutputCritical, Key: keyOf("staged"), Req: 5}}}}
	beginOne = step{link.TypeBegin, link.Begin{Req: 5, ID: "x", Model: "m", Prompt: []int32{1}}}
	lease    = step{link.TypeAcquire, link.Acquire{DeadlineMS: 9000, LeaseMS: 30000, Items: acmeWant("there")}}
	hold     = step{link.TypeAcquire, link.Acquire{DeadlineMS: 9000, Hold: true, Items: acmeWant("there")}}
)

var scenes = []scene{
	{name: "before HELLO", silent: true},
	{name: "after HELLO", closed: true},
	{name: "a namespace is open"},
	{name: "the ring was sent", set: []step{askRing}},
	{name: "a block was put", set: []step{askRing, putOne}},
	{name: "a lease", set: []step{lease}},
	{name: "a hold and a lease", set: []step{hold, lease}},
	{name: "a request runs", begun: true, set: []step{beginOne, askRing, putOne}},
	{name: "a fetch is in flight", flies: true},
	{name: "the daemon drains", begun: true, set: []step{beginOne, lease}, leaves: true},
}

// enter brings a new connection into a scene.
func (n *node) enter(t *testing.T, sc scene) *raw {
	t.Helper()
	r := n.raw(t)
	if sc.silent {
		return r
	}
	r.write(asking())
	if got := r.next(); got.f.Type != link.TypeHello {
		t.Fatalf("%s instead of HELLO", got.f.Type)
	}
	req := uint64(1)
	ask := func(s step) {
		t.Helper()
		req += 2
		r.write(appendAny(s.typ, req, s.m))
		for {
			if got := r.next(); got.f.Type == link.TypeEnd {
				if e := r.end(got, req); e.Code != wire.CodeOK {
					t.Fatalf("%s in %s: %+v", s.typ, sc.name, e)
				}
				return
			}
		}
	}
	if sc.closed {
		return r
	}
	ask(step{link.TypeOpen, link.Open{Manifest: manifest("acme").Append(nil)}})
	for _, s := range sc.set {
		ask(s)
	}
	if sc.flies {
		r.write(message(link.TypeAcquire, 501, link.Acquire{DeadlineMS: 9000, Items: []link.Want{{Key: keyOf("far"), Flags: link.WantFetch}}}))
		<-n.host.fetching
	}
	if sc.leaves {
		if err := n.srv.Drain(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func appendAny(t link.Type, req uint64, m link.Message) []byte {
	return link.AppendMessage(nil, link.Frame{Type: t, Req: req}, m)
}

const refusedReq, pingReq = 777, 9999

// untilPing reads until a refused message and the PING behind it are answered, or
// the connection ends.
func (r *raw) untilPing(m refusal) (over bool) {
	r.t.Helper()
	for waits := 2; waits > 0; {
		f, err := r.read()
		switch {
		case err != nil: // the end, or a reset where the daemon did not read the PING
			return true
		case f.f.Type == link.TypeEnd && f.f.Req == pingReq:
			if waits--; m.quiet {
				waits--
			}
		case f.f.Type == link.TypeEnd && f.f.Req == refusedReq:
			waits--
			e := r.end(f, refusedReq)
			good := e.Code == wire.CodeOK
			for _, c := range e.Status {
				good = good && c == wire.CodeOK
			}
			if good && !m.ok {
				r.t.Errorf("%s was done", m.name)
			}
		}
	}
	return false
}

// refusal is a message that is refused wherever it may be sent.
type refusal struct {
	name  string
	frame []byte
	ok    bool // END OK: it asks for nothing
	quiet bool // it has no answer
	open  bool // not before a namespace is open
	begun bool // only while request 5 runs
	flies bool // only while a fetch is in flight
	hello bool // only after HELLO
}

// payload is bytes in the place of a message.
type payload []byte

func (p payload) Length() int            { return len(p) }
func (p payload) Append(b []byte) []byte { return append(b, p...) }

var refusals = slices.Concat(refusedByEnd(), []refusal{
	{name: "a request with an even id", frame: appendAny(link.TypeHas, 778, link.Has{DeadlineMS: 9})},
	{name: "PING without an id", frame: appendAny(link.TypePing, 0, link.Empty{})},
	{name: "HELLO again", frame: asking(), hello: true},
	{name: "DATA", frame: append(link.AppendData(nil, link.Frame{Req: refusedReq}, 0, 1), 0)},
	{name: "OPENED", frame: appendAny(link.TypeOpened, refusedReq, link.Opened{})},
	{name: "TABLE", frame: appendAny(link.TypeTable, refusedReq, link.Table{})},
	{name: "END", frame: appendAny(link.TypeEnd, refusedReq, link.End{})},
	{name: "ACQUIRED", frame: appendAny(link.TypeAcquired, refusedReq, link.Acquired{})},
	{name: "PHASE", frame: appendAny(link.TypePhase, 0, link.Phase{})},
	{name: "GOAWAY", frame: appendAny(link.TypeGoAway, 0, link.GoAway{MS: 1})},
	{name: "MAP with a segment", frame: appendAny(link.TypeMap, refusedReq, link.Map{Segs: []link.Seg{{ID: 1, Size: 1, Kind: link.SegBytes}}})},
	{name: "MAP with two rings", frame: appendAny(link.TypeMap, refusedReq, link.Map{Segs: []link.Seg{{Size: 1, Kind: link.SegStaging}, {Size: 1, Kind: link.SegStaging}}})},
	{name: "an unknown type that is critical", frame: link.AppendMessage(nil, link.Frame{Type: 200, Req: refusedReq, Flags: link.FlagCritical}, link.Empty{})},
	{name: "ERROR", frame: appendAny(link.TypeError, 0, link.Error{Code: wire.CodeInternal})},
	{name: "the number of a request that runs", frame: appendAny(link.TypePing, 501, link.Empty{}), flies: true},
}, malformed())

// refusedByEnd are well-formed requests that are refused, or do nothing.
func refusedByEnd() []refusal {
	item := func(f func(*link.PutItem)) link.Put {
		it := link.PutItem{Len: 10, Key: keyOf("new"), Req: 5}
		f(&it)
		return link.Put{DeadlineMS: 9000, Items: []link.PutItem{it}}
	}
	wants := func(w ...link.Want) []link.Want { return w }
	five := make([]link.Want, 5)
	frame := func(t link.Type, m link.Message) []byte { return appendAny(t, refusedReq, m) }
	return []refusal{
		{name: "OPEN of a foreign tenant", frame: frame(link.TypeOpen, link.Open{Manifest: manifest("nobody").Append(nil)})},
		{name: "OPEN of no manifest", frame: frame(link.TypeOpen, link.Open{Manifest: []byte("tenant=acme\n")})},
		{name: "OPEN of one more", frame: frame(link.TypeOpen, link.Open{Manifest: sized(1).Append(nil)}), open: true},
		{name: "MAP of a ring that is too large", frame: frame(link.TypeMap, link.Map{Segs: []link.Seg{{Size: 1 << 40, Kind: link.SegStaging}}})},
		{name: "PUT without time", frame: frame(link.TypePut, link.Put{Items: []link.PutItem{{Len: 1, Key: keyOf("new")}}})},
		{name: "PUT of too many", frame: frame(link.TypePut, link.Put{DeadlineMS: 9, Items: make([]link.PutItem, 5)})},
		{name: "PUT to no namespace", frame: frame(link.TypePut, item(func(it *link.PutItem) { it.NS = 7 }))},
		{name: "PUT from outside of the ring", frame: frame(link.TypePut, item(func(it *link.PutItem) { it.Off = 1<<20 - 5 }))},
		{name: "PUT from far outside", frame: frame(link.TypePut, item(func(it *link.PutItem) { it.Off = 1<<64 - 5 }))},
		{name: "PUT of more than a block", frame: frame(link.TypePut, item(func(it *link.PutItem) { it.Len = 1<<20 + 1 }))},
		{name: "PUT without a key", frame: frame(link.TypePut, item(func(it *link.PutItem) { it.Key = wire.Key{} }))},
		{name: "PUT above the share", frame: frame(link.TypePut, item(func(it *link.PutItem) { it.Len = 600 << 10 }))},
		{name: "PUT of what is there", frame: frame(link.TypePut, item(func(it *link.PutItem) { it.Key, it.Req = keyOf("there"), 0 }))},
		{name: "HAS without time", frame: frame(link.TypeHas, link.Has{Items: acmeWant("there")})},
		{name: "HAS of too many", frame: frame(link.TypeHas, link.Has{DeadlineMS: 9, Items: five})},
		{name: "HAS of what is not there", frame: frame(link.TypeHas, link.Has{DeadlineMS: 9, Items: acmeWant("none")}), ok: true},
		{name: "ACQUIRE without time", frame: frame(link.TypeAcquire, link.Acquire{Items: acmeWant("there")})},
		{name: "ACQUIRE of too many", frame: frame(link.TypeAcquire, link.Acquire{DeadlineMS: 9, Items: five})},
		{name: "ACQUIRE of what is not there", frame: frame(link.TypeAcquire, link.Acquire{DeadlineMS: 9, Items: acmeWant("none")}), ok: true},
		{name: "ACQUIRE of no namespace", frame: frame(link.TypeAcquire, link.Acquire{DeadlineMS: 9, Items: wants(link.Want{NS: 7, Key: keyOf("there")})}), ok: true},
		{name: "ACQUIRE of an old reference", frame: frame(link.TypeAcquire, link.Acquire{DeadlineMS: 9, Items: wants(link.Want{Slot: 3, Gen: 4444})}), ok: true},
		{name: "ACQUIRE of one fetch more", frame: frame(link.TypeAcquire, link.Acquire{DeadlineMS: 9, Items: wants(link.Want{Key: keyOf("there")}, link.Want{Key: keyOf("far"), Flags: link.WantFetch})}), flies: true},
		{name: "HAS of one fetch more", frame: frame(link.TypeHas, link.Has{DeadlineMS: 9, Items: wants(link.Want{Key: keyOf("far"), Flags: link.WantFetch})}), flies: true},
		{name: "RENEW of no lease", frame: frame(link.TypeRenew, link.Renew{Lease: [16]byte{9}, MS: 9})},
		{name: "RELEASE of no lease", frame: frame(link.TypeRelease, link.Release{Leases: [][16]byte{{9}}}), ok: true},
		{name: "BEGIN of number 0", frame: frame(link.TypeBegin, link.Begin{Model: "m"})},
		{name: "BEGIN twice", frame: frame(link.TypeBegin, link.Begin{Req: 5, Model: "m", Prompt: []int32{9}}), begun: true},
		{name: "BEGIN of one more", frame: frame(link.TypeBegin, link.Begin{Req: 6, Model: "m"}), begun: true},
		{name: "FINISH of nobody", frame: frame(link.TypeFinish, link.Finish{Req: 9}), ok: true},
		{name: "TOKENS of nobody", frame: appendAny(link.TypeTokens, 0, link.Tokens{Req: []uint32{9}, N: []uint8{1}, Tok: []int32{1}}), quiet: true},
		{name: "CANCEL of nothing", frame: appendAny(link.TypeCancel, 4243, link.Empty{}), quiet: true},
		{name: "PULL", frame: frame(link.TypePull, link.Pull{DeadlineMS: 9})},
		{name: "PUSH", frame: frame(link.TypePush, link.Push{DeadlineMS: 9})},
		{name: "WINDOW", frame: frame(link.TypeWindow, link.WindowReq{Len: []uint32{1}})},
		{name: "an unknown type", frame: frame(200, payload("what it says"))},
	}
}

// malformed are messages of an engine with a byte too few, a byte too many, a
// damaged trailer, and values that version 1 does not define.
func malformed() []refusal {
	var out []refusal
	for _, c := range []struct {
		typ link.Type
		req uint64
		m   link.Message
	}{
		{link.TypeOpen, refusedReq, link.Open{Manifest: sized(1).Append(nil)}},
		{link.TypeMap, refusedReq, askRing.m},
		{link.TypePut, refusedReq, putThere.m},
		{link.TypeHas, refusedReq, link.Has{DeadlineMS: 9, Items: acmeWant("there")}},
		{link.TypeAcquire, refusedReq, lease.m},
		{link.TypeRenew, refusedReq, link.Renew{Lease: [16]byte{9}}},
		{link.TypeRelease, refusedReq, link.Release{Leases: [][16]byte{{9}}}},
		{link.TypeBegin, refusedReq, link.Begin{Req: 77, Model: "m", Prompt: []int32{1}}},
		{link.TypeTokens, 0, link.Tokens{Req: []uint32{5}, N: []uint8{1}, Tok: []int32{1}}},
		{link.TypeFinish, refusedReq, link.Finish{Req: 5}},
	} {
		p := payload(c.m.Append(nil))
		flipped := appendAny(c.typ, c.req, p)
		flipped[len(flipped)-1] ^= 1
		out = append(out,
			refusal{name: c.typ.String() + " with a byte too few", frame: appendAny(c.typ, c.req, p[:len(p)-1])},
			refusal{name: c.typ.String() + " with a byte too many", frame: appendAny(c.typ, c.req, append(p[:len(p):len(p)], 0))},
			refusal{name: c.typ.String() + " with a damaged trailer", frame: flipped})
	}
	for _, c := range []struct {
		name string
		typ  link.Type
		m    link.Message
		at   int
		to   byte
	}{
		{"PUT of tier 3", link.TypePut, putThere.m, 8 + 2, 3},
		{"PUT with a reserved byte", link.TypePut, putThere.m, 8 + 3, 1},
		{"ACQUIRE with hold 2", link.TypeAcquire, lease.m, 8, 2},
		{"MAP of kind 4", link.TypeMap, askRing.m, 4 + 4, 4},
		{"MAP of a ring with an id", link.TypeMap, askRing.m, 4, 1},
	} {
		p := payload(c.m.Append(nil))
		p[c.at] = c.to
		out = append(out, refusal{name: c.name, frame: appendAny(c.typ, refusedReq, p)})
	}
	return out
}
