// Package metaserver is a metadata server that unmodified Mooncake nodes use:
// GET, PUT and DELETE of /metadata?key=KEY, as curl in their engine sends them.
//
//	table.go   what is known, whose it is, and when it ends: no sockets, no clock
//	guest.go   connections and their shares
//	serve.go   requests
//	server.go  start, the rounds of questions, and the end
//
// It differs from the servers that Mooncake ships in four ways. A PUT with the body
// that is there already is done, so that a node may repeat what it said. A name
// belongs to the node that has it for as long as that node answers; when it does not,
// the next node gets it. An entry ends when its owner is gone, which the server finds
// out by asking it, and never because it is old: stock engines publish once. And what
// one source may keep here has a limit.
//
// An owner is a source address together with the address at which it answers
// handshakes. Nobody proves who he is, since Mooncake has no way to: those who may
// connect at all may read everything, and delete what comes from their own host.
//
// The package may import wire, blocks/quota, packages below internal and below
// adapters/mooncake. It must never connect to an address that may not use it.
package metaserver
