// Command regressions runs each test of internal/ci/regressions.txt twice: where
// the fault that it guards against still is, and on this tree. The test must fail
// there and pass here. internal/ci/regressions.sh starts it. Only the standard
// library.
//
//	1 A work tree of the old commit is made in a temporary folder.
//	2 For each line of the list that tree is put back as the commit has it. The
//	  line's files are copied there from this tree, and so are the packages of the
//	  list's `with`, that only tests import.
//	3 Each shim whose names are missing there is copied too.
//	4 The line's tests run there, and on this tree.
//
// A line with a change needs no old commit: its test runs on this tree with a copy
// of one file in which the change is made.
//
// # Shims
//
// Test code goes on, and the old commit does not: what tests share comes to use
// names that the old commit lacks. testdata/shims holds Go files with such names,
// NAME_shim.go.txt or NAME_shim_test.go.txt, each at the path where it goes without
// ".txt". A shim holds names, and helpers of tests. It never holds what a listed test asks for: a shim
// that mends the fault would show up as a test that passes on the old commit, and
// one that breaks more than the fault would not show up at all.
//
// A test of a fault that uses names of a later thing is better in a file without
// them; -v says with which words each test failed there.
//
// # What guards the list
//
// The tests of this command see that the files, tests and places of changes that
// the list names are in this tree. -build compiles the tests of all lines on the old
// commit and runs none: about two minutes. `make test-full` does it, so that a
// change of shared test code which takes the proof of an old fault away is noticed.
// A line may be marked `newly built` only where its tests do not compile on the old
// commit because what they test did not exist; a mark without need is an error.
package main
