// Package testbed is what tests of several rooms stand on: a wait that ends, a short
// folder, made content, a connection's end, the text of a panic. It may import the standard library only, and no code but
// tests may import it. It must never judge by how long something took.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"
)

// Patience bounds every wait; a test that needs a tenth of it is slow.
const Patience = time.Minute

// Until waits for cond, and else ends the test with what was waited for and the stacks
// of all goroutines.
func Until(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			stacks := make([]byte, 1<<20)
			tb.Fatalf("%s: not within %v\n%s", what, Patience, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// ShortDir is a folder of the test whose name leaves room for sockets: their paths have
// at most 107 bytes.
func ShortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "mrd")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Scan takes a text apart by fmt.Sscan, or ends the test.
func Scan(tb testing.TB, text string, into ...any) {
	tb.Helper()
	if _, err := fmt.Sscan(text, into...); err != nil {
		tb.Fatal(text, err)
	}
}

// Content is n bytes that are the same for the same seed.
func Content(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Closed reads to the end of a connection that the other side closes, waits until take has
// a refusal, and returns that.
func Closed(tb testing.TB, c io.Reader, take func() error) (refusal error) {
	tb.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		tb.Error("the connection stays open")
	}
	Until(tb, "a refusal is told", func() bool {
		refusal = take()
		return refusal != nil
	})
	return refusal
}

// Panic is what f panics with; the test ends where it does not.
func Panic(tb testing.TB, f func()) (what string) {
	tb.Helper()
	defer func() {
		r := recover()
		if r == nil {
			tb.Fatal("no panic")
		}
		what = fmt.Sprint(r)
	}()
	f()
	return ""
}
