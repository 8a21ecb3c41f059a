package handshake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"meridian/adapters/mooncake/segment"
	"meridian/wire"
)

// MaxFrame is the longest frame, its type byte included.
const MaxFrame = segment.MaxBytes

const lengthLen = 8

// Type is what a frame asks for, or answers.
type Type uint8

// The types of Mooncake. An old frame has no type byte; it is a TypeConnection, and
// its text begins with a byte above lastType.
const (
	TypeConnection Type = iota // of RDMA queue pairs: answered with empty fields
	TypeMetadata               // the segment's descriptor
	TypeNotify                 // a message for the application
	TypeProbe                  // is anybody there?

	lastType = TypeProbe
)

var typeNames = [...]string{"connection", "metadata", "notify", "probe"}

func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type %#02x", uint8(t))
}

// frame is a message in either framing.
type frame struct {
	typ  Type
	old  bool // without a type byte
	text []byte
}

// append adds the frame's bytes to b.
func (f frame) append(b []byte) []byte {
	n := uint64(len(f.text))
	if !f.old {
		n++
	}
	b = binary.LittleEndian.AppendUint64(b, n)
	if !f.old {
		b = append(b, byte(f.typ))
	}
	return append(b, f.text...)
}

// parseBody takes what follows a length apart. An answer's type is the caller's to
// compare.
func parseBody(body []byte) (frame, error) {
	switch {
	case len(body) == 0:
		return frame{}, fmt.Errorf("handshake: a frame of 0 bytes: %w", wire.CodeLength)
	case Type(body[0]) <= lastType:
		return frame{typ: Type(body[0]), text: body[1:]}, nil
	case body[0] == '{' || body[0] == '[' || body[0] == ' ' || body[0] == '\t' || body[0] == '\n' || body[0] == '\r':
		return frame{typ: TypeConnection, old: true, text: body}, nil
	}
	return frame{}, fmt.Errorf("handshake: a frame of %s, known are 0 to %d: %w", Type(body[0]), lastType, wire.CodeUnsupported)
}

// errNothing is a connection that ended before its first byte, as a check of the port
// does it.
var errNothing = fmt.Errorf("handshake: closed before the first byte: %w", wire.CodeLaneLost)

// readFrame reads a frame, and reserves nothing for a length that is not allowed. What
// is announced and does not come costs its sender as much as it costs this side. take,
// where it is not nil, is asked before more memory is used, with the bytes of it.
func readFrame(r io.Reader, take func(n int) error) (frame, error) {
	var head [lengthLen]byte
	if n, err := io.ReadFull(r, head[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return frame{}, errNothing
		}
		return frame{}, &stepError{fmt.Sprintf("the length of a frame, of which %d of %d bytes came", n, lengthLen), err}
	}
	n := binary.LittleEndian.Uint64(head[:])
	switch {
	case n == 0:
		return parseBody(nil)
	case n > MaxFrame:
		return frame{}, fmt.Errorf("handshake: a frame of %d bytes, limit %d: %w", n, MaxFrame, wire.CodeTooLarge)
	}
	body := make([]byte, 0, min(int(n), firstPart))
	for len(body) < int(n) {
		if len(body) == cap(body) {
			more := min(int(n)-len(body), len(body))
			if take != nil {
				if err := take(more); err != nil {
					return frame{}, fmt.Errorf("handshake: a frame of %d bytes, of which %d came: %w", n, len(body), err)
				}
			}
			body = append(make([]byte, 0, len(body)+more), body...)
		}
		k, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+k]
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && len(body) < int(n) {
			return frame{}, &stepError{fmt.Sprintf("a frame of %d bytes, of which %d came", n, len(body)), err}
		}
	}
	return parseBody(body)
}

// firstPart is what of a frame every connection may hold, in bytes; for more it is asked.
const firstPart = 4096

// stepError is an input or output that failed, with the step that it was.
type stepError struct {
	step  string
	cause error
}

func (e *stepError) Error() string { return "handshake: " + e.step + ": " + e.cause.Error() }

func (e *stepError) Unwrap() []error {
	if code := wire.CodeOf(e.cause); code != wire.CodeInternal {
		return []error{code, e.cause}
	}
	return []error{wire.CodeLaneLost, e.cause}
}
