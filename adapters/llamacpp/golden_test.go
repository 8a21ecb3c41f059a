package llamacpp_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"meridian/adapters/llamacpp"
	"meridian/wire"
)

var rewrite = flag.Bool("rewrite", false, "let llama-server make the files of testdata again")

// golden is a file that llama-server saved. like is the file that was restored
// into the slot before: the same state, saved from slot 0.
type golden struct {
	file, kind string
	slot       int
	prompt     []int32
	like       string

	version       uint32
	streams       uint32
	rotation      uint32 // of K and of V
	k, v          llamacpp.Tensor
	dtype, layout string
}

// built is the version that the server of the tests writes. The files of the other
// are of an earlier server and are not made again.
const built = 4

// quick are "The quick brown".
var quick = []int32{504, 2365, 6354}

var (
	f16  = llamacpp.Tensor{Type: 1, Row: 384}
	q8_0 = llamacpp.Tensor{Type: 8, Row: 204}
	turn = llamacpp.Tensor{Type: 1, Row: 384, Element: 2}
)

var goldens = []golden{
	{file: "f16-slot0", kind: plain, prompt: quick, version: 2, streams: 2, k: f16, v: f16,
		dtype: "f16/f16", layout: "llamacpp-state2 streams=2 v=rows 30xf16:384+f16:384"},
	{file: "f16-slot1", kind: plain, slot: 1, prompt: quick, like: "f16-slot0", version: 2, streams: 2, k: f16, v: f16,
		dtype: "f16/f16", layout: "llamacpp-state2 streams=2 v=rows 30xf16:384+f16:384"},
	{file: "q8_0-slot0", kind: q8, prompt: quick, version: 2, streams: 2, k: q8_0, v: q8_0,
		dtype: "q8_0/q8_0", layout: "llamacpp-state2 streams=2 v=rows 30xq8_0:204+q8_0:204"},
	{file: "transposed-slot0", kind: nofa, prompt: quick, version: 2, streams: 2, k: f16, v: turn,
		dtype: "f16/f16", layout: "llamacpp-state2 streams=2 v=transposed 30xf16:384+f16:384"},
	{file: "unified-slot0", kind: unified, prompt: quick[:2], version: 2, streams: 1, k: f16, v: f16,
		dtype: "f16/f16", layout: "llamacpp-state2 streams=1 v=rows 30xf16:384+f16:384"},
	{file: "unified-slot1", kind: unified, slot: 1, prompt: quick[:2], like: "unified-slot0", version: 2, streams: 1, k: f16, v: f16,
		dtype: "f16/f16", layout: "llamacpp-state2 streams=1 v=rows 30xf16:384+f16:384"},
	{file: "v4-f16-slot0", kind: plain, prompt: quick[:2], version: 4, streams: 2, k: f16, v: f16,
		dtype: "f16/f16", layout: "llamacpp-state4 streams=2 v=rows rotation=0+0 30xf16:384+f16:384"},
	{file: "v4-f16-slot1", kind: plain, slot: 1, prompt: quick[:2], like: "v4-f16-slot0", version: 4, streams: 2, k: f16, v: f16,
		dtype: "f16/f16", layout: "llamacpp-state4 streams=2 v=rows rotation=0+0 30xf16:384+f16:384"},
	{file: "v4-q8_0-slot0", kind: q8, prompt: quick[:2], version: 4, streams: 2, rotation: 64, k: q8_0, v: q8_0,
		dtype: "q8_0/q8_0", layout: "llamacpp-state4 streams=2 v=rows rotation=64+64 30xq8_0:204+q8_0:204"},
	{file: "v4-transposed-slot0", kind: nofa, prompt: quick[:2], version: 4, streams: 2, k: f16, v: turn,
		dtype: "f16/f16", layout: "llamacpp-state4 streams=2 v=transposed rotation=0+0 30xf16:384+f16:384"},
	{file: "v4-unified-slot0", kind: unified, prompt: quick[:2], version: 4, streams: 1, k: f16, v: f16,
		dtype: "f16/f16", layout: "llamacpp-state4 streams=1 v=rows rotation=0+0 30xf16:384+f16:384"},
}

func goldenFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (g *golden) remake(t *testing.T) {
	p := running(t, g.kind)
	if g.like == "" {
		p.compute(t, g.slot, g.prompt)
	} else {
		p.restore(t, g.slot, goldenFile(t, g.like), len(g.prompt))
	}
	state := p.save(t, g.slot, len(g.prompt))
	if err := os.WriteFile(filepath.Join("testdata", g.file+".bin"), state, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestGoldensAreReadAsTheServerWasStarted(t *testing.T) {
	for i := range goldens {
		g := &goldens[i]
		t.Run(g.file, func(t *testing.T) {
			if *rewrite && g.version == built {
				g.remake(t)
			}
			st := open(t, goldenFile(t, g.file))
			if !slices.Equal(st.Tokens(), g.prompt) {
				t.Errorf("tokens %v, want %v", st.Tokens(), g.prompt)
			}
			want := llamacpp.Geometry{Version: g.version, Streams: g.streams, Transposed: g.v.Element > 0, RotationK: g.rotation, RotationV: g.rotation}
			for range 30 {
				want.Layers = append(want.Layers, llamacpp.Layer{K: g.k, V: g.v})
			}
			geo := st.Geometry()
			if !geo.Equal(want) {
				t.Errorf("geometry %+v, want %+v", geo, want)
			}
			if n := 30 * (g.k.Row + g.v.Row); geo.TokenBytes() != n || geo.BlockBytes(16) != 16*n {
				t.Errorf("%d bytes a token and %d a block of 16, want %d and %d", geo.TokenBytes(), geo.BlockBytes(16), n, 16*n)
			}
			m := llamacpp.Manifest("acme", llamacpp.Model{Name: "smollm2", Hash: [32]byte{0xab, 31: 0xcd}, Build: "b1-7e4c0a9"}, geo, 16)
			if err := m.Check(); err != nil {
				t.Error(err)
			}
			if want := (wire.Manifest{
				Tenant: "acme", Model: "smollm2", Role: "kv", HashScheme: "meridian-llamacpp-v1",
				Revision: "ab000000000000000000000000000000000000000000000000000000000000cd llama.cpp b1-7e4c0a9",
				Dtype:    g.dtype, Layout: g.layout, BlockTokens: 16, BlockBytes: uint32(16 * 30 * (g.k.Row + g.v.Row)),
				LayerLast: 29, TPSize: 1, PPSize: 1, DCPSize: 1,
			}); m != want {
				t.Errorf("manifest\n%s\nwant\n%s", m.Append(nil), want.Append(nil))
			}
		})
	}
}

func TestBlocksInAnyOrderMakeTheFileOfSlot0(t *testing.T) {
	for i := range goldens {
		g := &goldens[i]
		for _, bt := range []int{1, 2, 3, 1000} {
			t.Run(fmt.Sprintf("%s/%d", g.file, bt), func(t *testing.T) {
				want := goldenFile(t, g.file)
				got := recut(t, want, len(g.prompt), bt)
				if g.like != "" {
					if bytes.Equal(got, want) {
						t.Error("the file of another slot is that of slot 0")
					}
					want = goldenFile(t, g.like)
				}
				same(t, got, want)
			})
		}
	}
}

// frame lists the bytes of a state of slot 0 that are no rows, and some of each
// tensor's rows.
func frame(g llamacpp.Geometry, tokens int) (rest, rows []int) {
	at := 0
	add := func(n int) {
		for range n {
			rest = append(rest, at)
			at++
		}
	}
	skip := func(n int) {
		rows = append(rows, at, at+n/3, at+n-1)
		at += n
	}
	add(24 + 4*tokens + 4) // magic to the end of the token list
	add(8 + 12*tokens + 8) // streams to layers
	if g.Version == 4 {
		add(8)
	}
	for _, l := range g.Layers {
		add(12)
		skip(l.K.Row * tokens)
	}
	for _, l := range g.Layers {
		add(12)
		skip(l.V.Row * tokens)
	}
	add(4 * int(g.Streams-1)) // streams without a cell
	return rest, rows
}

func TestAGoldenCutAnywhereIsRefused(t *testing.T) {
	for i := range goldens {
		g := &goldens[i]
		if g.like != "" {
			continue
		}
		state := goldenFile(t, g.file)
		rest, rows := frame(open(t, state).Geometry(), len(g.prompt))
		if last := max(rest[len(rest)-1], rows[len(rows)-1]); last != len(state)-1 {
			t.Fatalf("%s: the last byte is %d, want %d", g.file, len(state)-1, last)
		}
		for _, n := range append(rest, rows...) {
			_, err := llamacpp.OpenState(bytes.NewReader(state[:n]), int64(n))
			var se *llamacpp.StateError
			if !errors.As(err, &se) || !errors.Is(err, io.ErrUnexpectedEOF) || se.Offset > int64(n) {
				t.Errorf("%s cut at %d: %v", g.file, n, err)
			}
		}
	}
}

// There is no checksum, but a bit that is wrong outside of the rows is seen: by
// the reader, or by who compares tokens and geometry.
func TestAWrongBitOutsideOfTheRowsIsSeen(t *testing.T) {
	for _, file := range []string{"q8_0-slot0", "v4-q8_0-slot0"} {
		seesEachWrongBit(t, goldenFile(t, file))
	}
}

func seesEachWrongBit(t *testing.T, state []byte) {
	t.Helper()
	good := open(t, state)
	rest, _ := frame(good.Geometry(), len(good.Tokens()))
	for _, at := range rest {
		for bit := range 8 {
			state[at] ^= 1 << bit
			st, err := llamacpp.OpenState(bytes.NewReader(state), int64(len(state)))
			var se *llamacpp.StateError
			switch {
			case err != nil && !errors.As(err, &se):
				t.Errorf("bit %d of byte %d: %v", bit, at, err)
			case err == nil && st.Geometry().Equal(good.Geometry()) && slices.Equal(st.Tokens(), good.Tokens()):
				t.Errorf("bit %d of byte %d changed nothing", bit, at)
			}
			state[at] ^= 1 << bit
		}
	}
}

func open(t *testing.T, state []byte) *llamacpp.State {
	t.Helper()
	st, err := llamacpp.OpenState(bytes.NewReader(state), int64(len(state)))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// recut takes a state's first n tokens to blocks of bt tokens, and makes a state
// of them.
func recut(t *testing.T, state []byte, n, bt int) []byte {
	t.Helper()
	st := open(t, state)
	w := new(memory)
	a, err := llamacpp.NewAssembler(w, st.Geometry(), st.Tokens()[:n], bt)
	if err != nil {
		t.Fatal(err)
	}
	blocks := (n + bt - 1) / bt
	for at, i := range rand.Perm(blocks) {
		if err := a.Finish(); err == nil {
			t.Fatalf("finished with %d of %d blocks", at, blocks)
		}
		b := make([]byte, a.BlockBytes(i))
		if err := st.ReadBlock(i*bt, min(bt, n-i*bt), b); err != nil {
			t.Fatal(err)
		}
		if err := a.WriteBlock(i, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Finish(); err != nil {
		t.Fatal(err)
	}
	return *w
}

// memory is a file.
type memory []byte

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	if end := int(at) + len(p); end > len(*m) {
		*m = append(*m, make([]byte, end-len(*m))...)
	}
	return copy((*m)[at:], p), nil
}

// same fails at the first byte that differs.
func same(t *testing.T, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("byte %d of %d is %#x, want %#x", i, len(want), got[i], want[i])
		}
	}
	t.Fatalf("%d bytes, want %d", len(got), len(want))
}
