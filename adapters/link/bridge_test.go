package link

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/fabric"
	"meridian/wire"
)

// scripted is a gateway that does what a test says.
type scripted struct {
	refuse func(b fabric.Brought) error
	look   func(ctx context.Context, keys []wire.Key)

	through func(b fabric.Brought, c fabric.Coming) *fabric.Growing

	mu      sync.Mutex
	brought []fabric.Hop
	ends    []error
	looked  int
}

func (g *scripted) Bring(from fabric.Hop, b fabric.Brought) (fabric.Passage, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuse != nil {
		if err := g.refuse(b); err != nil {
			return nil, err
		}
	}
	g.brought = append(g.brought, from)
	return &script{g: g, what: b}, nil
}

// script is a block that a scripted gateway has let in.
type script struct {
	g    *scripted
	what fabric.Brought
	grow *fabric.Growing
}

func (x *script) Through(c fabric.Coming) *fabric.Growing {
	if x.g.through != nil {
		x.grow = x.g.through(x.what, c)
	}
	return x.grow
}

func (x *script) End(err error) {
	x.g.mu.Lock()
	x.g.ends = append(x.g.ends, err)
	x.g.mu.Unlock()
	if x.grow != nil {
		x.grow.End(err)
	}
}

func (g *scripted) Looks(fabric.Hop) bool { return true }

func (g *scripted) Look(ctx context.Context, _ fabric.Hop, _ wire.Namespace, keys []wire.Key) {
	g.mu.Lock()
	g.looked++
	g.mu.Unlock()
	if g.look != nil {
		g.look(ctx, keys)
	}
}

// bridged is a pair whose acceptor has a gateway.
func bridged(t *testing.T, g *scripted) (b *side, p *Peer, ns wire.Namespace) {
	t.Helper()
	noLeaks(t)
	b = start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Peers, c.Gateway = []PeerConfig{{Name: "agent1"}}, g
	})
	a := start(t, 1, 10, "", func(c *Config) { c.Peers = []PeerConfig{{Name: "b", Addr: b.addr}} })
	p = a.Peer("b")
	ready(t, p)
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.ns.Add(testManifest("t")); err != nil {
		t.Fatal(err)
	}
	return b, p, ns
}

func pushed(t *testing.T, ns wire.Namespace, from, to int) (it []fabric.Item) {
	t.Helper()
	for i := from; i < to; i++ {
		it = append(it, fabric.Item{NS: ns, Key: key(ns, i), Tier: wire.ThinkActive, Att: wire.AttestProducer,
			M: payload(t, wire.ThinkActive, bytes.Repeat([]byte{byte(i)}, 3<<20))})
	}
	return it
}

// A block that the gateway refuses is not stored, and its pusher is told the code; the
// others of the batch are. What is here already is brought as well. Each block says how
// many daemons it came through, in one flight too.
func TestAPushGoesByTheGateway(t *testing.T) {
	g := &scripted{}
	b, p, ns := bridged(t, g)
	g.refuse = func(x fabric.Brought) error {
		if x.Key == key(ns, 1) {
			return wire.CodeBusy
		}
		return nil
	}
	for try, want := range [][]wire.Code{{wire.CodeOK, wire.CodeBusy, wire.CodeOK}, {wire.CodeExists, wire.CodeBusy, wire.CodeExists}} {
		it := pushed(t, ns, 0, 3)
		p.Push(fabric.WithHops(t.Context(), 2+try), it)
		for i := range it {
			if wire.CodeOf(it[i].Err) != want[i] {
				t.Errorf("try %d, block %d: %v, want %v", try, i, it[i].Err, want[i])
			}
		}
	}
	if n, _, _, _ := b.store.Counts(); n != 2 {
		t.Errorf("%d blocks are stored", n)
	}
	g.mu.Lock()
	if len(g.brought) != 4 || g.brought[0] != (fabric.Hop{Fabric: "link", Peer: "agent1", Hops: 2}) || g.brought[3].Hops != 3 {
		t.Errorf("brought: %v", g.brought)
	}
	if len(g.ends) != 4 || g.ends[0] != nil || !errors.Is(g.ends[3], wire.CodeExists) {
		t.Errorf("ended: %v", g.ends)
	}
	g.mu.Unlock()
	p.Push(t.Context(), pushed(t, ns, 4, 5))
	until(t, func() bool { // homes are ready
		_, reserved, _, _ := b.store.Counts()
		return reserved > 0
	})
	it := pushed(t, ns, 5, 6)
	p.Push(fabric.WithHops(t.Context(), 7), it)
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := g.brought[len(g.brought)-1]; it[0].Err != nil || last.Hops != 7 {
		t.Errorf("in one flight: %v, %v", it[0].Err, last)
	}
}

