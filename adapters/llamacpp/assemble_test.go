package llamacpp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestAnAssemblerRefusesWhatMakesNoState(t *testing.T) {
	good := geometries()["base"]
	wrong := func(change func(*Geometry)) Geometry {
		g := good
		g.Layers = slices.Clone(g.Layers)
		change(&g)
		return g
	}
	three := []int32{1, 2, 3}
	for _, c := range []struct {
		g           Geometry
		tokens      []int32
		blockTokens int
		want        string
	}{
		{good, nil, 1, "0 tokens"},
		{good, make([]int32, MaxTokens+1), 1, "4194305 tokens"},
		{good, []int32{1, 2, -1}, 1, "token 2 is -1"},
		{good, three, 0, "blocks of 0 tokens"},
		{good, three, -1, "blocks of -1 tokens"},
		{Geometry{}, three, 1, "version 0"},
		{wrong(func(g *Geometry) { g.Version = 3 }), three, 1, "version 3: this build writes versions 2 and 4"},
		{wrong(func(g *Geometry) { g.RotationV = 64 }), three, 1, "rotations of 0 and 64: version 2 has none"},
		{wrong(func(g *Geometry) { g.Version, g.RotationK = 4, 1<<16+1 }), three, 1, "rotations of 65537 and 0 are not both at most 65536"},
		{wrong(func(g *Geometry) { g.Streams = 0 }), three, 1, "0 streams"},
		{wrong(func(g *Geometry) { g.Streams = 257 }), three, 1, "257 streams"},
		{wrong(func(g *Geometry) { g.Layers = nil }), three, 1, "0 layers"},
		{wrong(func(g *Geometry) { g.Layers = make([]Layer, 1025) }), three, 1, "1025 layers"},
		{wrong(func(g *Geometry) { g.Layers[1].K.Type = 77 }), three, 1, "layer 1, K: type 77"},
		{wrong(func(g *Geometry) { g.Layers[0].V.Row = -2 }), three, 1, "layer 0, V: rows of -2 bytes"},
		{wrong(func(g *Geometry) { g.Layers[0].V.Row = 1<<20 + 2 }), three, 1, "rows of 1048578 bytes"},
		{wrong(func(g *Geometry) { g.Layers[0].V.Element = 2 }), three, 1, "though it is not transposed"},
		{wrong(func(g *Geometry) { g.Transposed = true }), three, 1, "elements of 0 bytes; f16 has 2"},
	} {
		a, err := NewAssembler(&memory{}, c.g, c.tokens, c.blockTokens)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d tokens, blocks of %d: %v, %v; want %q", len(c.tokens), c.blockTokens, a, err, c.want)
		}
	}
}

func TestFinishNamesTheFirstMissingBlock(t *testing.T) {
	g := geometries()["base"]
	a, err := NewAssembler(&memory{}, g, make([]int32, 10), 4)
	if err != nil {
		t.Fatal(err)
	}
	full, tail := make([]byte, g.BlockBytes(4)), make([]byte, g.BlockBytes(2))
	for _, c := range []struct {
		i    int
		body []byte
		want string
	}{
		{2, tail, "2 of 3 blocks are missing, block 0 first"},
		{0, full, "1 of 3 blocks are missing, block 1 first"},
		{0, full, "1 of 3 blocks are missing, block 1 first"},
		{1, full, ""},
	} {
		if err := a.WriteBlock(c.i, c.body); err != nil {
			t.Fatal(err)
		}
		if err := a.Finish(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("after block %d: %v, want %q", c.i, err, c.want)
		}
	}
}

func TestABlockOfAnotherSizeOrPlaceIsRefused(t *testing.T) {
	g := geometries()["base"]
	a, err := NewAssembler(&memory{}, g, make([]int32, 10), 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ i, size int }{
		{-1, g.BlockBytes(4)}, {3, g.BlockBytes(4)}, {1 << 62, 0}, {0, g.BlockBytes(4) - 1}, {0, g.BlockBytes(4) + 1}, {2, g.BlockBytes(4)}, {0, 0},
	} {
		if err := a.WriteBlock(c.i, make([]byte, c.size)); err == nil {
			t.Errorf("block %d of %d bytes was taken", c.i, c.size)
		}
	}
	if a.BlockBytes(2) != g.BlockBytes(2) || a.BlockBytes(0) != g.BlockBytes(4) || a.BlockBytes(3) != 0 || a.BlockBytes(-1) != 0 {
		t.Error("sizes of blocks:", a.BlockBytes(2), a.BlockBytes(0), a.BlockBytes(3), a.BlockBytes(-1))
	}
}

