package llamacpp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Geometry is how a server lays the KV of its tokens out. Two servers with equal
// geometries can read each other's states.
type Geometry struct {
	Version    uint32 // of the state file
	Streams    uint32 // one a slot, or one for all
	Transposed bool   // V, where flash attention is off
	Layers     []Layer
}

// Layer is one layer's part of a token.
type Layer struct{ K, V Tensor }

// Tensor is a layer's K or V.
type Tensor struct {
	Type    int32 // ggml's number
	Row     int   // bytes a token
	Element int   // bytes of an element, of a transposed V; else 0
}

// typeNames are ggml's, of the types that llama-server takes for its cache.
var typeNames = map[int32]string{0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 20: "iq4_nl", 30: "bf16"}

func typeName(t int32) string {
	if n, ok := typeNames[t]; ok {
		return n
	}
	return "ggml" + strconv.Itoa(int(t))
}

// Equal says whether two servers can read each other's states.
func (g Geometry) Equal(o Geometry) bool {
	return g.Version == o.Version && g.Streams == o.Streams && g.Transposed == o.Transposed && slices.Equal(g.Layers, o.Layers)
}

// TokenBytes is the size of one token's rows in all layers.
func (g Geometry) TokenBytes() int {
	n := 0
	for i := range g.Layers {
		n += g.Layers[i].K.Row + g.Layers[i].V.Row
	}
	return n
}

// BlockBytes is the size of a block of n tokens.
func (g Geometry) BlockBytes(n int) int { return n * g.TokenBytes() }

// dtype names the types of K and V, once where all layers have the same.
func (g Geometry) dtype() string {
	var names []string
	for i := range g.Layers {
		n := typeName(g.Layers[i].K.Type) + "/" + typeName(g.Layers[i].V.Type)
		if len(names) == 0 || names[len(names)-1] != n {
			names = append(names, n)
		}
	}
	return strings.Join(names, " ")
}

// layout says everything else, layers of equal rows as one.
func (g Geometry) layout() string {
	var b strings.Builder
	fmt.Fprintf(&b, "llamacpp-state%d streams=%d v=", g.Version, g.Streams)
	if g.Transposed {
		b.WriteString("transposed")
	} else {
		b.WriteString("rows")
	}
	for i := 0; i < len(g.Layers); {
		from, l := i, g.Layers[i]
		for i < len(g.Layers) && g.Layers[i] == l {
			i++
		}
		fmt.Fprintf(&b, " %dx%d+%d", i-from, l.K.Row, l.V.Row)
		if g.Transposed {
			fmt.Fprintf(&b, "/%d", l.V.Element)
		}
	}
	return b.String()
}

// pieces visits the parts of the block of tokens first to first+n-1, in the
// block's order: where each lies in a state of total tokens whose layers' rows begin at k
// and v, and its part of the block.
func (g Geometry) pieces(k, v []int64, total, first, n int, block []byte, visit func(at int64, p []byte) error) error {
	next := func(size int) []byte {
		p := block[:size]
		block = block[size:]
		return p
	}
	for i := range g.Layers {
		row := g.Layers[i].K.Row
		if err := visit(k[i]+int64(first)*int64(row), next(n*row)); err != nil {
			return err
		}
	}
	for i := range g.Layers {
		t := g.Layers[i].V
		if !g.Transposed {
			if err := visit(v[i]+int64(first)*int64(t.Row), next(n*t.Row)); err != nil {
				return err
			}
			continue
		}
		for r := range t.Row / t.Element {
			at := v[i] + (int64(r)*int64(total)+int64(first))*int64(t.Element)
			if err := visit(at, next(n*t.Element)); err != nil {
				return err
			}
		}
	}
	return nil
}
