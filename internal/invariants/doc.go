// Package invariants holds what only the build tag "invariants" adds to the
// program: released memory is overwritten and watched, a second release panics
// with both stacks, and what outlives its owner is named by the stack that made
// it. The tests run with the tag (internal/ci/test.sh).
//
// Without the tag Enabled is a constant false, every type is empty and every
// function is an empty one that the compiler inlines: the daemon that is released
// has none of it, which a test looks for in the binary.
//
// It imports the standard library only, and never "testing": the package leak
// below is for test binaries.
package invariants
