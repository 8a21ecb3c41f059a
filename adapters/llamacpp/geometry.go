package llamacpp

import (
	"fmt"
	"slices"
	"strings"
)

// Geometry is how a server lays the KV of its tokens out. Two servers with equal
// geometries can read each other's states.
type Geometry struct {
	Version    uint32 // of the state file
	Streams    uint32 // one a slot, or one for all
	Transposed bool   // V, where flash attention is off
	// Elements that are rotated together before they are quantised; 0: not at all.
	// Version 2 has no rotation.
	RotationK, RotationV uint32
	Layers               []Layer
}

// Layer is one layer's part of a token.
type Layer struct{ K, V Tensor }

// Tensor is a layer's K or V.
type Tensor struct {
	Type    int32 // ggml's number
	Row     int   // bytes a token
	Element int   // bytes of an element, of a transposed V; else 0
}

// kind is a type of ggml: so many elements make one block of so many bytes.
type kind struct {
	name            string
	elements, bytes int
}

// kinds are those that llama-server takes for its cache, by ggml's number.
var kinds = map[int32]kind{
	0: {"f32", 1, 4}, 1: {"f16", 1, 2}, 30: {"bf16", 1, 2},
	2: {"q4_0", 32, 18}, 3: {"q4_1", 32, 20}, 6: {"q5_0", 32, 22}, 7: {"q5_1", 32, 24}, 8: {"q8_0", 32, 34}, 20: {"iq4_nl", 32, 18},
}

// Equal says whether two servers can read each other's states.
func (g Geometry) Equal(o Geometry) bool {
	return g.Version == o.Version && g.Streams == o.Streams && g.Transposed == o.Transposed &&
		g.RotationK == o.RotationK && g.RotationV == o.RotationV && slices.Equal(g.Layers, o.Layers)
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

// check says why there can be no state of this geometry.
func (g Geometry) check() error {
	switch {
	case !knownVersion(g.Version):
		return fmt.Errorf("version %d: this build writes versions %s", g.Version, stateVersions)
	case !g.rotates() && (g.RotationK != 0 || g.RotationV != 0):
		return fmt.Errorf("rotations of %d and %d: version %d has none", g.RotationK, g.RotationV, g.Version)
	case g.RotationK > maxRotation || g.RotationV > maxRotation:
		return fmt.Errorf("rotations of %d and %d are not both at most %d", g.RotationK, g.RotationV, maxRotation)
	case g.Streams < 1 || g.Streams > maxStreams:
		return fmt.Errorf("%d streams are not between 1 and %d", g.Streams, maxStreams)
	case len(g.Layers) < 1 || len(g.Layers) > maxLayers:
		return fmt.Errorf("%d layers are not between 1 and %d", len(g.Layers), maxLayers)
	}
	for i, l := range g.Layers {
		if text := l.K.wrong(false); text != "" {
			return fmt.Errorf("layer %d, K: %s", i, text)
		}
		if text := l.V.wrong(g.Transposed); text != "" {
			return fmt.Errorf("layer %d, V: %s", i, text)
		}
	}
	return nil
}

// rotates says whether states of the geometry's version tell of rotations.
func (g Geometry) rotates() bool { return g.Version == stateVersionRotated }

// wrong says what is wrong with a tensor, "" if nothing.
func (t Tensor) wrong(transposed bool) string {
	k, ok := kinds[t.Type]
	switch {
	case !ok:
		return fmt.Sprintf("type %d is none that this build knows", t.Type)
	case t.Row < 1 || t.Row > maxRow:
		return fmt.Sprintf("rows of %d bytes are not between 1 and %d", t.Row, maxRow)
	case t.Row%k.bytes != 0:
		return fmt.Sprintf("rows of %d bytes are no whole number of %s's %d", t.Row, k.name, k.bytes)
	case !transposed && t.Element != 0:
		return fmt.Sprintf("elements of %d bytes, though it is not transposed", t.Element)
	case transposed && k.elements > 1:
		return fmt.Sprintf("%s cannot be transposed: it has no single elements", k.name)
	case transposed && t.Element != k.bytes:
		return fmt.Sprintf("elements of %d bytes; %s has %d", t.Element, k.name, k.bytes)
	}
	return ""
}

// dtype names the types of K and V, once where layers that follow each other have
// the same.
func (g Geometry) dtype() string {
	var names []string
	for _, l := range g.Layers {
		n := kinds[l.K.Type].name + "/" + kinds[l.V.Type].name
		if len(names) == 0 || names[len(names)-1] != n {
			names = append(names, n)
		}
	}
	return strings.Join(names, " ")
}

// layout says everything, layers of equal types and rows as one.
func (g Geometry) layout() string {
	var b strings.Builder
	v := "rows"
	if g.Transposed {
		v = "transposed"
	}
	fmt.Fprintf(&b, "llamacpp-state%d streams=%d v=%s", g.Version, g.Streams, v)
	if g.rotates() {
		fmt.Fprintf(&b, " rotation=%d+%d", g.RotationK, g.RotationV)
	}
	for i := 0; i < len(g.Layers); {
		from, l := i, g.Layers[i]
		for i < len(g.Layers) && g.Layers[i] == l {
			i++
		}
		fmt.Fprintf(&b, " %dx%s:%d+%s:%d", i-from, kinds[l.K.Type].name, l.K.Row, kinds[l.V.Type].name, l.V.Row)
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
