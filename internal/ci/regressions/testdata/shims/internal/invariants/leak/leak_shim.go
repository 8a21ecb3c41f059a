// Package leak looks for nothing: the library that it would look with is no
// dependency of the old commit.
package leak

import (
	"os"
	"testing"
)

// Main runs a package's tests and ends the process.
func Main(m *testing.M) { os.Exit(m.Run()) }

// Run is Main for a TestMain that has more to do before it ends.
func Run(m *testing.M) int { return m.Run() }

// Check does nothing.
func Check(testing.TB) {}
