package metadata_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/realmeta"
	"meridian/adapters/mooncake/internal/wheel"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/internal/invariants/leak"
	"meridian/wire"
)

func TestMain(m *testing.M) { leak.Main(m) }

const base = 0x7f00_0000_0000_1000 // above 2^53, as addresses are

// flat is one piece of memory that everybody may read and write.
type flat []byte

func (f flat) Enter(_ string, addr, n uint64, _ bool) ([]byte, func(uint64), error) {
	if addr < base || addr-base > uint64(len(f)) || n > uint64(len(f))-(addr-base) {
		return nil, nil, wire.CodeInvalid
	}
	return f[addr-base:][:n:n], func(uint64) {}, nil
}

func everybody(a netip.Addr) (string, error) { return a.String(), nil }

// member is a node of ours: a segment, and what answers for it.
type member struct {
	metadata.Node
	mem    flat
	server *handshake.Server
	target *engine.Target
}

// join starts a node and publishes it. Without a name its address is its name.
func join(t *testing.T, p metadata.Plane, name string, n int, epoch uint64) *member {
	t.Helper()
	m := &member{mem: make(flat, n)}
	refused := func(peer string, err error) { t.Logf("refused %s: %v", peer, err) }
	m.target = engine.NewTarget(engine.TargetConfig{Memory: m.mem, Admit: everybody, Refused: refused})
	m.server = handshake.NewServer(handshake.Config{Admit: everybody, Refused: refused, Descriptor: func(string) segment.Descriptor { return m.Segment }})
	t.Cleanup(m.leave)
	data, err := m.target.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at, err := m.server.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if name == "" {
		name = at.String()
	}
	m.Node = metadata.Node{At: metadata.Endpoint{Host: "127.0.0.1", Port: at.Port(), Epoch: epoch}, Segment: segment.Descriptor{
		Name: name, Protocols: []string{segment.TCP}, DataHost: "127.0.0.1", DataPort: data.Port(), Proto: 2,
		Buffers: []segment.Buffer{{Name: name, Addr: base, Len: uint64(n)}},
	}}
	if err := p.Publish(t.Context(), m.Node); err != nil {
		t.Fatal("publish:", err)
	}
	return m
}

// leave ends the node without a word to anybody.
func (m *member) leave() {
	m.server.Close()
	m.target.Close()
}

func open(t *testing.T, server string) metadata.Plane {
	t.Helper()
	p, err := metadata.Open(metadata.Config{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestARealEngineAndWeFindEachOtherInEachMode(t *testing.T) {
	const n = 1 << 20
	for _, s := range realmeta.Servers {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			server := s.Start(t)
			p := open(t, server)
			var ours string
			var theirs *wheel.Engine
			if server == metadata.P2P {
				theirs = wheel.Start(t, n)
			} else {
				ours, theirs = "ours:1 ü", wheel.StartAt(t, n, "theirs:12345", server)
			}
			m := join(t, p, ours, n, 7)
			copy(m.mem, wheel.Content(n, 1))
			if !theirs.Move(wheel.Move{Peer: m.Name(), Here: []int{0}, There: []uint64{base}, Sizes: []int{n}}) {
				t.Fatal("the engine could not read our segment")
			}
			if !bytes.Equal(theirs.Get(0, 4096), m.mem[:4096]) {
				t.Error("it read other bytes")
			}
			theirs.Fill(0, n, 2)
			in := engine.NewInitiator(engine.InitiatorConfig{Resolver: p})
			defer in.Close()
			seg, err := in.Open(t.Context(), theirs.Name)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, n)
			ops := []engine.Op{{Addr: theirs.Addr, B: got}}
			if seg.Read(t.Context(), ops); ops[0].Err != nil || !bytes.Equal(got, wheel.Content(n, 2)) {
				t.Error("we read other bytes:", ops[0].Err)
			}
			if err := p.Publish(t.Context(), m.Node); err != nil {
				t.Error("published again:", err)
			}
			if err := p.Remove(t.Context(), m.Node); err != nil {
				t.Error(err)
			}
		})
	}
}

