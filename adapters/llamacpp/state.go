package llamacpp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The versions of state files that are read and written. A server takes only its
// own, so a state is written in the version that the server's own states have.
const (
	stateMagic          = 0x67677371
	stateVersionPlain   = 2
	stateVersionRotated = 4 // says how K and V are rotated
	stateVersions       = "2 and 4"
)

func knownVersion(v uint32) bool { return v == stateVersionPlain || v == stateVersionRotated }

// Bounds of what a state may say of itself, checked before anything is allocated.
const (
	MaxTokens  = 1 << 22
	maxStreams = 256
	maxLayers  = 1024
	maxRow     = 1 << 20 // bytes of a layer's K or V for one token
	maxElement = 8       // bytes of one number

	maxRotation = 1 << 16 // elements
)

// StateError says what is wrong with a state file, and where.
type StateError struct {
	Field  string
	Offset int64
	Text   string
	Err    error // io.ErrUnexpectedEOF for a truncated one, or that of the reader
}

func (e *StateError) Error() string {
	return fmt.Sprintf("slot state: %s at byte %d: %s", e.Field, e.Offset, e.Text)
}

// Unwrap returns what the reader said.
func (e *StateError) Unwrap() error { return e.Err }

// State is a state file of one sequence that has been looked through. It reads
// from the file when blocks are asked for.
type State struct {
	r      io.ReaderAt
	size   int64
	tokens []int32
	geo    Geometry
	k, v   []int64 // offsets of each layer's rows
}

// Tokens are those whose KV the state holds. They must not be changed.
func (s *State) Tokens() []int32 { return s.tokens }

// Geometry is how the rows lie.
func (s *State) Geometry() Geometry { return s.geo }

// OpenState looks a state file of size bytes through: all but the rows is read
// and checked. The error is a *StateError.
func OpenState(r io.ReaderAt, size int64) (*State, error) {
	s := &State{r: r, size: size}
	c := &cursor{r: r, size: size}
	s.header(c)
	stream := s.streams(c)
	if c.err == nil && c.at != size {
		c.last = c.at
		c.fail("end", "%d bytes follow the last field", size-c.at)
	}
	if !stream {
		c.fail("streams", "no stream has a cell")
	}
	if c.err != nil {
		return nil, c.err
	}
	return s, nil
}

func (s *State) header(c *cursor) {
	if m := c.u32("magic"); m != stateMagic {
		c.fail("magic", "%#x is no slot state: want %#x", m, stateMagic)
	}
	s.geo.Version = c.u32("version")
	if !knownVersion(s.geo.Version) {
		c.fail("version", "state version %d: this build reads versions %s", s.geo.Version, stateVersions)
	}
	packed := c.count("token list", 4+MaxTokens)
	lead := [3]int32{c.i32("token list"), c.i32("token list"), c.i32("token count")}
	if c.err != nil {
		return
	}
	n := int(lead[2])
	if lead[0] != -1 || lead[1] != 1 || n < 0 || n+4 != packed {
		c.fail("token list", "%d entries that begin with %v: want -1, 1, N and N+4 of them", packed, lead)
		return
	}
	if int64(n)*4 > c.size-c.at {
		c.short("tokens")
		return
	}
	s.tokens = make([]int32, n)
	for i := range s.tokens {
		if s.tokens[i] = c.i32("tokens"); s.tokens[i] < 0 {
			c.fail("tokens", "token %d is %d, which is no id", i, s.tokens[i])
		}
	}
	if end := c.i32("end of the token list"); end != 0 {
		c.fail("end of the token list", "%d, want 0", end)
	}
}

// streams reads all of them, and says whether one has cells.
func (s *State) streams(c *cursor) (found bool) {
	n := c.count("streams", maxStreams)
	s.geo.Streams = uint32(n)
	for range n {
		cells := c.count("cells", MaxTokens)
		if c.err != nil {
			return
		}
		if cells == 0 {
			continue
		}
		if found {
			c.fail("cells", "a second stream has cells: only states of one sequence are read")
			return
		}
		found = true
		if cells != len(s.tokens) {
			c.fail("cells", "%d cells for %d tokens", cells, len(s.tokens))
			return
		}
		s.cells(c)
		s.layers(c)
	}
	return found
}

// cells must be the positions from 0 on of one sequence.
func (s *State) cells(c *cursor) {
	var own int32
	for i := range s.tokens {
		if pos := c.i32("position"); int(pos) != i {
			c.fail("position", "cell %d is position %d: only states of all positions from 0 on are read", i, pos)
		}
		if n := c.u32("sequences"); n != 1 {
			c.fail("sequences", "cell %d belongs to %d sequences: only states of one are read", i, n)
		}
		seq := c.i32("sequence")
		if i == 0 {
			own = seq
		}
		if seq != own {
			c.fail("sequence", "cell %d belongs to sequence %d and the first to %d: only states of one are read", i, seq, own)
		}
		if c.err != nil {
			return
		}
	}
}

