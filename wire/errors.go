package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// TruncatedError says that bytes are missing: fewer than a header, or fewer
// than the header's body_len. Both counts include the header. It matches
// CodeTruncated and io.ErrUnexpectedEOF.
type TruncatedError struct{ Have, Need uint64 }

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("mrdn: truncated: have %d bytes, need %d", e.Have, e.Need)
}

// Unwrap returns the two errors that e matches.
func (e *TruncatedError) Unwrap() []error { return []error{CodeTruncated, io.ErrUnexpectedEOF} }

// MagicError says that the first four bytes are not Want ("MRDN", or "MNCK"
// for the legacy envelope). It matches CodeMagic.
type MagicError struct{ Want, Got [4]byte }

func (e *MagicError) Error() string {
	return fmt.Sprintf("mrdn: magic: want %q, got %q", e.Want[:], e.Got[:])
}

// Unwrap returns CodeMagic.
func (e *MagicError) Unwrap() error { return CodeMagic }

// VersionError says that the payload is of another MRDN version. It matches
// CodeVersion.
type VersionError struct{ Got uint32 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("mrdn: version: want %d, got %d", Version, e.Got)
}

// Unwrap returns CodeVersion.
func (e *VersionError) Unwrap() error { return CodeVersion }

// TierError says that a tier byte is above OutputCritical. It matches
// CodeTier.
type TierError struct{ Got uint8 }

func (e *TierError) Error() string {
	return fmt.Sprintf("mrdn: tier: want 0..%d, got %d", OutputCritical, e.Got)
}

// Unwrap returns CodeTier.
func (e *TierError) Unwrap() error { return CodeTier }

// PaddingError says that bytes 13 to 15 are not zero. It matches CodePadding.
type PaddingError struct{ Got [3]byte }

func (e *PaddingError) Error() string {
	return fmt.Sprintf("mrdn: padding: want 000000, got %x", e.Got[:])
}

// Unwrap returns CodePadding.
func (e *PaddingError) Unwrap() error { return CodePadding }

// TooLargeError says that a body is longer than a limit. Nothing was reserved
// for it. It matches CodeTooLarge.
type TooLargeError struct{ Got, Limit uint64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("mrdn: too large: body of %d bytes, limit %d", e.Got, e.Limit)
}

// Unwrap returns CodeTooLarge.
func (e *TooLargeError) Unwrap() error { return CodeTooLarge }

// ChecksumError says that a body hashes to Got while its header names Want.
// It matches CodeChecksum.
type ChecksumError struct{ Want, Got Sum }

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("mrdn: checksum: want %s, got %s", e.Want, e.Got)
}

// Unwrap returns CodeChecksum.
func (e *ChecksumError) Unwrap() error { return CodeChecksum }

// TrailingError says that N bytes follow the body. A Reader, which looks one
// byte ahead and no further, always says 1. It matches CodeTrailing.
type TrailingError struct{ N uint64 }

func (e *TrailingError) Error() string {
	return fmt.Sprintf("mrdn: trailing: %d bytes after the body", e.N)
}

// Unwrap returns CodeTrailing.
func (e *TrailingError) Unwrap() error { return CodeTrailing }

// GeometryError says that two manifests agree on tenant, model and role and
// differ in Field. It matches CodeGeometry.
type GeometryError struct{ Field, Ours, Theirs string }

func (e *GeometryError) Error() string {
	return "geometry: " + e.Field + ": ours " + e.Ours + ", theirs " + e.Theirs
}

func (e *GeometryError) Unwrap() error { return CodeGeometry }

// CodeOf returns the code that err carries: CodeOK for nil, the code of a
// typed error or of a wrapped Code, CodeDeadline and CodeCancelled for the
// errors of a context or a connection deadline, CodeInternal for any other.
func CodeOf(err error) Code {
	if err == nil {
		return CodeOK
	}
	if c, ok := errors.AsType[Code](err); ok && c != CodeOK {
		return c
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return CodeDeadline
	case errors.Is(err, context.Canceled):
		return CodeCancelled
	}
	return CodeInternal
}
