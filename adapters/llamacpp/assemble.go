package llamacpp

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// Assembler writes a state file out of blocks, which may come in any order. It
// keeps none of their bytes, and is not safe for use by two goroutines at once.
type Assembler struct {
	w           io.WriterAt
	geo         Geometry
	tokens      int
	blockTokens int
	k, v        []int64
	have        []bool
	left        int
}

// NewAssembler writes all of a state of these tokens but the rows, as the server
// would have saved it from slot 0; any slot of a server of this geometry restores
// it. w should be empty: nothing is cut off, and what has not been written by the
// time of Finish is missing.
func NewAssembler(w io.WriterAt, g Geometry, tokens []int32, blockTokens int) (*Assembler, error) {
	switch {
	case len(tokens) == 0 || len(tokens) > MaxTokens:
		return nil, fmt.Errorf("slot state: %d tokens are not between 1 and %d", len(tokens), MaxTokens)
	case blockTokens < 1:
		return nil, fmt.Errorf("slot state: blocks of %d tokens", blockTokens)
	}
	if i := slices.IndexFunc(tokens, func(t int32) bool { return t < 0 }); i >= 0 {
		return nil, fmt.Errorf("slot state: token %d is %d, which is no id", i, tokens[i])
	}
	if err := g.check(); err != nil {
		return nil, fmt.Errorf("slot state: %w", err)
	}
	n := (len(tokens)-1)/blockTokens + 1
	a := &Assembler{w: w, geo: g, tokens: len(tokens), blockTokens: blockTokens, have: make([]bool, n), left: n}
	if err := a.frame(tokens); err != nil {
		return nil, err
	}
	return a, nil
}

// section is a WriterAt from an offset on.
type section struct {
	w  io.WriterAt
	at int64
}

func (s *section) Write(p []byte) (int, error) {
	n, err := s.w.WriteAt(p, s.at)
	s.at += int64(n)
	return n, err
}

// frame writes what is not a row.
func (a *Assembler) frame(tokens []int32) error {
	s := &section{w: a.w}
	b := bufio.NewWriterSize(s, 64<<10)
	var at int64
	put := func(vs ...uint32) {
		var p [4]byte
		for _, v := range vs {
			binary.LittleEndian.PutUint32(p[:], v)
			_, _ = b.Write(p[:]) // Flush tells
		}
		at += int64(4 * len(vs))
	}
	jump := func(n int64) error {
		if err := b.Flush(); err != nil {
			return err
		}
		at += n
		s.at = at
		return nil
	}
	n := uint32(len(tokens))
	put(stateMagic, a.geo.Version, n+4, ^uint32(0), 1, n)
	for _, t := range tokens {
		put(uint32(t))
	}
	put(0, a.geo.Streams, n)
	for i := range n {
		put(i, 1, 0)
	}
	transposed := uint32(0)
	if a.geo.Transposed {
		transposed = 1
	}
	put(transposed, uint32(len(a.geo.Layers)))
	if a.geo.rotates() {
		put(a.geo.RotationK, a.geo.RotationV)
	}
	a.k, a.v = make([]int64, len(a.geo.Layers)), make([]int64, len(a.geo.Layers))
	for i, l := range a.geo.Layers {
		t := l.K
		put(uint32(t.Type), uint32(t.Row), 0)
		a.k[i] = at
		if err := jump(int64(t.Row) * int64(n)); err != nil {
			return err
		}
	}
	for i, l := range a.geo.Layers {
		t := l.V
		if a.geo.Transposed {
			put(uint32(t.Type), uint32(t.Element), uint32(t.Row/t.Element))
		} else {
			put(uint32(t.Type), uint32(t.Row), 0)
		}
		a.v[i] = at
		if err := jump(int64(t.Row) * int64(n)); err != nil {
			return err
		}
	}
	for range a.geo.Streams - 1 {
		put(0)
	}
	return b.Flush()
}

// BlockBytes is how long block i must be; 0 beyond the last.
func (a *Assembler) BlockBytes(i int) int { return a.geo.BlockBytes(a.count(i)) }

func (a *Assembler) count(i int) int {
	if i < 0 || i >= len(a.have) {
		return 0
	}
	return min(a.blockTokens, a.tokens-i*a.blockTokens)
}

// WriteBlock puts block i into its place.
func (a *Assembler) WriteBlock(i int, body []byte) error {
	if i < 0 || i >= len(a.have) {
		return fmt.Errorf("slot state: block %d of a state of %d", i, len(a.have))
	}
	if want := a.BlockBytes(i); len(body) != want {
		return fmt.Errorf("slot state: block %d has %d bytes; a block of %d tokens has %d", i, len(body), a.count(i), want)
	}
	err := a.geo.pieces(a.k, a.v, a.tokens, i*a.blockTokens, a.count(i), body, func(at int64, p []byte) error {
		_, err := a.w.WriteAt(p, at)
		return err
	})
	if err == nil && !a.have[i] {
		a.have[i] = true
		a.left--
	}
	return err
}

// Finish says whether every block is there.
func (a *Assembler) Finish() error {
	if a.left == 0 {
		return nil
	}
	for i, ok := range a.have {
		if !ok {
			return fmt.Errorf("slot state: %d of %d blocks are missing, block %d first", a.left, len(a.have), i)
		}
	}
	return nil
}
