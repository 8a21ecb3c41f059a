// Package hub is where unmodified NIXL agents find each other by name, and this daemon: a
// TCPStore for their metadata (NIXL_TCPSTORE_ENDPOINT).
//
//	table.go  what is known, whose it is, and when it ends: no sockets, no clock
//	serve.go  connections and their requests
//	hub.go    start, time and the end
//	fabric.go the hub as the daemon knows it: it carries no blocks
//
// It differs from torch's TCPStore, which agents use otherwise, in five ways. It takes
// NIXL's metadata only, under the name of the agent whose they are. A name is an agent's for
// as long as the connection stands by which it came, and a while longer for an agent that
// connects again. It ends then: a connection is open for as long as NIXL's agent lives. Who
// put and took what is in the log. And it has no request that waits.
//
// Nobody proves who he is, since NIXL has no way to: who may connect at all may read
// everything.
//
// The package may import wire, fabric, blocks/quota, adapters/nixl/plane and packages below
// internal. It must never answer a source that is not allowed, nor wait for a client while
// it holds the table.
package hub
