package engine_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/wheel"
	"meridian/adapters/mooncake/segment"
	"meridian/wire"
)

func plus(base uint64, at []int) []uint64 {
	out := make([]uint64, len(at))
	for i, a := range at {
		out[i] = base + uint64(a)
	}
	return out
}

// The ways in which the released engine connects: lanes, a connection for each of 500
// transfers at once, and version 1 without acknowledgements.
func TestARealEngineConnectsInEachOfItsWays(t *testing.T) {
	const n = 64 << 20
	for name, env := range map[string][]string{
		"lanes":                   nil,
		"a connection a transfer": {"MC_TCP_ENABLE_CONNECTION_POOL=0"},
		"version 1":               {"MC_TCP_PROTO=1"},
	} {
		t.Run(name, func(t *testing.T) {
			o := serve(t, n)
			e := wheel.Start(t, n, env...)
			at, sizes := wheel.Mixed(n)
			there := plus(base, at)
			e.Fill(0, n, 1)
			if !e.Move(wheel.Move{Peer: o.name, Write: true, Here: at, There: there, Sizes: sizes}) {
				t.Fatal("write")
			}
			// Version 1 reports a write before it has arrived: what is read behind it has.
			e.Fill(0, n, 2)
			if !e.Move(wheel.Move{Peer: o.name, Here: at, There: there, Sizes: sizes}) || name != "version 1" && e.Digest(0, n) != sum(wheel.Content(n, 1)) {
				t.Fatal("read")
			}
			many := make([]int, 500)
			small := make([]int, len(many))
			for i := range many {
				many[i], small[i] = i*4096, 4096
			}
			if !e.Move(wheel.Move{Peer: o.name, Here: many, There: plus(base, many), Sizes: small}) {
				t.Fatal("500 at once")
			}
			if name != "version 1" && e.Digest(0, 500*4096) != sum(wheel.Content(n, 1)[:500*4096]) {
				t.Fatal("500 at once: other bytes")
			}
			for _, addr := range []uint64{base + n - 10, base - 1, 1 << 62} { // refused, and nothing is lost by it
				if e.Move(wheel.Move{Peer: o.name, Here: []int{0}, There: []uint64{addr}, Sizes: []int{100}}) {
					t.Errorf("a read at %#x went well", addr)
				}
			}
			if !e.Move(wheel.Move{Peer: o.name, Here: []int{0}, There: []uint64{base}, Sizes: []int{100}}) {
				t.Error("a read after those that were refused")
			}
		})
	}
}

// asVersion is a metadata plane that says which version the peers speak.
type asVersion struct {
	engine.Resolver
	proto int
}

func (a asVersion) Get(ctx context.Context, name string) (segment.Descriptor, string, error) {
	d, host, err := a.Resolver.Get(ctx, name)
	d.Proto = a.proto
	return d, host, err
}

func TestWeSpeakBothVersionsToARealEngine(t *testing.T) {
	const n = 64 << 20
	e := wheel.Start(t, n)
	for proto := 1; proto <= 2; proto++ {
		in := engine.NewInitiator(engine.InitiatorConfig{Resolver: asVersion{&handshake.Client{}, proto}})
		defer in.Close()
		s, err := in.Open(t.Context(), e.Name)
		if err != nil {
			t.Fatal(err)
		}
		content := wheel.Content(n, proto)
		got := make([]byte, n)
		at, sizes := wheel.Mixed(n)
		write, read := make([]engine.Op, len(at)), make([]engine.Op, len(at))
		for i := range at {
			addr := e.Addr + uint64(at[i])
			write[i], read[i] = engine.Op{Addr: addr, B: content[at[i]:][:sizes[i]]}, engine.Op{Addr: addr, B: got[at[i]:][:sizes[i]]}
		}
		s.Write(t.Context(), write)
		if e.Digest(0, n) != sum(content) {
			t.Errorf("version %d: other bytes arrived", proto)
		}
		s.Read(t.Context(), read)
		for _, op := range append(write, read...) {
			if op.Err != nil {
				t.Fatalf("version %d: %v", proto, op.Err)
			}
		}
		if !bytes.Equal(got, content) {
			t.Errorf("version %d: other bytes were read", proto)
		}
		beyond := []engine.Op{{Addr: e.Addr + n - 10, B: make([]byte, 8<<20)}}
		for _, write := range []bool{false, true} {
			if write {
				s.Write(t.Context(), beyond)
			} else {
				s.Read(t.Context(), beyond)
			}
			if code := wire.CodeOf(beyond[0].Err); proto == 2 && code != wire.CodeStale || code == wire.CodeOK {
				t.Errorf("version %d, write %v, beyond its memory: %v", proto, write, beyond[0].Err)
			}
		}
	}
}

func TestAMessageReachesARealEngineAndItsEndIsNoticed(t *testing.T) {
	e := wheel.Start(t, 4096)
	c := handshake.Client{}
	if err := c.Probe(t.Context(), e.Name); err != nil {
		t.Error(err)
	}
	if err := c.Notify(t.Context(), e.Name, handshake.Notify{Name: "us", Text: "hello"}); err != nil {
		t.Error(err)
	}
	if got := e.Notifies(); len(got) != 1 || got[0] != [2]string{"us", "hello"} {
		t.Errorf("notifies %v", got)
	}
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &c})
	defer in.Close()
	s, err := in.Open(t.Context(), e.Name)
	if err != nil {
		t.Fatal(err)
	}
	ops := []engine.Op{{Addr: e.Addr, B: make([]byte, 10)}}
	if s.Read(t.Context(), ops); ops[0].Err != nil {
		t.Fatal(ops[0].Err)
	}
	e.Kill()
	if s.Read(t.Context(), ops); !errors.Is(ops[0].Err, wire.CodeUnreachable) {
		t.Error("its process was killed:", ops[0].Err)
	}
	if err := c.Probe(t.Context(), e.Name); !errors.Is(err, wire.CodeUnreachable) {
		t.Error(err)
	}
}
