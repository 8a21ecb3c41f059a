package structpack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
)

// MaxElements bounds the elements of one vector that is read.
const MaxElements = 1 << 16

// The byte of flags.
const (
	flagTotal   = 0x03 // 1, 2, 3: the message's length follows, in 2, 4 or 8 bytes
	flagLiteral = 0x04
	flagUnknown = 0xe0
	widthShift  = 3 // two bits: length fields are 1, 2, 4 or 8 bytes wide
)

// Codec reads and writes messages of one type. It may be used by several goroutines.
type Codec[T any] struct {
	root node
	code uint32
}

// Of is the codec of one value. It panics for a type that has no literal.
func Of[T any]() *Codec[T] {
	return newCodec[T]((&builder{}).node(reflect.TypeFor[T]()))
}

// Tuple is the codec of several arguments: the fields of T, a struct, in their order.
func Tuple[T any]() *Codec[T] {
	return newCodec[T]((&builder{}).members(reflect.TypeFor[T](), true))
}

func newCodec[T any](root node) *Codec[T] {
	return &Codec[T]{root: root, code: codeOf(root.literal)}
}

// Code is the type code.
func (c *Codec[T]) Code() uint32 { return c.code }

// Literal is the type literal.
func (c *Codec[T]) Literal() []byte { return bytes.Clone(c.root.literal) }

// Append appends a message. An error means a value that the type does not allow.
func (c *Codec[T]) Append(to []byte, v *T) ([]byte, error) {
	for width := 0; ; width++ {
		w := writer{b: to, bytes: 1 << width}
		if width == 0 {
			w.number(uint64(c.code), 4)
		} else {
			w.number(uint64(c.code|1), 4)
			w.number(uint64(width<<widthShift), 1)
		}
		c.root.write(&w, reflect.ValueOf(v).Elem())
		switch {
		case w.err != nil:
			return to, w.err
		case !w.narrow:
			return w.b, nil
		}
	}
}

// Decode reads a message. What it returns shares no memory with b. The error is a
// *CodeError or a *SyntaxError.
func (c *Codec[T]) Decode(b []byte) (v T, err error) {
	r := reader{b: b, width: 1}
	c.start(&r)
	if r.err == nil {
		c.root.read(&r, reflect.ValueOf(&v).Elem())
	}
	if r.err == nil && r.off < len(r.b) && !r.total {
		r.fail(r.off, fmt.Sprintf("%d bytes are left over", len(r.b)-r.off))
	}
	if r.err != nil {
		var zero T
		return zero, r.err
	}
	return v, nil
}

// start reads what stands in front of the value.
func (c *Codec[T]) start(r *reader) {
	code := uint32(r.number(4))
	var flags byte
	if code&1 != 0 {
		at := r.off
		if flags = byte(r.number(1)); flags&flagUnknown != 0 {
			r.fail(at, fmt.Sprintf("flags %#02x are not known", flags))
		}
	}
	if r.err != nil {
		return
	}
	r.width = 1 << (flags >> widthShift & 3)
	if size := flags & flagTotal; size != 0 {
		at := r.off
		total := r.number(1 << size)
		if r.err == nil && (total > uint64(len(r.b)) || total < uint64(r.off)) {
			r.fail(at, fmt.Sprintf("the message says that it has %d bytes, and has %d", total, len(r.b)))
			return
		}
		r.total = true
	}
	var literal []byte
	if flags&flagLiteral != 0 {
		literal = r.literal()
	}
	if r.err == nil && code&^1 != c.code {
		r.err = &CodeError{Got: code &^ 1, Want: c.code, GotLiteral: literal, WantLiteral: c.Literal()}
	}
}

// CodeError is a message of another type than was expected: of another version.
type CodeError struct {
	Got, Want               uint32
	GotLiteral, WantLiteral []byte // Got's is empty where the message did not say it
}

func (e *CodeError) Error() string {
	s := fmt.Sprintf("the message is of type %08x, want %08x", e.Got, e.Want)
	if len(e.GotLiteral) > 0 {
		s += fmt.Sprintf(": its literal is %.200x, want %x", e.GotLiteral, e.WantLiteral)
	}
	return s
}

// SyntaxError is a message that cannot be read.
type SyntaxError struct {
	Offset int
	What   string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("at byte %d: %s", e.Offset, e.What) }

// writer appends to b. Bytes is the width of length fields; narrow is set where a
// length does not fit it.
type writer struct {
	b      []byte
	bytes  int
	narrow bool
	err    error
}

func (w *writer) fail(what string) {
	if w.err == nil {
		w.err = fmt.Errorf("structpack: %s", what)
	}
}

func (w *writer) number(v uint64, width int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	w.b = append(w.b, b[:width]...)
}

func (w *writer) flag(v bool) {
	if v {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}

func (w *writer) length(n int) {
	if w.bytes < 8 && uint64(n) >= 1<<(8*w.bytes) {
		w.narrow = true
	}
	w.number(uint64(n), w.bytes)
}

func (w *writer) truth(v reflect.Value) { w.flag(v.Bool()) }

func (w *writer) text(v reflect.Value) {
	s := v.String()
	w.length(len(s))
	w.b = append(w.b, s...)
}

// reader reads b from off. Width is that of length fields; total is set where the
// message says its own length, so that what follows is of a later version.
type reader struct {
	b     []byte
	off   int
	width int
	total bool
	err   error
}

func (r *reader) fail(at int, what string) {
	if r.err == nil {
		r.err = &SyntaxError{Offset: at, What: what}
	}
}

// take returns the next n bytes, or nil and fails.
func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if left := len(r.b) - r.off; n > left {
		r.fail(r.off, fmt.Sprintf("%d bytes are needed and %d are left", n, left))
		return nil
	}
	b := r.b[r.off : r.off+n]
	r.off += n
	return b
}

func (r *reader) number(width int) uint64 {
	var b [8]byte
	copy(b[:], r.take(width))
	return binary.LittleEndian.Uint64(b[:])
}

func (r *reader) flag() bool {
	at := r.off
	v := r.number(1)
	if v > 1 {
		r.fail(at, fmt.Sprintf("%d is neither true nor false", v))
	}
	return v == 1
}

// length reads the count of elements that take at least so many bytes each.
func (r *reader) length(least int) int {
	at := r.off
	n := r.number(r.width)
	if r.err != nil {
		return 0
	}
	if left := len(r.b) - r.off; n > math.MaxInt32 || int(n) > left/least {
		r.fail(at, fmt.Sprintf("a length of %d, and %d bytes are left", n, left))
		return 0
	}
	if n > MaxElements {
		r.fail(at, fmt.Sprintf("a length of %d, the limit is %d", n, MaxElements))
		return 0
	}
	return int(n)
}

func (r *reader) truth(v reflect.Value) { v.SetBool(r.flag()) }

func (r *reader) text(v reflect.Value) {
	at := r.off
	n := r.number(r.width)
	if left := len(r.b) - r.off; r.err == nil && n > uint64(left) {
		r.fail(at, fmt.Sprintf("a text of %d bytes, and %d are left", n, left))
		return
	}
	v.SetString(string(r.take(int(n))))
}

// literal reads a type literal, which ends with a NUL.
func (r *reader) literal() []byte {
	if r.err != nil {
		return nil
	}
	n := bytes.IndexByte(r.b[r.off:], 0)
	if n < 0 {
		r.fail(r.off, "the type literal has no end")
		return nil
	}
	b := bytes.Clone(r.b[r.off : r.off+n])
	r.off += n + 1
	return b
}
