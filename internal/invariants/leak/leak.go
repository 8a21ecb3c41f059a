// Package leak fails a test, or a package's tests, for what outlives them:
// goroutines, named by their stack and by who made them, and whatever the build
// tag invariants reports as left (leases of a store that was closed). It imports
// "testing" and is for test binaries only.
//
// GODEBUG=tracebackancestors=N adds the stacks of N makers (internal/ci/test.sh).
package leak

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/invariants"
)

// patience is how long a goroutine that was told to end may take on a busy machine.
const patience = 20 * time.Second

// Main runs a package's tests, looks for what they left, and ends the process.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a TestMain that has more to do before it ends.
func Run(m *testing.M) int {
	code := m.Run()
	if code != 0 || fuzzing() {
		return code
	}
	if what := find(patience); what != "" {
		fmt.Fprintln(os.Stderr, "leak: the tests of this package left "+what)
		return 1
	}
	return 0
}

// fuzzing reports whether the tests run under the fuzzer, which has goroutines of
// its own.
func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" && f.Value.String() != "false" {
			return true
		}
	}
	return false
}

// Check fails t if something that did not run when Check was called still runs
// after t and all cleanups that were registered later. No other test may run
// meanwhile.
func Check(t testing.TB) {
	t.Helper()
	before := read(goleak.IgnoreCurrent)
	invariants.TakeLeft()
	t.Cleanup(func() {
		if t.Failed() {
			return // what failed may well have left something
		}
		if what := find(patience, before); what != "" {
			t.Error(t.Name() + " left " + what)
		}
	})
}

// read calls f, which takes the dump of all goroutines apart. With
// tracebackancestors it panics while a finalizer or cleanup runs, whose stack has
// ancestors and no line that says who created it: it is called again then, for as long
// as one may take.
func read[T any](f func() T) T {
	for until := time.Now().Add(patience); ; runtime.Gosched() {
		v, why := attempt(f)
		if why == nil {
			return v
		}
		if text, ok := why.(string); !ok || !strings.HasPrefix(text, "Failed to parse stack trace") || time.Now().After(until) {
			panic(why)
		}
	}
}

func attempt[T any](f func() T) (v T, why any) {
	defer func() { why = recover() }()
	return f(), nil
}

func find(within time.Duration, o ...goleak.Option) string {
	var found []string
	for until := time.Now().Add(within); ; {
		err := read(func() error { return goleak.Find(o...) })
		if err == nil {
			break
		}
		if time.Now().After(until) {
			found = append(found, err.Error())
			break
		}
	}
	return strings.Join(append(found, invariants.TakeLeft()...), "\n")
}
