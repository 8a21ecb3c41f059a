package link

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"meridian/wire"
)

// kind is one message type with specimens of its payload; each message's test
// file declares its own, and the vectors and fuzz targets go over all of them.
type kind struct {
	t       Type
	samples []sample
	parse   func(b []byte) (Message, error)            // Parse[X]
	reparse func(dirty int, b []byte) (Message, error) // Parse into specimen dirty
}

type sample struct {
	name string
	f    Frame // Type and Len are filled
	m    Message
}

var kinds []*kind

func newKind[T Message, P interface {
	*T
	Parse([]byte) error
}](t Type, samples ...sample) *kind {
	k := &kind{t: t, samples: samples}
	for i := range samples {
		samples[i].f.Type = t
	}
	k.parse = func(b []byte) (Message, error) {
		x, err := Parse[T, P](b)
		return x, err
	}
	k.reparse = func(dirty int, b []byte) (Message, error) {
		x, err := Parse[T, P](samples[dirty].m.Append(nil)) // a copy of its own to write over
		if err != nil {
			return nil, err
		}
		err = P(&x).Parse(b)
		return x, err
	}
	kinds = append(kinds, k)
	return k
}

func kindOf(t Type) *kind {
	for _, k := range kinds {
		if k.t == t {
			return k
		}
	}
	return nil
}

// check proves for every specimen: Length is what Append adds and what was
// before stays; parsing gives the value back, in fresh memory and over another
// specimen; each cut and each surplus byte is a LENGTH error; the whole frame is
// read back, and no single flipped bit of it is.
func (k *kind) check(t *testing.T) {
	t.Helper()
	for _, s := range k.samples {
		t.Run(s.name, func(t *testing.T) {
			b := s.m.Append([]byte("before"))
			if !bytes.HasPrefix(b, []byte("before")) || len(b)-6 != s.m.Length() {
				t.Fatalf("Append added %d bytes after %q, Length is %d", len(b)-6, b[:6], s.m.Length())
			}
			p := b[6:]
			got, err := k.parse(p)
			if err != nil || !same(got, s.m) {
				t.Fatalf("parse: %+v, %v; want %+v", got, err, s.m)
			}
			for dirty := range k.samples {
				got, err := k.reparse(dirty, p)
				if err != nil || !same(got, s.m) {
					t.Errorf("parse over %q: %+v, %v; want %+v", k.samples[dirty].name, got, err, s.m)
				}
			}
			checkCuts(t, p, func(b []byte) error { _, err := k.parse(b); return err })
			checkFrame(t, s)
		})
	}
}

// checkCuts proves that no prefix of a payload parses, nor one byte more.
func checkCuts(t *testing.T, p []byte, parse func([]byte) error) {
	t.Helper()
	for n := range len(p) {
		err := parse(p[:n])
		var fe *FrameError
		if !errors.As(err, &fe) || !errors.Is(err, fe.Code) {
			t.Fatalf("cut at %d of %d: %v, want a *FrameError", n, len(p), err)
		}
		if fe.Code != wire.CodeLength && (fe.Code != wire.CodeLinkMagic || n >= len(helloMagic)) {
			t.Errorf("cut at %d of %d: %v, want LENGTH", n, len(p), err)
		}
		if fe.Offset > uint64(n) || fe.Text == "" || len(fe.Text) > MaxText {
			t.Errorf("cut at %d of %d: offset %d, text %q", n, len(p), fe.Offset, fe.Text)
		}
	}
	for _, extra := range []byte{0, 1} {
		if err := parse(append(bytes.Clone(p), extra)); !errors.Is(err, wire.CodeLength) {
			t.Errorf("one byte %d more: %v, want LENGTH", extra, err)
		}
	}
}

// payloadOf is payload with an error that may be nil.
func payloadOf(f Frame, b []byte) ([]byte, error) {
	p, fail := payload(f, b, false)
	if fail != nil {
		return nil, fail
	}
	return p, nil
}

// checkFrame proves the frame of s.
func checkFrame(t *testing.T, s sample) {
	t.Helper()
	b := AppendMessage([]byte("before"), s.f, s.m)[6:]
	f, err := ParseFrame(b)
	if err != nil {
		t.Fatal(err)
	}
	want := s.f
	want.Len = uint32(s.m.Length() + TrailerLen)
	if f != want || len(b) != FrameLen+int(f.Len) || len(b) < HeadLen {
		t.Fatalf("frame %+v in %d bytes, want %+v", f, len(b), want)
	}
	p, err := payloadOf(f, b[FrameLen:])
	if err != nil || !bytes.Equal(p, s.m.Append(nil)) {
		t.Fatalf("payload %x, %v", p, err)
	}
	for i := range 8 * len(b) {
		c := bytes.Clone(b)
		c[i/8] ^= 1 << (i % 8)
		if f, err := ParseFrame(c); err != nil {
			if i >= 8*FrameLen || !errors.Is(err, wire.CodeCRC) {
				t.Fatalf("bit %d flipped: header %v", i, err)
			}
		} else if _, err := payloadOf(f, c[FrameLen:]); !errors.Is(err, wire.CodeCRC) {
			t.Fatalf("bit %d flipped: payload %v, want CRC", i, err)
		}
	}
	if _, err := payloadOf(f, b[FrameLen:len(b)-1]); !errors.Is(err, wire.CodeLength) {
		t.Errorf("payload without its last byte: %v, want LENGTH", err)
	}
	if _, err := payloadOf(f, append(bytes.Clone(b[FrameLen:]), 0)); !errors.Is(err, wire.CodeLength) {
		t.Errorf("payload and one byte more: %v, want LENGTH", err)
	}
}

// same compares two messages and takes a nil slice for an empty one.
func same(a, b Message) bool { return fmt.Sprintf("%#v", fields(a)) == fmt.Sprintf("%#v", fields(b)) }

// refuse proves that payload b of type k is refused with code, at offset off.
func (k *kind) refuse(t *testing.T, what string, b []byte, code wire.Code, off uint64) {
	t.Helper()
	_, err := k.parse(b)
	var fe *FrameError
	if !errors.As(err, &fe) || fe.Code != code || fe.Offset != off {
		t.Errorf("%s: %v, want %v at byte %d", what, err, code, off)
	}
}

// with is b with byte v at off.
func with(b []byte, off int, v byte) []byte {
	b = bytes.Clone(b)
	b[off] = v
	return b
}

// payload is specimen i as bytes.
func (k *kind) payload(i int) []byte { return k.samples[i].m.Append(nil) }

// fill is n bytes that rise from first.
func fill[T any](first byte) (v T) {
	r := reflect.ValueOf(&v).Elem()
	for i := range r.Len() {
		r.Index(i).SetUint(uint64(first + byte(i)))
	}
	return v
}
