// Package rpc is the client of coro_rpc, the RPC of Mooncake's master, over TCP.
//
// A [Client] has one connection and answers in any order: calls are pipelined, up to
// a limit. It connects when it must, and again after a failure, after a pause that
// grows; calls that come in the pause fail at once. Every call has a deadline. A
// connection on which nothing arrives until a call's deadline is given up; where
// other answers arrived, only that call is.
//
// A call that failed may have been carried out: [ConnError] says whether any byte of
// it can have left. The client never repeats a call.
//
// A [Method] joins a function's name, from which its id is computed, with the types
// of its arguments and of its answer.
//
// It imports structpack and the standard library.
package rpc
