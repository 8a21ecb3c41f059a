package llamacpp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"github.com/zeebo/blake3"

	"meridian/wire"
)

func TestAChainHashIsTheDocumentedOne(t *testing.T) {
	tokens := []int32{1, 2, 49151, 4, 5}
	parent := make([]byte, 32)
	var want [][32]byte
	for _, block := range [][]int32{tokens[:2], tokens[2:4], tokens[4:]} {
		var b bytes.Buffer
		b.WriteString("meridian-llamacpp-v1\n")
		b.Write(parent)
		for _, v := range append([]int32{int32(len(block))}, block...) {
			_ = binary.Write(&b, binary.LittleEndian, v)
		}
		sum := blake3.Sum256(b.Bytes())
		want, parent = append(want, sum), sum[:]
	}
	got := Chain(tokens, 2)
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %x, want %x", got, want)
	}
	const last = "541441a0a9bc3b82ab6ec81f51ad95109cc5ec6ac6b774bc6eaa6bcbf23f7659"
	if s := hex.EncodeToString(got[2][:]); s != last {
		t.Errorf("the hash of the last block is %s; keys that are stored have %s", s, last)
	}
}

func TestAChainNamesABlockAndAllBeforeIt(t *testing.T) {
	seen := map[[32]byte]string{}
	add := func(what string, h [32]byte) {
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", what, other)
		}
		seen[h] = what
	}
	tokens := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	full := Chain(tokens, 4)
	add("1-4", full[0])
	add("5-8 after 1-4", full[1])
	add("5-8", Chain(tokens[4:], 4)[0])
	for n := 1; n < 4; n++ { // short blocks, at the beginning and at the end
		add("short", Chain(tokens[:n], 4)[0])
		c := Chain(tokens[:4+n], 4)
		if c[0] != full[0] {
			t.Error("a full block's hash depends on what follows it")
		}
		add("short tail", c[1])
	}
	add("a zero more", Chain([]int32{1, 2, 3, 4, 0}, 5)[0])
	add("a zero in front", Chain([]int32{0, 1, 2, 3, 4}, 5)[0])
	add("zeros", Chain(make([]int32, 3), 4)[0])
	add("more zeros", Chain(make([]int32, 4), 4)[0])
	if got := Chain(tokens, math.MaxInt); len(got) != 1 || got[0] != Chain(tokens, 8)[0] {
		t.Error("a block size beyond the tokens changes their hash")
	}
	if got := Chain(nil, 4); len(got) != 0 {
		t.Errorf("no tokens have %d hashes", len(got))
	}
}

func TestManifestsOfServersThatDifferShareNoKey(t *testing.T) {
	model := Model{Name: "m", Hash: [32]byte{1}, Build: "b1"}
	seen := map[wire.Namespace]string{}
	add := func(what string, m wire.Manifest) {
		if err := m.Check(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if other, ok := seen[m.Namespace()]; ok {
			t.Errorf("%s and %s have one namespace: %s", what, other, m.Append(nil))
		}
		seen[m.Namespace()] = what
	}
	for name, g := range geometries() {
		add(name, Manifest("t", model, g, 16))
	}
	g := geometries()["base"]
	add("tenant", Manifest("u", model, g, 16))
	add("block", Manifest("t", model, g, 32))
	add("name", Manifest("t", Model{Name: "n", Hash: model.Hash, Build: "b1"}, g, 16))
	add("build", Manifest("t", Model{Name: "m", Hash: model.Hash, Build: "b2"}, g, 16))
	last := model.Hash
	last[31] = 1
	add("hash", Manifest("t", Model{Name: "m", Hash: last, Build: "b1"}, g, 16))
}

func TestAManifestTellsTheSizesOfBlocks(t *testing.T) {
	g := geometries()["base"]
	m := Manifest("t", Model{Name: "m"}, g, 16)
	if m.BlockTokens != 16 || m.BlockBytes != uint32(g.BlockBytes(16)) || m.LayerFirst != 0 || m.LayerLast != 1 || m.HashScheme != HashScheme || m.Role != "kv" {
		t.Errorf("%+v", m)
	}
	if m.Dtype != "f16/f16" || m.Layout != "llamacpp-state2 streams=2 v=rows 2xf16:6+f16:6" {
		t.Errorf("dtype %q, layout %q", m.Dtype, m.Layout)
	}
	for i := range g.Layers {
		g.Layers[i].K.Row = maxRow
	}
	if m := Manifest("t", Model{Name: "m"}, g, 1<<20); m.BlockBytes != 1<<32-1 {
		t.Errorf("blocks of 2 TiB are said to have %d bytes", m.BlockBytes)
	}
}

// A model whose layers all differ has a layout that no manifest holds.
func TestALayoutThatDoesNotFitIsRefusedByCheck(t *testing.T) {
	g := geometries()["base"]
	g.Layers = nil
	for i := range 100 {
		g.Layers = append(g.Layers, Layer{Tensor{Type: 1, Row: 2 + 2*i}, Tensor{Type: 1, Row: 2}})
	}
	var me *wire.ManifestError
	if err := Manifest("t", Model{Name: "m"}, g, 16).Check(); !errors.As(err, &me) || me.Key != "layout" {
		t.Error(err)
	}
}
