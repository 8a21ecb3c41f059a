// Package realengine is adapters/mooncake/internal/wheel for tests of other rooms. It
// imports "testing" and is for test binaries only.
package realengine

import (
	"testing"

	"meridian/adapters/mooncake/internal/wheel"
)

// Engine is a real transfer engine of Mooncake's wheel.
type Engine = wheel.Engine

// Move is one transfer of it.
type Move = wheel.Move

// Start starts an engine that has n bytes of memory. It ends with the test.
func Start(t testing.TB, n int, env ...string) *Engine { return wheel.Start(t, n, env...) }
