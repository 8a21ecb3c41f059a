// Package realagent is adapters/nixl/internal/wheel for tests of other rooms. It imports
// "testing" and is for test binaries only.
package realagent

import (
	"testing"

	"meridian/adapters/nixl/internal/wheel"
)

// Agent is a real agent of NIXL's wheel.
type Agent = wheel.Agent

// Listen starts an agent that has n bytes of memory and a listener. It ends with the test.
func Listen(t testing.TB, name string, n int) *Agent { return wheel.Listen(t, name, n) }