// full is a disk that takes so many bytes.
type full struct{ left int }

var errFull = errors.New("no space left")

func (f *full) WriteAt(p []byte, _ int64) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestAWritersErrorComesThroughAndTheBlockIsStillMissing(t *testing.T) {
	g := geometries()["transposed"]
	if _, err := NewAssembler(&full{left: 20}, g, make([]int32, 4), 4); !errors.Is(err, errFull) {
		t.Error("the frame:", err)
	}
	var size memory
	if _, err := NewAssembler(&size, g, make([]int32, 4), 4); err != nil {
		t.Fatal(err)
	}
	for room := range g.BlockBytes(4) {
		f := &full{left: len(size.b)}
		a, err := NewAssembler(f, g, make([]int32, 4), 4)
		if err != nil {
			t.Fatal(err)
		}
		f.left = room
		if err := a.WriteBlock(0, make([]byte, g.BlockBytes(4))); !errors.Is(err, errFull) {
			t.Fatalf("with room for %d bytes: %v", room, err)
		}
		if a.Finish() == nil {
			t.Fatal("a block that was not written is not missed")
		}
	}
}

// What an assembler wrote, in any order, a reader gives back.
func FuzzAssembler(f *testing.F) {
	f.Add(uint32(2), uint32(2), false, int32(1), 6, int32(1), 6, 0, 3, 2, uint64(1))
	f.Add(uint32(2), uint32(1), true, int32(1), 6, int32(0), 8, 4, 9, 4, uint64(2))
	f.Add(uint32(2), uint32(3), false, int32(8), 34, int32(8), 68, 0, 1, 16, uint64(3))
	f.Add(uint32(2), uint32(3), true, int32(8), 34, int32(8), 68, 0, 1, 16, uint64(3))
	f.Add(uint32(4), uint32(2), false, int32(8), 34, int32(8), 68, 0, 5, 4, uint64(5))
	f.Add(uint32(4), uint32(0), true, int32(-1), -34, int32(99), 0, 0, 0, 0, uint64(4))
	f.Fuzz(func(t *testing.T, version, streams uint32, transposed bool, kt int32, kr int, vt int32, vr, ve, n, blockTokens int, seed uint64) {
		if n < 0 || n > 64 || kr > 256 || vr > 256 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = r.Int32()
		}
		l := Layer{Tensor{Type: kt, Row: kr}, Tensor{Type: vt, Row: vr, Element: ve}}
		g := Geometry{Version: version, Streams: streams, Transposed: transposed, Layers: []Layer{l, l}}
		if version == 4 {
			g.RotationK, g.RotationV = r.Uint32N(maxRotation+2), r.Uint32N(maxRotation+1)
		}
		var out memory
		a, err := NewAssembler(&out, g, tokens, blockTokens)
		if err != nil {
			return
		}
		bodies := make([][]byte, (n-1)/blockTokens+1)
		for _, i := range r.Perm(len(bodies)) {
			bodies[i] = make([]byte, a.BlockBytes(i))
			for j := range bodies[i] {
				bodies[i][j] = byte(r.Uint32())
			}
			if err := a.WriteBlock(i, bodies[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Finish(); err != nil {
			t.Fatal(err)
		}
		s, err := openBytes(out.b)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Geometry().Equal(g) || !slices.Equal(s.Tokens(), tokens) {
			t.Fatalf("%+v became %+v", g, s.Geometry())
		}
		for i, want := range bodies {
			got := make([]byte, len(want))
			if err := s.ReadBlock(i*blockTokens, len(want)/g.TokenBytes(), got); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("block %d came back as another: %v", i, err)
			}
		}
	})
}
