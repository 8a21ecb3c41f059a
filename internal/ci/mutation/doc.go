// Command mutation changes one operator at a time in the core rooms, and tells
// which changes no test of the room notices.
//
//	go run ./internal/ci/mutation [flags] [ROOM…]
//
// A room is a folder with what is below it. All changes of a room are compiled
// into its test binaries at once, each behind a switch that an environment
// variable turns on; so a change costs the running of those tests that reach it,
// the shortest first, up to the first that fails, and no compiling.
//
//	1 The committed tree is copied, and the copies of the room's sources are
//	  rewritten: `a < b` becomes an expression that is also `a <= b`, or its
//	  negation, when the switch says so.
//	2 Each test runs alone with no change on. What it reaches is noted; a test that
//	  fails here, or takes longer than -longest, is left out and named.
//	3 Each change is tried with the tests that reach it. It is KILLED by a test that
//	  fails, TIMED OUT where one does not end, LIVED where all pass; NOT REACHED
//	  where no test comes by.
//
// The outcomes are in .run/mutation, a line each. With -again only those that
// LIVED there are tried anew.
package main
