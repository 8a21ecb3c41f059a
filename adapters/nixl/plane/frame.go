package plane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"meridian/internal/stranger"
	"meridian/wire"
)

// Verb is what a frame of the P2P protocol asks for.
type Verb string

// The verbs, as they stand in a frame.
const (
	Load       Verb = "NIXLCOMM:LOAD" // load the metadata that follow
	Send       Verb = "NIXLCOMM:SEND" // answer with LOAD and yours
	Invalidate Verb = "NIXLCOMM:INVL" // forget the agent whose name follows

	verbLen  = len(Load)
	MaxFrame = MaxBlob + verbLen
)

// Frame is a u64 of the length of what follows, a verb, and its body. NIXL's own reader
// splits a frame at each "NIXLCOMM:"; its writer never puts two verbs into one.
type Frame struct {
	Verb Verb
	Body []byte
}

// Append adds the frame to b.
func (f Frame) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(f.Verb)+len(f.Body)))
	return append(append(b, f.Verb...), f.Body...)
}

// Length is what Append adds.
func (f Frame) Length() int { return 8 + len(f.Verb) + len(f.Body) }

// ReadFrame reads a frame. io.EOF: there was none. take is asked for a body's bytes before
// they are read; nil: none is refused.
func ReadFrame(r io.Reader, take func(n int) error) (f Frame, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return f, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n < uint64(verbLen) || n > uint64(MaxFrame) {
		return f, fmt.Errorf("nixl: a frame of %d bytes, want %d to %d: %w", n, verbLen, MaxFrame, wire.CodeLength)
	}
	verb := make([]byte, verbLen)
	if _, err := io.ReadFull(r, verb); err != nil {
		return f, cutOff("a frame", err)
	}
	switch f.Verb = Verb(verb); f.Verb {
	case Load, Invalidate:
	case Send:
		if n > uint64(verbLen) {
			return f, fmt.Errorf("nixl: a frame of %s with %d bytes behind it: %w", Send, n-uint64(verbLen), wire.CodeInvalid)
		}
	default:
		return f, fmt.Errorf("nixl: a frame with the verb %s: %w", stranger.Quote(string(verb)), wire.CodeUnsupported)
	}
	f.Body, err = readBytes(r, int(n)-verbLen, take)
	return f, cutOff("a frame", err)
}

// readBytes reads n bytes. Memory grows with what comes, not with what was said.
func readBytes(r io.Reader, n int, take func(n int) error) ([]byte, error) {
	if take != nil {
		if err := take(n); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, r, int64(n))
	return b.Bytes(), err
}

// cutOff is the error of something that has begun.
func cutOff(what string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("nixl: %s was cut off: %w", what, wire.CodeTruncated)
	}
	return err
}
