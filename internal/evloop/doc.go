// Package evloop serves connections by a few event loops. The runtime's poller wakes a
// goroutine for each arrival, and beside it another thread that looks for more work; a
// loop takes what epoll tells it and goes on itself. On a host whose processors are busy,
// as beside an engine that polls, that is half the context switches.
//
//	loops.go  the loops, and which connection is in which
//	loop.go   one loop: what epoll tells, who goes on, who is late
//	conn.go   a connection: net.Conn for the function that serves it
//
// A connection is served by a coroutine (iter.Pull): its function reads and writes as with
// any net.Conn, and where a call would wait it yields to the loop. One that has moved much
// yields too, so that no peer has a loop to itself. What may wait for anything else runs
// by Outside, on a goroutine of its own.
//
// The package may import the standard library, internal/vectored and x/sys. Who uses it must not wait in a
// connection's function but by the connection, or by Outside.
package evloop
