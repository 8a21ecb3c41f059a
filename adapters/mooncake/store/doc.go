// Package store is Mooncake's Store: the client of a master, and a storage node.
//
// A [Client] asks the master where an object lies, and moves its bytes by the
// transfer engine. What the master answers is right for the time of a lease: the
// lease is checked again after the bytes have come, and where it ran out they are
// not returned. An object whose writer left a CRC-64 is checked against it; one
// without is returned, and labelled as not verified.
//
// A [Node] lends memory of its own, never that of the block store: the master gives
// out its addresses. The node pings. When the master says that it does not know the
// node any more, all that lay there is lost to the store: the node takes its old
// addresses back, so that a reader who has one is refused, and offers new memory under
// addresses, a segment and a client that were never used before.
//
// The bytes move by the transfer engine: a client's by an [Engine], a node's by
// the engine that serves its [Lent] memory under the segment's name.
//
// The package may import rpc, structpack, engine, wire and x/sys.
package store