func (s *State) layers(c *cursor) {
	trans := c.u32("transposed")
	if trans > 1 {
		c.fail("transposed", "%d, want 0 or 1", trans)
	}
	s.geo.Transposed = trans == 1
	n := c.count("layers", maxLayers)
	if n == 0 {
		c.fail("layers", "there is none")
	}
	if s.geo.rotates() {
		s.geo.RotationK = uint32(c.count("K rotation", maxRotation))
		s.geo.RotationV = uint32(c.count("V rotation", maxRotation))
	}
	if c.err != nil {
		return
	}
	s.geo.Layers = make([]Layer, n)
	s.k, s.v = make([]int64, n), make([]int64, n)
	for i := range s.geo.Layers {
		l := &s.geo.Layers[i]
		l.K.Type = c.kind("K type")
		l.K.Row = c.row("K row bytes")
		c.tensor("K row bytes", l.K, false)
		s.k[i] = c.skip("K rows", l.K.Row, len(s.tokens))
	}
	for i := range s.geo.Layers {
		l := &s.geo.Layers[i]
		l.V.Type = c.kind("V type")
		if s.geo.Transposed {
			l.V.Element = c.count("V element bytes", maxElement)
			l.V.Row = l.V.Element * c.count("V rows", maxRow)
			c.tensor("V rows", l.V, true)
		} else {
			l.V.Row = c.row("V row bytes")
			c.tensor("V row bytes", l.V, false)
		}
		s.v[i] = c.skip("V rows", l.V.Row, len(s.tokens))
	}
}

// ReadBlock reads the rows of tokens first to first+n-1 into dst, which must have
// Geometry().BlockBytes(n) bytes, in the order of a block.
func (s *State) ReadBlock(first, n int, dst []byte) error {
	if first < 0 || n < 1 || first > len(s.tokens)-n {
		return fmt.Errorf("slot state: tokens %d to %d are not in a state of %d", first, first+n, len(s.tokens))
	}
	if want := s.geo.BlockBytes(n); len(dst) != want {
		return fmt.Errorf("slot state: a block of %d tokens has %d bytes, not %d", n, want, len(dst))
	}
	return s.geo.pieces(s.k, s.v, len(s.tokens), first, n, dst, func(at int64, p []byte) error {
		got, err := s.r.ReadAt(p, at)
		if got == len(p) {
			return nil
		}
		return unread("rows", at+int64(got), err)
	})
}

// unread is the error of a read that gave less than what the file's size promised.
func unread(field string, at int64, err error) *StateError {
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &StateError{Field: field, Offset: at, Text: err.Error(), Err: err}
}

// cursor reads fields in order and keeps the first error.
type cursor struct {
	r    io.ReaderAt
	size int64
	at   int64
	last int64 // where the field that was read last begins
	buf  *bufio.Reader
	from int64 // where buf is
	room [8]byte
	err  error
}

// fail is about the field that was read last.
func (c *cursor) fail(field, format string, args ...any) {
	if c.err == nil {
		c.err = &StateError{Field: field, Offset: c.last, Text: fmt.Sprintf(format, args...)}
	}
}

// short is about the field that comes next.
func (c *cursor) short(field string) {
	if c.err == nil {
		c.err = &StateError{Field: field, Offset: c.at, Text: fmt.Sprintf("the file ends at byte %d", c.size), Err: io.ErrUnexpectedEOF}
	}
}

// bytes reads n of them, at most 8, valid until the next call; after an error they
// are zero.
func (c *cursor) bytes(field string, n int) []byte {
	clear(c.room[:])
	if c.err != nil {
		return c.room[:n]
	}
	c.last = c.at
	if c.at+int64(n) > c.size {
		c.short(field)
		return c.room[:n]
	}
	if c.buf == nil || c.from != c.at {
		section := io.NewSectionReader(c.r, c.at, c.size-c.at)
		if c.buf == nil {
			c.buf = bufio.NewReader(section)
		}
		c.buf.Reset(section)
		c.from = c.at
	}
	if got, err := io.ReadFull(c.buf, c.room[:n]); err != nil {
		c.err = unread(field, c.at+int64(got), err)
		clear(c.room[:])
		return c.room[:n]
	}
	c.at += int64(n)
	c.from = c.at
	return c.room[:n]
}

func (c *cursor) u32(field string) uint32 { return binary.LittleEndian.Uint32(c.bytes(field, 4)) }

func (c *cursor) i32(field string) int32 { return int32(c.u32(field)) }

// count is a u32 that may be at most limit.
func (c *cursor) count(field string, limit int) int {
	v := c.u32(field)
	if uint64(v) > uint64(limit) {
		c.fail(field, "%d is above the limit of %d", v, limit)
		return 0
	}
	return int(v)
}

// kind is the number of one of ggml's types.
func (c *cursor) kind(field string) int32 {
	v := c.i32(field)
	if _, ok := kinds[v]; !ok {
		c.fail(field, "type %d is none that this build knows", v)
	}
	return v
}

// row is the u64 size of one token's row.
func (c *cursor) row(field string) int {
	v := binary.LittleEndian.Uint64(c.bytes(field, 8))
	if v > maxRow {
		c.fail(field, "%d is above the limit of %d", v, maxRow)
		return 0
	}
	return int(v)
}

// tensor checks what has been read of one up to the named field.
func (c *cursor) tensor(field string, t Tensor, transposed bool) {
	if text := t.wrong(transposed); text != "" {
		c.fail(field, "%s", text)
	}
}

// skip passes over n rows and returns where they begin.
func (c *cursor) skip(field string, row, n int) int64 {
	at := c.at
	if c.err != nil {
		return at
	}
	if int64(row)*int64(n) > c.size-c.at {
		c.short(field)
		return at
	}
	c.at += int64(row) * int64(n)
	return at
}
