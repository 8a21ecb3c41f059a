package blocks

import (
	"fmt"

	"meridian/wire"
)

// FullError is returned by Reserve when the call as a whole does not fit; no
// slot is reserved then. It matches wire.CodeFull.
type FullError struct {
	Need uint64 // bytes of the slots that the call asks for
	Free uint64 // bytes that are free or idle and could be taken; may lie scattered over size classes
}

func (e *FullError) Error() string {
	return fmt.Sprintf("arena full: need %d bytes, have %d free or idle", e.Need, e.Free)
}

// Unwrap makes the error match wire.CodeFull.
func (e *FullError) Unwrap() error { return wire.CodeFull }

// LimitError says that a bound of the store is reached. It matches Code:
// BUSY for what an owner may hold at a time, TOO_MANY for namespaces and arenas.
type LimitError struct {
	Code       wire.Code
	What       string
	Got, Limit uint64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d is above the limit of %d", e.What, e.Got, e.Limit)
}

// Unwrap makes the error match Code.
func (e *LimitError) Unwrap() error { return e.Code }

// ArgError names the argument that contradicts the store's state: an owner that
// was dropped, a namespace that is not the reservation's. It matches wire.CodeInvalid.
type ArgError struct{ What string }

func (e *ArgError) Error() string { return "invalid " + e.What }

// Unwrap makes the error match wire.CodeInvalid.
func (e *ArgError) Unwrap() error { return wire.CodeInvalid }

// GrowError is returned by Core.Reserve when a new segment would help and the
// capacity allows one. The driver makes the segment, tells the core by
// AddSegment, and reserves again. The Store never returns it.
type GrowError struct{ Tenant [32]byte }

func (e *GrowError) Error() string { return fmt.Sprintf("tenant %x needs a segment", e.Tenant[:4]) }

// Unwrap makes the error match wire.CodeFull.
func (e *GrowError) Unwrap() error { return wire.CodeFull }

// Errors of single items, boxed once so that filling a View allocates nothing.
var (
	errAbsent    error = wire.CodeAbsent
	errStale     error = wire.CodeStale
	errExists    error = wire.CodeExists
	errDeadline  error = wire.CodeDeadline
	errCancelled error = wire.CodeCancelled
	errLost      error = wire.CodeLeaseLost
	errNS        error = wire.CodeNSUnknown

	errPins      = &LimitError{Code: wire.CodeFull, What: "pins of one owner", Got: MaxPins + 1, Limit: MaxPins}
	errEnded     = fmt.Errorf("the process that connected has ended, and hold leases end with it: %w", wire.CodeUnsupported)
	errUnwatched = fmt.Errorf("no hold leases for a process that cannot be watched: %w", wire.CodeUnsupported)

	errOwner   = &ArgError{What: "owner: dropped, or never made"}
	errTTL     = &ArgError{What: "time to live: not above zero"}
	errWrongNS = &ArgError{What: "namespace: not the reservation's"}
	errKey     = &ArgError{What: "key: zero"}
	errBodyLen = &ArgError{What: "header: its length is not that of the bytes"}
	errAttest  = &ArgError{What: "attest: above producer"}
)
