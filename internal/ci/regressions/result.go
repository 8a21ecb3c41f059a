package main

import (
	"fmt"
	"regexp"
	"strings"
)

// outcome is what one `go test` said.
type outcome int

const (
	passed     outcome = iota
	failed             // a test ran and failed, or the process died
	unbuilt            // the package did not compile
	noTest             // the pattern names no test of the package
	skippedAll         // every test that ran skipped itself, so nothing was proved
)

func (o outcome) String() string {
	return [...]string{"pass", "FAIL", "does not build", "no such test", "skipped"}[o]
}

// read tells the outcome from the exit status and output of `go test -v`.
func read(exitedOK bool, output string) outcome {
	ran, skipped := 0, 0
	for text := range strings.Lines(output) {
		switch {
		case strings.HasPrefix(text, "--- PASS: "), strings.HasPrefix(text, "--- FAIL: "):
			ran++
		case strings.HasPrefix(text, "--- SKIP: "):
			skipped++
		}
	}
	switch {
	case !exitedOK && (strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]")):
		return unbuilt
	case !exitedOK:
		return failed
	case ran > 0:
		return passed
	case skipped > 0:
		return skippedAll
	}
	return noTest
}

var failure = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: .*|^panic: .*|^\s+--- FAIL: .*`)

// firstFailure is what the first test that failed said first, or "".
func firstFailure(output string) string {
	return strings.TrimSpace(failure.FindString(output))
}

// verdict says what is wrong with a line's two outcomes, or "".
func verdict(l line, before, now outcome) string {
	switch {
	case now != passed:
		return fmt.Sprintf("%s on this tree", now)
	case before == failed || before == unbuilt:
		return misbuilt(l, before != unbuilt)
	}
	return fmt.Sprintf("%s where the fault is: it does not show it", before)
}

// misbuilt says what is wrong with whether the line's test compiles on the old
// commit, or "". A mark that is not needed would hide the day when the test
// stops to compile there for another reason.
func misbuilt(l line, builds bool) string {
	switch {
	case !builds && l.change != nil:
		return "does not build with its change: it proves nothing"
	case !builds && !l.newlyBuilt:
		return "does not build on the old commit and is not marked `newly built`: it proves nothing there"
	case builds && l.newlyBuilt:
		return "builds on the old commit: take its mark `newly built` away"
	}
	return ""
}
