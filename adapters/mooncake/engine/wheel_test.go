package engine_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/wheel"
	"meridian/adapters/mooncake/segment"
	"meridian/wire"
)

const base = 0x1000_0000_0000 // of the memory of these tests

// flat is one piece of memory that everybody may read and write.
type flat []byte

func (f flat) Enter(_ string, addr, n uint64, _ bool) ([]byte, func(uint64), error) {
	if addr < base || addr-base > uint64(len(f)) || n > uint64(len(f))-(addr-base) {
		return nil, nil, wire.CodeInvalid
	}
	return f[addr-base:][:n:n], func(uint64) {}, nil
}

func everybody(a netip.Addr) (string, error) { return a.String(), nil }

// ours is a segment of this build with n bytes of memory, as real engines open it.
type ours struct {
	name   string
	mem    flat
	target *engine.Target
	server *handshake.Server
}

func serve(t *testing.T, n int) *ours {
	t.Helper()
	o := &ours{mem: make(flat, n)}
	refused := func(peer string, err error) { t.Logf("refused %s: %v", peer, err) }
	o.target = engine.NewTarget(engine.TargetConfig{Memory: o.mem, Admit: everybody, Refused: refused})
	t.Cleanup(o.target.Close)
	data, err := o.target.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.server = handshake.NewServer(handshake.Config{Admit: everybody, Refused: refused, Descriptor: func(string) segment.Descriptor {
		return segment.Descriptor{
			Name: o.name, Protocols: []string{segment.TCP}, DataHost: "127.0.0.1", DataPort: data.Port(), Proto: 2,
			Buffers: []segment.Buffer{{Name: o.name, Addr: base, Len: uint64(n)}},
		}
	}})
	t.Cleanup(o.server.Close)
	at, err := o.server.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.name = at.String()
	return o
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func TestARealEngineReadsAndWritesOurSegment(t *testing.T) {
	const n = 8 << 20
	o := serve(t, n)
	e := wheel.Start(t, n)
	if !e.Probe(o.name) || e.First(o.name) != base {
		t.Fatal("the probe, or the first buffer's address")
	}
	e.Fill(0, n, 1)
	if !e.Move(wheel.Move{Peer: o.name, Write: true, Here: []int{0}, There: []uint64{base}, Sizes: []int{n}}) {
		t.Fatal("a write of all of it failed")
	}
	if !bytes.Equal(o.mem, wheel.Content(n, 1)) {
		t.Fatal("other bytes arrived")
	}
	copy(o.mem, wheel.Content(n, 2))
	if !e.Move(wheel.Move{Peer: o.name, Here: []int{0}, There: []uint64{base}, Sizes: []int{n}}) || e.Digest(0, n) != sum(o.mem) {
		t.Fatal("a read of all of it")
	}
}

func TestWeReadAndWriteARealEnginesSegment(t *testing.T) {
	const n = 8 << 20
	e := wheel.Start(t, n)
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	defer in.Close()
	s, err := in.Open(t.Context(), e.Name)
	if err != nil {
		t.Fatal(err)
	}
	e.Fill(0, n, 3)
	got := make([]byte, n)
	ops := []engine.Op{{Addr: e.Addr, B: got}}
	if s.Read(t.Context(), ops); ops[0].Err != nil || !bytes.Equal(got, wheel.Content(n, 3)) {
		t.Fatal("read:", ops[0].Err)
	}
	ops[0].B = wheel.Content(n, 4)
	if s.Write(t.Context(), ops); ops[0].Err != nil || e.Digest(0, n) != sum(ops[0].B) {
		t.Fatal("write:", ops[0].Err)
	}
}
