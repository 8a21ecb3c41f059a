package lent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"meridian/fabric"
	"meridian/fabric/fabrictest"
	"meridian/wire"
)

// memoryPeer has its memory in this process.
type memoryPeer struct {
	mu    sync.Mutex
	name  string
	id    string
	b     []byte
	fails error // of writes
	quiet bool
}

func (p *memoryPeer) Name() string  { return p.name }
func (p *memoryPeer) Via() string   { return "memory" }
func (p *memoryPeer) Usable() error { return nil }

func (p *memoryPeer) Reach(context.Context) (Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Place{p.id, 1 << 40, uint64(len(p.b))}, nil
}

func (p *memoryPeer) move(ctx context.Context, ops []Op, f func(op *Op, there []byte) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range ops {
		op := &ops[i]
		if op.Err, op.Quiet = ctx.Err(), true; op.Err == nil {
			op.Err = f(op, p.b[op.Addr-1<<40:][:len(op.B)])
		}
	}
}

func (p *memoryPeer) Read(ctx context.Context, ops []Op) {
	p.move(ctx, ops, func(op *Op, there []byte) error { copy(op.B, there); return nil })
}

func (p *memoryPeer) Write(ctx context.Context, ops []Op) {
	p.move(ctx, ops, func(op *Op, there []byte) error {
		op.Quiet = p.quiet
		if p.fails == nil {
			copy(there, op.B)
		}
		return p.fails
	})
}

type closable struct {
	Group
	s *Store
}

func (c closable) Close() error { c.s.Close(); return nil }

func config() Config {
	return Config{Label: "lent", MaxItem: 64<<20 + wire.HeaderLen, MaxBatch: 1024, MaxBlocks: 1 << 20, Lanes: 1, Rest: time.Hour}
}

func TestContract(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
		p := &memoryPeer{name: "far", id: "1", b: make([]byte, 160<<20)}
		s := New(config(), []Peer{p})
		return fabrictest.Harness{
			Fabric: closable{s.All(), s}, NS: wire.Namespace{1}, Peer: "far",
			Damage: func(it fabric.Item) error {
				e := s.shelves()[0].find(&it)
				if e == nil {
					return errors.New("no such block")
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				p.b[e.at.Off+e.size()-1] ^= 0x10
				return nil
			},
			Leaks: func() error {
				if blocks, bytes := s.Count(); blocks != 0 || bytes != 0 {
					return fmt.Errorf("%d blocks, %d bytes are left", blocks, bytes)
				}
				return nil
			},
		}
	})
}

