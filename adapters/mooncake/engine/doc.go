// Package engine is the data plane of Mooncake's transfer engine over TCP: one-sided
// reads and writes of a peer's memory, by address.
//
//	wire.go      the header and the status frame
//	target.go    listens, and asks for memory
//	serve.go     serves the reads and writes of one connection
//	stream.go    moves a body, with a deadline for each part of it
//	scatter.go   reads into several buffers by one call of the system
//	initiator.go opens segments, and keeps what it knows of each
//	batch.go     spreads a batch over the lanes of a segment
//	lane.go      one connection to a peer, and version 1
//	flight.go    the requests of version 2 that are under way on a lane
//	request.go   header and status, for one who passes requests on
//
// # A write, step by step (version 2; version 1 has no status)
//
//	initiator                       target
//	header, body           ------>          Enter, then the body into the memory
//	                       <------  status  leave, once the last byte is in place
//
// # A read
//
//	header                 ------>          Enter
//	                       <------  status, body
//
// The connections of a target are served by a few event loops (internal/evloop), one that
// is no socket by a goroutine.
//
// A connection stays open, and its requests are served in turn. An initiator sends those
// of a batch behind each other without waiting for answers, within bounds; after a lane
// was lost it makes one at a time. A target that has several requests at once answers
// reads together, and acknowledges writes together before it waits for anything. The
// target never closes a connection that is idle: Mooncake's engines fail a transfer for
// each that is. It ends a connection with its first wrong request: a refusal is a status
// that the peer can still read, because what it sends meanwhile is read and thrown away.
//
// A read waits for its place among those that are sent before it enters the memory, so
// peers that read nothing hold a bounded number of accesses, and leave places to others.
//
// Version 1 has no status, so a refusal is the connection's end, and a write is
// confirmed by a read of its last byte behind it.
//
// The package may import segment, internal/door, internal/evloop, wire and x/sys. It must
// never touch memory outside of what Enter gave it, and never acknowledge a byte that is not in
// place.
package engine
