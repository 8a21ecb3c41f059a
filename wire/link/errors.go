package link

import (
	"fmt"

	"meridian/wire"
)

// FrameError says what is wrong with received bytes. errors.Is(err, e.Code)
// holds.
type FrameError struct {
	Code wire.Code
	// Offset of the fault in bytes: from the start of the payload (Parse), of
	// the header (ParseFrame) or of the lane (Splitter).
	Offset     uint64
	Field      string // as docs/spec/link-v1.md names it
	Got, Limit uint64 // the value found and the one allowed, where there is one
	Text       string // one line for people; at most MaxText bytes
}

// Error gives code, offset and text.
func (e *FrameError) Error() string {
	return fmt.Sprintf("link: %s at byte %d: %s", e.Code.String(), e.Offset, e.Text)
}

// Unwrap gives the code.
func (e *FrameError) Unwrap() error { return e.Code }

// Message is the ERROR frame's payload that tells the peer.
func (e *FrameError) Message() Error {
	return Error{Code: e.Code, Offset: e.Offset, Text: e.Text}
}

func errShort(field string, off int, have, need uint64) *FrameError {
	return &FrameError{Code: wire.CodeLength, Offset: uint64(off), Field: field, Got: have, Limit: need,
		Text: fmt.Sprintf("%s: have %d bytes, need %d", field, have, need)}
}

func errAbove(field string, off int, got, limit uint64) *FrameError {
	return &FrameError{Code: wire.CodeLength, Offset: uint64(off), Field: field, Got: got, Limit: limit,
		Text: fmt.Sprintf("%s: %d, at most %d", field, got, limit)}
}

func errTrailing(off int, n uint64) *FrameError {
	return &FrameError{Code: wire.CodeLength, Offset: uint64(off), Field: "payload", Got: n,
		Text: fmt.Sprintf("%d bytes after the last field", n)}
}

func errValue(field string, off int, got, limit uint64) *FrameError {
	return &FrameError{Code: wire.CodeInvalid, Offset: uint64(off), Field: field, Got: got, Limit: limit,
		Text: fmt.Sprintf("%s: value %d, at most %d", field, got, limit)}
}

func errZero(field string, off int) *FrameError {
	return &FrameError{Code: wire.CodeInvalid, Offset: uint64(off), Field: field, Text: field + ": may not be 0"}
}

func errCRC(field string, off int, got, want uint32) *FrameError {
	return &FrameError{Code: wire.CodeCRC, Offset: uint64(off), Field: field, Got: uint64(got), Limit: uint64(want),
		Text: fmt.Sprintf("%s: crc32c %08x, computed %08x", field, got, want)}
}
