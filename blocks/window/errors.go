package window

import (
	"fmt"

	"meridian/wire"
)

// Error is why a call was refused. It matches Code.
type Error struct {
	Code       wire.Code
	Addr, Len  uint64
	Have, Need uint64 // bytes or counts, where the code is about an amount
	Text       string

	// Quiet is closed when the last access has left a window that is BUSY: then
	// Commit can be called again. nil with every other code.
	Quiet <-chan struct{}
}

// Error names the values.
func (e *Error) Error() string {
	s := fmt.Sprintf("window: %s: %s", e.Code, e.Text)
	if e.Addr != 0 || e.Len != 0 {
		s += fmt.Sprintf(" (address %#x, %d bytes)", e.Addr, e.Len)
	}
	if e.Have != 0 || e.Need != 0 {
		s += fmt.Sprintf(" (have %d, need %d)", e.Have, e.Need)
	}
	return s
}

// Unwrap returns the code.
func (e *Error) Unwrap() error { return e.Code }
