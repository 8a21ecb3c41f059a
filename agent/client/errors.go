package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"meridian/wire"
	"meridian/wire/link"
)

// RequestError is a request that the daemon refused as a whole. It matches Code.
type RequestError struct {
	Op      string // acquire, put, ...
	Code    wire.Code
	RetryMS uint32 // BUSY: when to ask again
	Text    string
}

// Error names request, code and the daemon's text.
func (e *RequestError) Error() string {
	s := "client: " + e.Op + ": " + e.Code.String()
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Unwrap makes the error match Code.
func (e *RequestError) Unwrap() error { return e.Code }

// FullError is a block of Put that found no room. Need and Free, in bytes, are
// those of the batch it was in. It matches wire.CodeFull.
type FullError struct{ Need, Free uint64 }

// Error gives both values.
func (e *FullError) Error() string {
	return fmt.Sprintf("client: %s: %d bytes needed, %d free", wire.CodeFull, e.Need, e.Free)
}

// Unwrap makes the error match wire.CodeFull.
func (e *FullError) Unwrap() error { return wire.CodeFull }

// OpenError is a manifest that the daemon refused. Field, Ours and Theirs are set
// with GEOMETRY: the daemon's value is Theirs. It matches Code.
type OpenError struct {
	Code                wire.Code
	Field, Ours, Theirs string
}

// Error names the field that differs, where there is one.
func (e *OpenError) Error() string {
	if e.Field == "" {
		return "client: open: " + e.Code.String()
	}
	return fmt.Sprintf("client: open: %s: %s is %q here and %q at the daemon", e.Code, e.Field, e.Ours, e.Theirs)
}

// Unwrap makes the error match Code.
func (e *OpenError) Unwrap() error { return e.Code }

// ClosedError ends every call on an Engine whose connection is over. It matches
// Code and Cause.
type ClosedError struct {
	Code  wire.Code // LANE_LOST, or what the daemon's ERROR or GOAWAY said
	Cause error     // nil after Close
	Text  string
}

// Error says why.
func (e *ClosedError) Error() string {
	s := "client: connection to the daemon is over: " + e.Code.String()
	if e.Text != "" {
		s += ": " + e.Text
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns what the error matches.
func (e *ClosedError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Cause}
}

// protocolError is a daemon that breaks the protocol.
func protocolError(code wire.Code, format string, args ...any) error {
	return &link.FrameError{Code: code, Text: fmt.Sprintf(format, args...)}
}

// ended makes the error of END.
func ended(op string, e *link.End) error {
	if e.Code == wire.CodeOK {
		return nil
	}
	return &RequestError{Op: op, Code: e.Code, RetryMS: e.RetryMS, Text: e.Text}
}

// itemError makes an item's error from its status.
func itemError(c wire.Code) error {
	if c == wire.CodeOK {
		return nil
	}
	return c
}

// parseFull reads END's text of a PUT that ran out of room.
func parseFull(text string) error {
	var e FullError
	if _, err := fmt.Sscanf(strings.TrimSpace(text), "need=%d free=%d", &e.Need, &e.Free); err != nil {
		return wire.CodeFull
	}
	return &e
}

// contextError makes an error that matches both ctx's and the code.
func contextError(op string, err error) error {
	code := wire.CodeCancelled
	if errors.Is(err, context.DeadlineExceeded) {
		code = wire.CodeDeadline
	}
	return fmt.Errorf("client: %s: %w: %w", op, code, err)
}
