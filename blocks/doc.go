// Package blocks owns the KV blocks of a node: the memory they lie in, who may
// read them for how long, which key names which, and which goes first when room
// is needed.
//
// It may import the standard library, meridian/wire and x/sys. It opens no
// socket, moves nothing to another node, logs nothing and starts no goroutine:
// Step says what should be copied, pulled back or logged, and the caller does it.
//
// # Three layers
//
// Core is the bookkeeping: pure, deterministic, single-threaded. Time is an
// argument, randomness a reader, effects on memory are lists (Gens, Returned,
// GrowError) that the driver carries out. testdata/scenario has it as text:
// a command, "----", what happened; go test -rewrite writes them anew.
//
// The arena is the memory. One rule: a segment is written only by the daemon's
// own instructions. Segments and their generation tables are memfds, allocated
// in full, mapped here and then sealed SHRINK, GROW, FUTURE_WRITE and SEAL, so
// that a process with a descriptor can read and no more. What another process
// writes is a staging ring (SHRINK, SEAL: it grows) or a window (SHRINK, GROW, SEAL), and the only way from
// there into a segment is Ingest: copy and hash in one pass, then publish. Windows,
// which a NIC or a foreign initiator writes too, are in the package window: it
// counts who is in one, closes it, and then calls Ingest for its owner.
//
// Store is both under one mutex, with a clock. It is what the other rooms use.
// Memory is made ahead of its use (ahead.go): the kernel takes as long to find and
// zero pages as a load to fill them.
//
// # Layout
//
// A segment belongs to one tenant and holds 4 to 16 extents in a large arena (of 64
// MiB each), fewer in a small one; an extent is cut into slots of one size class. A slot is
//
//	[padding to 64 B, header in the last 32][body]
//
// so that header and body are one range and the body is aligned to a cache
// line. There are eight classes an octave; bodies of 2^n times 1, 3, ... 15 fit
// exactly. An extent without blocks serves any class again; a segment without
// blocks, any tenant.
//
// A slot has a generation, also in the table as a u64: odd from before the first
// byte of reuse until after the last, even and never the same while something
// is published. A reader of mapped memory compares the word with its reference
// before and after it copies, and takes a difference for a miss.
//
// # Life of a slot
//
//	free -> reserved -> writing -> published -> free
//	           |           |          |
//	           v           v          v
//	         late        free      doomed -> free
//
// A reservation has an owner and a deadline. Abort, the deadline or the end of
// its owner free it, once; a slot whose Room was handed out waits beyond its
// deadline (late) until the owner lets go, because it may still be written. A
// published block is immutable. Referenced by a lease, by Loose or by Verify it
// is on no list; idle it is on its tier's list, least recently used first. A
// block that is discarded, or whose bytes no longer match, while referenced is
// doomed: found by nobody, reused by nobody. Transient blocks are found by their
// owner only and freed at release.
//
// # Leases
//
// Timed leases lapse. Hold leases are for use in place: they outlive their
// time (and are then said to be aged, and no more are granted to that owner),
// and for an owner with a process they last, beyond Drop too, until the process is really
// gone, since closing a socket does not unmap.
//
// # Pins
//
// A pin keeps a published block for a peer that is to pull it: until Pulled says that
// one has read it to its end, for a time, or until Unpin ends its set, which is
// what a generation request has pinned. Commit.Pin pins in the moment of publication, so
// that nothing can evict the block before; the reservation's bytes become the
// pin's. A pin counts for its holder's share as a lease does, once for each set. A
// fabric that serves a block to its end calls Pulled, wherever it is: that is the one hook.
//
// # Who is told
//
// Follow notes that an owner wants to know when blocks are evicted, which Notices
// and TakeNotices then tell; Settle ends it when no request of the owner needs them. Follow
// says which blocks are gone already, so that nothing is missed between a
// publication and it.
//
// # What goes first
//
// ThinkComplete, ThinkActive, OutputCritical; inside a tier the least recently
// used, where blocks that an engine or a peer has used again after they were published
// go after the others, as long as they are no more than a quarter of what is idle (a
// segmented LRU: a burst of prompts that nobody asks for again does not push out what
// is in use). Room is looked for in this order: a free slot, an unused extent, a new
// segment, then eviction inside the size class; an extent of another class or a
// segment of another tenant is emptied instead if all its blocks would go
// before that one. Thinking blocks beyond ThinkFraction of the capacity never
// take an OutputCritical block's place. Every eviction is counted by tier, those
// of running requests' OutputCritical blocks again as LiveEvictions.
//
// # Shares
//
// An owner works for a holder: a peer, an engine process, or the daemon itself.
// What a holder's owners have in reservations and leases together is bounded by its
// share of the capacity (Config.Shares), and so is what all peers have together and
// what is reserved or leased of a tenant's blocks. Of a guaranteed share each engine
// that is connected, and each tenant that has a namespace, has an equal part that
// others leave free while it does not use it. Beyond a share a reservation is refused as a whole and a lease
// block by block, with a *quota.Error that names holder, amounts and configuration
// key. A peer besides evicts nothing of a higher tier than what it brings and no
// other tenant's block, its reservations end after ReserveTime, and its leases at
// LeaseAge, whatever it asks for.
//
// # Staging rings
//
// With Config.StagingBytes set, the engines' rings are part of the capacity: a new
// one takes its bytes from what no segment has yet, else from the coldest segments
// of which all blocks are idle, and gets at most half of what the share leaves.
//
// # Namespaces
//
// A look-up names its namespace. A key or a reference of another namespace
// answers exactly as one that does not exist. Stat and List see all of them and
// are for the operator.
package blocks
