// Package engine is the data plane of Mooncake's transfer engine over TCP: one-sided
// reads and writes of a peer's memory, by address.
//
//	wire.go      the header and the status frame
//	target.go    serves reads and writes of this side's memory
//	stream.go    moves a body, with a deadline for each part of it
//	initiator.go opens segments, and keeps what it knows of each
//	batch.go     spreads a batch over the lanes of a segment
//	lane.go      one connection to a peer, and one request on it
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
// A connection carries one request at a time and stays open. The target never closes
// one that is idle: Mooncake's engines fail a transfer for each that is. It ends a
// connection with its first wrong request: a refusal is a status that the peer can
// still read, because the body that it sends meanwhile is read and thrown away.
//
// Version 1 has no status, so a refusal is the connection's end, and a write is
// confirmed by a read of its last byte behind it.
//
// The package may import segment, internal/door, wire and x/sys. It must never touch
// memory outside of what Enter gave it, and never acknowledge a byte that is not in
// place.
package engine
