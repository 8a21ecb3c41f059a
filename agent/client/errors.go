package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"meridian/wire"
	"meridian/wire/link"
)

// RequestError is a request that the daemon refused, or a block of Put that it
// refused and said why. It matches Code.
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

// OpenError is a manifest that the daemon refused. Field, Ours and Theirs are set
// with GEOMETRY: the daemon's value is Theirs. It matches Code.
type OpenError struct {
	Code                wire.Code
	Field, Ours, Theirs string
	RetryMS             uint32 // BUSY: when to ask again
	Text                string
}

// Error names the field that differs, where there is one, and else gives the
// daemon's text.
func (e *OpenError) Error() string {
	if e.Field == "" {
		return (&RequestError{Op: "open", Code: e.Code, Text: e.Text}).Error()
	}
	return fmt.Sprintf("client: open: %s: %s is %q here and %q at the daemon", e.Code, e.Field, e.Ours, e.Theirs)
}

// Unwrap makes the error match Code.
func (e *OpenError) Unwrap() error { return e.Code }

// ClosedError ends every call on an Engine whose connection is over. It matches
// Code and Cause.
type ClosedError struct {
	Code  wire.Code // LANE_LOST, or what the daemon's ERROR or GOAWAY said; UNREACHABLE: there was none
	Cause error     // nil after Close
	Text  string
}

// Error says why.
func (e *ClosedError) Error() string {
	s := "client: connection to the daemon is over: " + e.Code.String()
	if e.Code == wire.CodeUnreachable { // there was none
		s = "client: no connection to the daemon: " + e.Code.String()
	}
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

// storeError makes the error of item n of a PUT, RESERVE or FILL. END's text is about one
// item, which it names.
func storeError(op string, n int, status wire.Code, text string) error {
	if of, why, ok := strings.Cut(text, ": "); ok && status != wire.CodeOK && of == fmt.Sprintf("item %d", n) {
		return &RequestError{Op: op, Code: status, Text: why}
	}
	return itemError(status)
}

// contextError makes an error that matches both ctx's and the code.
func contextError(op string, err error) error {
	code := wire.CodeCancelled
	if errors.Is(err, context.DeadlineExceeded) {
		code = wire.CodeDeadline
	}
	return fmt.Errorf("client: %s: %w: %w", op, code, err)
}
