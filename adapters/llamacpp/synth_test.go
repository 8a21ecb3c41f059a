package llamacpp

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// mark is where a field of a synthetic state begins.
type mark struct {
	field string
	at    int
}

// synth writes states by hand, field after field, and remembers where each is.
type synth struct {
	b     []byte
	marks []mark
}

func (s *synth) u32(field string, vs ...uint32) {
	for _, v := range vs {
		s.marks = append(s.marks, mark{field, len(s.b)})
		s.b = binary.LittleEndian.AppendUint32(s.b, v)
	}
}

func (s *synth) u64(field string, v uint64) {
	s.marks = append(s.marks, mark{field, len(s.b)})
	s.b = binary.LittleEndian.AppendUint64(s.b, v)
}

// rows are bytes that tell apart where they are.
func (s *synth) rows(field string, n int) {
	s.marks = append(s.marks, mark{field, len(s.b)})
	for range n {
		s.b = append(s.b, byte(len(s.b)*7+len(s.b)>>8))
	}
}

// where is the offset of the nth field of a name.
func (s *synth) where(field string, nth int) int {
	for _, m := range s.marks {
		if m.field == field {
			if nth == 0 {
				return m.at
			}
			nth--
		}
	}
	panic("no field " + field)
}

// state is a state as slot would have it.
func synthState(g Geometry, tokens []int32, slot int) *synth {
	s := &synth{}
	n := uint32(len(tokens))
	s.u32("magic", stateMagic)
	s.u32("version", g.Version)
	s.u32("token list", n+4, ^uint32(0), 1)
	s.u32("token count", n)
	for _, t := range tokens {
		s.u32("tokens", uint32(t))
	}
	s.u32("end of the token list", 0)
	s.u32("streams", g.Streams)
	for stream := range g.Streams {
		if g.Streams > 1 && int(stream) != slot {
			s.u32("cells", 0)
			continue
		}
		s.u32("cells", n)
		for i := range n {
			s.u32("position", i)
			s.u32("sequences", 1)
			s.u32("sequence", uint32(slot))
		}
		s.layers(g, len(tokens))
	}
	return s
}

func (s *synth) layers(g Geometry, n int) {
	transposed := uint32(0)
	if g.Transposed {
		transposed = 1
	}
	s.u32("transposed", transposed)
	s.u32("layers", uint32(len(g.Layers)))
	if g.Version == 4 {
		s.u32("K rotation", g.RotationK)
		s.u32("V rotation", g.RotationV)
	}
	for _, l := range g.Layers {
		s.u32("K type", uint32(l.K.Type))
		s.u64("K row bytes", uint64(l.K.Row))
		s.rows("K rows", l.K.Row*n)
	}
	for _, l := range g.Layers {
		s.u32("V type", uint32(l.V.Type))
		if g.Transposed {
			s.u32("V element bytes", uint32(l.V.Element))
			s.u32("V row count", uint32(l.V.Row/l.V.Element))
		} else {
			s.u64("V row bytes", uint64(l.V.Row))
		}
		s.rows("V rows", l.V.Row*n)
	}
}

// Geometries that differ in one thing each from the first.
func geometries() map[string]Geometry {
	f16 := Tensor{Type: 1, Row: 6}
	base := func() Geometry {
		return Geometry{Version: 2, Streams: 2, Layers: []Layer{{f16, f16}, {f16, f16}}}
	}
	with := func(change func(*Geometry)) Geometry {
		g := base()
		change(&g)
		return g
	}
	return map[string]Geometry{
		"base":                  base(),
		"one stream":            with(func(g *Geometry) { g.Streams = 1 }),
		"three":                 with(func(g *Geometry) { g.Streams = 3 }),
		"version 4":             with(func(g *Geometry) { g.Version = 4 }),
		"K rotated":             with(func(g *Geometry) { g.Version, g.RotationK = 4, 64 }),
		"V rotated":             with(func(g *Geometry) { g.Version, g.RotationV = 4, 64 }),
		"version 4, transposed": with(func(g *Geometry) { g.Version = 4; g.transpose() }),
		"transposed":            with(func(g *Geometry) { g.transpose() }),
		"bf16": with(func(g *Geometry) {
			g.Layers = slices.Repeat([]Layer{{Tensor{Type: 30, Row: 6}, Tensor{Type: 30, Row: 6}}}, 2)
		}),
		"q8_0 K":      with(func(g *Geometry) { g.Layers = slices.Repeat([]Layer{{Tensor{Type: 8, Row: 34}, f16}}, 2) }),
		"q8_0 V":      with(func(g *Geometry) { g.Layers = slices.Repeat([]Layer{{f16, Tensor{Type: 8, Row: 34}}}, 2) }),
		"one layer":   with(func(g *Geometry) { g.Layers = g.Layers[:1] }),
		"longer rows": with(func(g *Geometry) { g.Layers[1].V.Row = 8 }),
		"other place": with(func(g *Geometry) { g.Layers[0].V.Row = 8 }),
		"mixed":       with(func(g *Geometry) { g.Layers[0].K.Type, g.Layers[0].V.Row = 30, 8 }),
		"mixed too":   with(func(g *Geometry) { g.Layers[1].K.Type, g.Layers[0].V.Row = 30, 8 }),
	}
}

// transpose makes V's layout that of a server without flash attention.
func (g *Geometry) transpose() {
	g.Transposed = true
	for i := range g.Layers {
		g.Layers[i].V.Element = kinds[g.Layers[i].V.Type].bytes
	}
}

// memory is a file in memory.
type memory struct{ b []byte }

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	if end := int(at) + len(p); end > len(m.b) {
		m.b = append(m.b, make([]byte, end-len(m.b))...)
	}
	return copy(m.b[at:], p), nil
}

func (m *memory) ReadAt(p []byte, at int64) (int, error) {
	if at >= int64(len(m.b)) {
		return 0, io.EOF
	}
	n := copy(p, m.b[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func openBytes(b []byte) (*State, error) { return OpenState(&memory{b}, int64(len(b))) }

// rebuild splits the first n tokens of a state and joins them in an order.
func rebuild(s *State, n, blockTokens int, order func(n int) []int) ([]byte, error) {
	var out memory
	a, err := NewAssembler(&out, s.Geometry(), s.Tokens()[:n], blockTokens)
	if err != nil {
		return nil, err
	}
	blocks := (n + blockTokens - 1) / blockTokens
	for _, i := range order(blocks) {
		body := make([]byte, a.BlockBytes(i))
		if err := s.ReadBlock(i*blockTokens, min(blockTokens, n-i*blockTokens), body); err != nil {
			return nil, fmt.Errorf("block %d: %w", i, err)
		}
		if err := a.WriteBlock(i, body); err != nil {
			return nil, err
		}
	}
	return out.b, a.Finish()
}

func forwards(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
