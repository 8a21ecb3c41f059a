// Package child runs a program that may die, and decides whether it is started again.
//
//	process.go  one run: start, log, stop
//	death.go    how a run ended, in one line
//	restarts.go the pause before the next run, or why there is none
//
// A child ends with the process that started it: the kernel kills it. It may import the
// standard library only. It must never start a program by itself, nor again: its user's
// loop does.
package child
