// Package lent keeps blocks in memory that peers have lent, and that is reached
// one-sidedly: the peer is a store whose index is here. An adapter gives it its peers,
// each of which can read and write ranges of that memory; the package does everything
// else of a fabric but Label, Close and what the adapter serves.
//
//	store.go  Push, Pull, Find, Drop and List over several peers, or one
//	shelf.go  the blocks in the memory of one peer
//	space.go  which parts of a memory are free
//
// A payload is written to a free part, header and body, and is known when that has
// succeeded; it is read back and compared with the header that was written. What a peer
// changed is told by the checksum, and not found again. A peer that has other memory than
// before has lost its blocks: Place says which memory it is.
//
// The part of a write that failed, or whose caller went away, rests before it is given
// out again, unless the adapter knows that nothing is under way.
//
// The package may import fabric and wire. It must never log or start what outlives a
// call.
package lent
