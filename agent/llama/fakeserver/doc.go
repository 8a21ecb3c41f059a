// Package fakeserver plays llama-server for tests of a node: the endpoints, the
// arguments and the state file of the real one, and instead of a model a Script
// that says which token comes next. A test binary that a node starts as its
// llama-server calls Main.
//
// It imports only the standard library. Nothing but tests may import it.
package fakeserver
