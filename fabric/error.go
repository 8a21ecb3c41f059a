package fabric

import (
	"context"
	"errors"
	"fmt"

	"meridian/wire"
)

// Error is why an item, an access or a choice of fabric failed. It matches Code
// by errors.Is, and whatever Cause matches; wire.CodeOf gives Code.
type Error struct {
	Code       wire.Code
	Fabric     string // label or registry name; "" where none was chosen yet
	Have, Need uint64 // bytes or counts, where the code is about an amount; else both 0
	Text       string // what was tried
	Cause      error
}

// Error says all of it in one line.
func (e *Error) Error() string {
	s := e.Code.Error()
	if e.Fabric != "" {
		s = e.Fabric + ": " + s
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	if e.Have != 0 || e.Need != 0 {
		s += fmt.Sprintf(" (have %d, need %d)", e.Have, e.Need)
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the code, first, and the cause.
func (e *Error) Unwrap() []error { return codeAndCause(e.Code, e.Cause) }

func codeAndCause(c wire.Code, cause error) []error {
	if cause == nil {
		return []error{c}
	}
	return []error{c, cause}
}

// ContextError is nil while ctx lives; then it matches CodeDeadline or
// CodeCancelled, and the context's own error. Every fabric reports the end of a
// context by it.
func ContextError(ctx context.Context, label string) error {
	err := ctx.Err()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: wire.CodeDeadline, Fabric: label, Cause: err}
	default:
		return &Error{Code: wire.CodeCancelled, Fabric: label, Cause: err}
	}
}
