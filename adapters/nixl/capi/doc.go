// Package capi calls NIXL's C API, libnixl_capi.so, which it opens when the program
// runs: nothing of NIXL is needed to build it, with or without CGO.
//
//	find.go     where the library may lie
//	symbols.go  the functions that are called; each may be missing
//	library.go  opening it, and one call
//	agent.go    agent, backends, memory, metadata of peers
//	transfer.go reads and writes
//	prepared.go lists of ranges for many of them
//	notify.go   notifications
//
// The library has no version of its API, so each function is looked up by itself:
// Missing names those that are not there, and a call of one is an error that names it.
//
// The library may end the process: its UCX aborts, installs signal handlers, and loads
// plugins. So this package belongs in the helper program only. It must never be
// imported by the daemon, nor given memory of the Go heap.
//
// An Agent and what was made with it is for one goroutine at a time.
package capi
