// Package helper is the inside of the program that owns NIXL's library, for the daemon
// that started it.
//
//	server.go  the loop: requests of the daemon, transfers under way, notifications
//	apply.go   each request: checked against what is there, then done
//	engine.go  what is done, by the library
//	prepared.go  transfers that are kept for another time
//	output.go  what the library writes to the standard output
//	transport.go  which transports UCX tells there
//
// The library has two agents here, of one name: the target has a progress thread and the
// windows of peers, the initiator moves and notifies, out of the staging.
//
// One goroutine calls the library and reads the socket; another one reads the output. The process ends with
// the socket. It may die at any time, by the library's doing: nothing here cleans up,
// since the daemon takes the process's end as the end of everything in it.
//
// It maps only windows that the daemon hands it, and never unmaps one: the library or a
// peer may still use it.
package helper
