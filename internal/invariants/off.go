//go:build !invariants

package invariants

// Enabled says whether the program was built with the tag invariants.
const Enabled = false

// Stack is where something was made or released.
type Stack struct{}

// Here is the caller's stack, without the last skip functions.
func Here(int) Stack { return Stack{} }

// Overwrite fills memory that nobody may read or write any more with Pattern. Of
// large memory it fills the first and the last edge bytes and a few bytes of each
// page between.
func Overwrite([]byte) {}

// OverwriteItems fills all of the memory of s, which its owner keeps for the next
// use. T holds no pointer.
func OverwriteItems[T any]([]T) {}

// Intact panics where memory that Overwrite filled was written since.
func Intact([]byte, string) {}

// Life is one use of something that is used again and again: a place, a message,
// a buffer. Its zero value is not in use.
type Life struct{}

// Begin starts a use; it panics during another.
func Begin(*Life, string) {}

// End ends a use; it panics where none runs, and names who ended the last one.
func End(*Life, string) {}

// Left reports something that its owner should have ended and did not.
func Left(string, Stack) {}

// TakeLeft returns what was reported since the last call.
func TakeLeft() []string { return nil }