// A block that is asked for by key and is not here is looked for, before the answer; not
// where the question has come through a daemon, nor by reference.
func TestAQuestionIsLookedForElsewhere(t *testing.T) {
	g := &scripted{}
	b, p, ns := bridged(t, g)
	body := bytes.Repeat([]byte("x"), 1000)
	g.look = func(_ context.Context, keys []wire.Key) {
		for _, k := range keys {
			if k == key(ns, 1) {
				b.store.Add(ns, k, wire.ThinkActive, body)
			}
		}
	}
	here := b.store.Add(ns, key(ns, 0), wire.ThinkActive, body)
	ask := func(ctx context.Context, it ...fabric.Item) (codes []wire.Code) {
		p.Find(ctx, it)
		for i := range it {
			codes = append(codes, wire.CodeOf(it[i].Err))
		}
		return codes
	}
	item := func(i int) fabric.Item { return fabric.Item{NS: ns, Key: key(ns, i)} }
	gone := here
	gone.Gen += 2
	byRef := fabric.Item{NS: ns}
	s, err := p.session()
	if err != nil {
		t.Fatal(err)
	}
	byRef.H = s.handle(gone.Slot, gone.Gen)
	for _, c := range []struct {
		ctx    context.Context
		it     []fabric.Item
		want   []wire.Code
		looked int
	}{
		{t.Context(), []fabric.Item{item(0)}, []wire.Code{wire.CodeOK}, 0},
		{fabric.WithHops(t.Context(), 1), []fabric.Item{item(1)}, []wire.Code{wire.CodeAbsent}, 0},
		{t.Context(), []fabric.Item{byRef}, []wire.Code{wire.CodeStale}, 0},
		{t.Context(), []fabric.Item{item(0), item(1), item(2)}, []wire.Code{wire.CodeOK, wire.CodeOK, wire.CodeAbsent}, 1},
	} {
		g.looked = 0
		got := ask(c.ctx, c.it...)
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%v: %v, want %v", c.it, got, c.want)
			}
		}
		if g.looked != c.looked {
			t.Errorf("%d looks, want %d", g.looked, c.looked)
		}
	}
	it := []fabric.Item{{NS: ns, Key: key(ns, 1), M: fabric.Mem{B: make([]byte, wire.HeaderLen+len(body))}}}
	if p.Pull(t.Context(), it); it[0].Err != nil || !bytes.Equal(it[0].M.B[wire.HeaderLen:], body) {
		t.Error("what was found:", it[0].Err)
	}
}

// A look that never ends holds up nobody: the question is answered, others go on, few
// run at a time, and the end of the node ends them.
func TestALookThatHangsHoldsUpNobody(t *testing.T) {
	g := &scripted{}
	b, p, ns := bridged(t, g)
	g.look = func(ctx context.Context, _ []wire.Key) { <-ctx.Done() }
	body := bytes.Repeat([]byte("x"), 1000)
	b.store.Add(ns, key(ns, 0), wire.ThinkActive, body)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			it := []fabric.Item{{NS: ns, Key: key(ns, 100+i)}}
			if p.Find(t.Context(), it); !errors.Is(it[0].Err, wire.CodeAbsent) {
				t.Error(it[0].Err)
			}
		})
	}
	it := []fabric.Item{{NS: ns, Key: key(ns, 0), M: fabric.Mem{B: make([]byte, wire.HeaderLen+len(body))}}}
	if p.Pull(t.Context(), it); it[0].Err != nil {
		t.Error("a pull meanwhile:", it[0].Err)
	}
	all.Wait()
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	it = []fabric.Item{{NS: ns, Key: key(ns, 50)}}
	if p.Find(short, it); it[0].Err == nil {
		t.Error("a block that nobody has")
	}
	until(t, func() bool { return p.node.Stats().Calls == 0 })
	_ = p.Close() // a question whose session ends
}

// Whatever becomes of a push, the gateway is told: also of one that is given up while its
// bytes come, and of a session that ends.
func TestAPushThatIsGivenUpGivesItsRoomBack(t *testing.T) {
	g := &scripted{}
	b, p, ns := bridged(t, g)
	for try := range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+try)*time.Millisecond)
		p.Push(ctx, pushed(t, ns, 100*try, 100*try+12))
		cancel()
	}
	_ = p.Close()
	until(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.ends) == len(g.brought)
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	good := 0
	for _, err := range g.ends {
		if err == nil {
			good++
		}
	}
	if n, _, _, _ := b.store.Counts(); good != n {
		t.Errorf("%d blocks are stored, the gateway was told of %d", n, good)
	}
}

// What the gateway gave for a block belongs to its reservation: the number of a slot comes
// again when a reservation has lapsed, and what is reserved when the session has ended is
// given back at once.
func TestRoomOfTheGatewayBelongsToItsReservation(t *testing.T) {
	var told []string
	pass := func(name string) []fabric.Passage { return []fabric.Passage{named{&told, name}} }
	first, second := []core.Block{{Slot: 7, Gen: 1}}, []core.Block{{Slot: 7, Gen: 3}}
	s := &sessionStore{}
	s.keep(first, pass("first"))
	s.keep(second, pass("second"))
	for _, b := range [][]core.Block{second, first} {
		if x := s.admitted(&b[0]); x == nil {
			t.Errorf("nothing was kept for %v", b[0].Gen)
		} else {
			x.End(nil)
		}
	}
	if s.admitted(&first[0]) != nil {
		t.Error("it was given twice")
	}
	s.dropped = true
	s.keep(first, pass("late"))
	if got, want := strings.Join(told, ", "), "second OK, first OK, late CANCELLED"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// named is a passage that writes down how it ends.
type named struct {
	told *[]string
	name string
}

func (named) Through(fabric.Coming) *fabric.Growing { return nil }

func (x named) End(err error) { *x.told = append(*x.told, x.name+" "+wire.CodeOf(err).String()) }
