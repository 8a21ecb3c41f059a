// Package harness runs the processes of the demo and of the benchmarks, and talks
// to them: one JSON value a line, in either direction. It starts them so that they
// die with their parent, keeps what they log, and stops those that do not end. It
// may import the standard library and golang.org/x/sys only.
package harness
