// Command regressions runs each test of internal/ci/regressions.txt twice: on an
// older commit, where the fault that it guards against is still there, and on
// this tree. internal/ci/regressions.sh starts it. Only the standard library.
package main