func payload(t *testing.T, n int) []byte {
	t.Helper()
	b, err := wire.AppendPayload(nil, wire.ThinkActive, make([]byte, n))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func push(t *testing.T, g Group, key byte, n int) error {
	t.Helper()
	it := []fabric.Item{{Key: wire.Key{key}, M: fabric.Mem{B: payload(t, n)}}}
	g.Push(t.Context(), it)
	return it[0].Err
}

func TestAPeerWithOtherMemoryHasLostItsBlocks(t *testing.T) {
	p := &memoryPeer{name: "far", id: "1", b: make([]byte, 1<<20)}
	s := New(config(), []Peer{p})
	defer s.Close()
	if err := push(t, s.All(), 1, 100); err != nil {
		t.Fatal(err)
	}
	p.id = "2"
	if err := push(t, s.All(), 2, 100); err != nil {
		t.Fatal(err)
	}
	it := []fabric.Item{{Key: wire.Key{1}}, {Key: wire.Key{2}}}
	s.All().Find(t.Context(), it)
	if !errors.Is(it[0].Err, wire.CodeAbsent) || it[1].Err != nil {
		t.Errorf("the lost one: %v, the other: %v", it[0].Err, it[1].Err)
	}
	p.b = nil
	if err := push(t, s.All(), 3, 100); !errors.Is(err, wire.CodeFull) {
		t.Errorf("no memory: %v", err)
	}
}

func TestThePartOfAWriteThatMayStillRunRests(t *testing.T) {
	for _, quiet := range []bool{true, false} {
		p := &memoryPeer{name: "far", id: "1", b: make([]byte, 1024), fails: wire.CodeUnreachable, quiet: quiet}
		s := New(config(), []Peer{p})
		if err := push(t, s.All(), 1, 800); !errors.Is(err, wire.CodeUnreachable) {
			t.Fatal(err)
		}
		p.fails = nil
		if err := push(t, s.All(), 1, 800); (err == nil) != quiet || err != nil && !errors.Is(err, wire.CodeFull) {
			t.Errorf("after a write that was quiet: %v: %v", quiet, err)
		}
		s.Close()
	}
}

func TestAPeerHasNoMoreBlocksThanTheLimit(t *testing.T) {
	c := config()
	c.MaxBlocks = 2
	s := New(c, []Peer{&memoryPeer{name: "far", id: "1", b: make([]byte, 1<<20)}})
	defer s.Close()
	for key, want := range []error{nil, nil, wire.CodeFull} {
		if err := push(t, s.All(), byte(key), 10); !errors.Is(err, want) {
			t.Errorf("block %d: %v, want %v", key, err, want)
		}
	}
}

func TestBlocksSpreadOverPeersAndAreFoundAtEach(t *testing.T) {
	a, b := &memoryPeer{name: "a", id: "1", b: make([]byte, 1<<20)}, &memoryPeer{name: "b", id: "1", b: make([]byte, 1<<20)}
	s := New(config(), []Peer{b, a})
	defer s.Close()
	for key := range byte(64) {
		if err := push(t, s.All(), key, 10); err != nil {
			t.Fatal(err)
		}
		it := []fabric.Item{{Key: wire.Key{key}}}
		if s.One(s.All().Choose(wire.Namespace{}, wire.Key{key})).Find(t.Context(), it); it[0].Err != nil {
			t.Errorf("block %d is not at its home: %v", key, it[0].Err)
		}
	}
	for _, one := range s.shelves() {
		if n, _ := one.count(); n < 10 {
			t.Errorf("peer %s has %d of 64 blocks", one.Name(), n)
		}
	}
}

func TestFreedPartsJoin(t *testing.T) {
	s := NewSpace(1 << 10)
	var parts []wire.Span
	for range 16 {
		p, ok := s.Take(1)
		if !ok {
			t.Fatal("no room")
		}
		parts = append(parts, p)
	}
	if _, ok := s.Take(1); ok {
		t.Error("there is room for one too many")
	}
	for i := range parts {
		s.Give(parts[(i*7)%16])
	}
	if p, ok := s.Take(1 << 10); !ok || p.Off != 0 || s.Used != 1<<10 {
		t.Errorf("%+v, %v, used %d", p, ok, s.Used)
	}
}

// Whatever is taken and given back, the parts never overlap, and in the end all is one.
func FuzzSpace(f *testing.F) {
	f.Add([]byte{1, 200, 3, 0, 0, 9})
	f.Fuzz(func(t *testing.T, steps []byte) {
		s := NewSpace(64 << 10)
		var held []wire.Span
		for _, b := range steps {
			if b%4 == 0 && len(held) > 0 {
				i := int(b) % len(held)
				s.Give(held[i])
				held = append(held[:i], held[i+1:]...)
				continue
			}
			p, ok := s.Take(uint64(b)*37 + 1)
			if !ok {
				continue
			}
			for _, o := range append(append([]wire.Span(nil), held...), s.free...) {
				if p.Off < o.Off+o.Len && o.Off < p.Off+p.Len {
					t.Fatalf("%+v overlaps %+v", p, o)
				}
			}
			held = append(held, p)
		}
		for _, p := range held {
			s.Give(p)
		}
		if s.Used != 0 || len(s.free) != 1 || s.free[0] != (wire.Span{Len: 64 << 10}) {
			t.Fatalf("%+v", s)
		}
	})
}

// A peer that was seen to have lost its memory has no block, whether somebody asks it or
// not; a write that was under way there makes none.
func TestForgottenMemoryHasNoBlocks(t *testing.T) {
	p := &memoryPeer{name: "far", id: "1", b: make([]byte, 1<<20)}
	other := &memoryPeer{name: "near", id: "1", b: make([]byte, 1<<20)}
	s := New(config(), []Peer{p, other})
	defer s.Close()
	for _, name := range []string{"far", "near"} {
		if err := push(t, s.One(name), 1, 100); err != nil {
			t.Fatal(err)
		}
	}
	late := &fabric.Item{Key: wire.Key{2}}
	mem, err := s.shelves()[0].reach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.shelves()[0].reserve(mem, late, wire.Header{BodyLen: 100})
	if err != nil {
		t.Fatal(err)
	}
	s.Forget("far")
	it := []fabric.Item{{Key: wire.Key{1}}}
	if s.One("far").Find(t.Context(), it); !errors.Is(it[0].Err, wire.CodeAbsent) {
		t.Errorf("a block in lost memory: %v", it[0].Err)
	}
	if s.One("near").Find(t.Context(), it); it[0].Err != nil {
		t.Errorf("a block in another peer's memory: %v", it[0].Err)
	}
	if err := s.shelves()[0].publish(late, e); !errors.Is(err, wire.CodeLaneLost) {
		t.Errorf("a write into lost memory: %v", err)
	}
	if err := push(t, s.One("far"), 1, 100); err != nil {
		t.Errorf("brought again: %v", err)
	}
}

// Each item and probe that fails with a peer is told, and none that goes well.
func TestFailuresAreToldByPeer(t *testing.T) {
	p := &memoryPeer{name: "far", id: "1", b: make([]byte, 1<<20)}
	var mu sync.Mutex
	told := map[wire.Code]int{}
	c := config()
	c.Failed = func(p Peer, err error) {
		mu.Lock()
		defer mu.Unlock()
		told[wire.CodeOf(err)]++
	}
	s := New(c, []Peer{p})
	defer s.Close()
	if err := push(t, s.All(), 1, 100); err != nil || len(told) != 0 {
		t.Fatal(err, told)
	}
	p.fails = wire.CodeLaneLost
	_ = push(t, s.All(), 2, 100)
	_, _, _ = s.All().Probe(t.Context(), "far")
	if told[wire.CodeLaneLost] != 2 || len(told) != 1 {
		t.Errorf("told of %v", told)
	}
}

// A peer that is there still keeps its blocks. Those of one that is no more are forgotten,
// also what is being written; a list does not change under a call.
func TestPeersThatComeAndGo(t *testing.T) {
	far, near := &memoryPeer{name: "far", id: "1", b: make([]byte, 1<<20)}, &memoryPeer{name: "near", id: "1", b: make([]byte, 1<<20)}
	s := New(config(), []Peer{far})
	defer s.Close()
	all, toFar := s.All(), s.One("far")
	if err := push(t, all, 1, 100); err != nil {
		t.Fatal(err)
	}
	s.Set([]Peer{near, far})
	toNear := s.One("near")
	if err := push(t, toNear, 2, 100); err != nil {
		t.Fatal(err)
	}
	it := []fabric.Item{{Key: wire.Key{1}}, {Key: wire.Key{2}}}
	if all.Find(t.Context(), it); it[0].Err != nil || it[1].Err != nil {
		t.Errorf("%v, %v", it[0].Err, it[1].Err)
	}
	mem, err := toFar.shelves()[0].reach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := &fabric.Item{Key: wire.Key{3}}
	e, err := toFar.shelves()[0].reserve(mem, late, wire.Header{BodyLen: 100})
	if err != nil {
		t.Fatal(err)
	}
	s.Set([]Peer{near})
	if all.Find(t.Context(), it); !errors.Is(it[0].Err, wire.CodeAbsent) || it[1].Err != nil {
		t.Errorf("%v, %v", it[0].Err, it[1].Err)
	}
	if err := toFar.shelves()[0].publish(late, e); !errors.Is(err, wire.CodeLaneLost) {
		t.Errorf("a write to one that is gone: %v", err)
	}
	if err := push(t, toFar, 4, 100); !errors.Is(err, wire.CodeUnreachable) {
		t.Errorf("a push to one that is gone: %v", err)
	}
	if all.Usable(wire.Namespace{}) != nil || toFar.Usable(wire.Namespace{}) == nil {
		t.Error("which of them can be asked")
	}
	s.Set([]Peer{far})
	if all.Find(t.Context(), it); !errors.Is(it[0].Err, wire.CodeAbsent) {
		t.Errorf("one that came again has the blocks of before: %v", it[0].Err)
	}
	if blocks, bytes := s.Count(); blocks != 0 || bytes != 0 {
		t.Errorf("%d blocks, %d bytes", blocks, bytes)
	}
}

// lender is a peer that says whether it has lent memory.
type lender struct{ *memoryPeer }

func (l lender) Lends() bool { return len(l.b) > 0 }

// A peer that has lent nothing gets no block while another one has room; alone it is asked,
// and says why not.
func TestBlocksGoToPeersThatLendMemory(t *testing.T) {
	bare, near := lender{&memoryPeer{name: "bare", id: "1"}}, lender{&memoryPeer{name: "near", id: "1", b: make([]byte, 1<<20)}}
	s := New(config(), []Peer{bare, near})
	defer s.Close()
	for key := range byte(32) {
		if to := s.All().Choose(wire.Namespace{}, wire.Key{key}); to != "near" {
			t.Errorf("block %d is to go to %s", key, to)
		}
		if err := push(t, s.All(), key, 10); err != nil {
			t.Error(err)
		}
	}
	s.Set([]Peer{bare})
	if err := push(t, s.All(), 40, 10); !errors.Is(err, wire.CodeFull) {
		t.Errorf("the only one has lent nothing: %v", err)
	}
}