// A real engine and we, each in the other's memory, in each mode: all bytes of 16 MiB,
// or with MERIDIAN_TEST_FULL of 1 GiB, each way, in one window that is used again and
// again.
func TestMixedSizesArriveByteForByteInEachMode(t *testing.T) {
	window, rounds := 4<<20, 4
	if os.Getenv("MERIDIAN_TEST_FULL") != "" {
		window, rounds = 128<<20, 8
	}
	for _, s := range realmeta.Servers {
		t.Run(s.Name, func(t *testing.T) { // one after the other: each has two windows
			server := s.Start(t)
			p := open(t, server)
			var name string
			var theirs *wheel.Engine
			if server == metadata.P2P {
				theirs = wheel.Start(t, window)
			} else {
				name, theirs = "ours:1", wheel.StartAt(t, window, "theirs:12345", server)
			}
			m := join(t, p, name, window, 7)
			in := engine.NewInitiator(engine.InitiatorConfig{Resolver: p})
			defer in.Close()
			seg, err := in.Open(t.Context(), theirs.Name)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for round := range rounds {
				theyMove(t, theirs, m, byte(round))
				weMove(t, seg, theirs, m.mem, byte(round))
			}
			t.Logf("%d MiB each way, by each: %v", window*rounds>>20, time.Since(began))
			if err := p.Remove(t.Context(), m.Node); err != nil {
				t.Error(err)
			}
		})
	}
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func shuffle(b []byte, seed byte) { _, _ = rand.NewChaCha8([32]byte{seed}).Read(b) }

// theyMove has the engine write all of our memory, and read what we then put there.
func theyMove(t *testing.T, theirs *wheel.Engine, m *member, seed byte) {
	t.Helper()
	n := len(m.mem)
	at, sizes := wheel.Mixed(n)
	there := make([]uint64, len(at))
	for i := range at {
		there[i] = base + uint64(at[i])
	}
	theirs.Shuffle(0, n)
	if !theirs.Move(wheel.Move{Peer: m.Name(), Write: true, Here: at, There: there, Sizes: sizes}) || theirs.Digest(0, n) != sum(m.mem) {
		t.Fatal("the engine wrote other bytes, or none")
	}
	shuffle(m.mem, seed)
	if !theirs.Move(wheel.Move{Peer: m.Name(), Here: at, There: there, Sizes: sizes}) || theirs.Digest(0, n) != sum(m.mem) {
		t.Fatal("the engine read other bytes, or none")
	}
}

// weMove reads all of the engine's memory into mem, and writes other bytes there.
func weMove(t *testing.T, seg *engine.Segment, theirs *wheel.Engine, mem []byte, seed byte) {
	t.Helper()
	at, sizes := wheel.Mixed(len(mem))
	ops := make([]engine.Op, len(at))
	for i := range at {
		ops[i] = engine.Op{Addr: theirs.Addr + uint64(at[i]), B: mem[at[i]:][:sizes[i]]}
	}
	theirs.Shuffle(0, len(mem))
	for _, write := range []bool{false, true} {
		if write {
			shuffle(mem, seed^0xff)
			seg.Write(t.Context(), ops)
		} else {
			seg.Read(t.Context(), ops)
		}
		for i := range ops {
			if ops[i].Err != nil {
				t.Fatalf("write %v: %v", write, ops[i].Err)
			}
		}
		if theirs.Digest(0, len(mem)) != sum(mem) {
			t.Fatalf("write %v: other bytes", write)
		}
	}
}

// What a node does on the servers that keep what nodes publish.
func TestANameHasOneOwnerOnEachServer(t *testing.T) {
	for _, s := range realmeta.Servers[1:] {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			p := open(t, s.Start(t))
			if _, _, err := p.Get(t.Context(), "nobody"); !errors.Is(err, wire.CodeAbsent) {
				t.Error("a name that nobody has:", err)
			}
			first := join(t, p, "node", 4096, 5)
			d, host, err := p.Get(t.Context(), "node")
			if err != nil || host != "127.0.0.1" || len(d.Buffers) != 1 || d.Buffers[0].Addr != base {
				t.Fatalf("%+v at %q, %v", d, host, err)
			}
			if at, err := p.Endpoint(t.Context(), "node"); err != nil || at != first.At {
				t.Errorf("%+v, %v, want %+v", at, err, first.At)
			}
			other := first.Node
			other.At.Port, other.At.Epoch = first.At.Port+1, 6
			if err := p.Publish(t.Context(), other); !errors.Is(err, wire.CodeExists) {
				t.Error("a second node takes the name of one that answers:", err)
			}
			if err := p.Remove(t.Context(), other); !errors.Is(err, wire.CodeExists) {
				t.Error("a second node removes it:", err)
			}
			first.leave()
			older := other
			older.At.Epoch = 4
			if err := p.Publish(t.Context(), older); !errors.Is(err, wire.CodeStale) {
				t.Error("an earlier start of a node takes the name of a later one:", err)
			}
			again := join(t, p, "node", 8192, 6)
			if d, _, err := p.Get(t.Context(), "node"); err != nil || d.Buffers[0].Len != 8192 || d.DataPort != again.Segment.DataPort {
				t.Errorf("after a restart: %+v, %v", d, err)
			}
			if err := p.Remove(t.Context(), first.Node); err == nil {
				t.Error("the earlier start removes the later one's entry")
			}
			if err := p.Remove(t.Context(), again.Node); err != nil {
				t.Error(err)
			}
			if _, err := p.Endpoint(t.Context(), "node"); !errors.Is(err, wire.CodeAbsent) {
				t.Error("after the end:", err)
			}
		})
	}
}
