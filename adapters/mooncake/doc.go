// Package mooncake is the fabric by which blocks go to and come from applications that
// speak Mooncake's transfer engine and nothing else. docs/mooncake.md tells how such an
// application uses it.
//
//	node.go    the fabric: fabric/lent over the listed peers
//	peers.go   each listed peer as a fabric of its own
//	roster.go  which peers are listed, and how they come and go
//	peer.go    one peer: where its memory is, reads and writes of it
//	failures.go what failed with each peer, by reason
//	serve.go   the other direction: windows, descriptors, and what peers ask by notifies
//	message.go the texts of those notifies
//
// # Out
//
// A listed peer has registered memory for this daemon: the first buffer of its segment.
// Push writes a payload there, header and body in one range, and tells the peer by a
// notify which key lies where. Pull reads it back and compares it with its checksum. So
// a peer is a store whose index is here; a peer that was restarted has lost it, which
// its descriptor shows.
//
// # In
//
// Each listed peer has a window. It writes a payload there and sends a notify that
// names it; the payload is parsed, copied, hashed and published before the notify is
// answered. A peer that wants a block sends a notify with a place in its own memory,
// and the payload is written there before it is answered.
//
// The package may import fabric, wire, blocks, and its own folders. It must never give
// a peer access to memory of a segment, nor write where a peer has not said.
package mooncake
