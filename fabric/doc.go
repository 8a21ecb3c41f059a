// Package fabric says what a fabric is: a way to hand a block to somebody and
// to get it back. It moves nothing itself.
//
// A payload is one MRDN v1 header (wire.HeaderLen bytes) and its body, lying
// next to each other, so that one range of memory is enough for every fabric.
// Push gives a payload away and returns a Handle; Pull takes a Handle (or a
// namespace and key) and returns the payload, checked. Everything else is an
// optional interface that a caller finds by a type assertion:
//
//	Finder       is it there, and how long is it
//	Dropper      forget it
//	Lister       what is there
//	Prober       which transport is really used, and how fast
//	Gate         can calls be made now, and why not
//	Enabler      is there what it needs of the host
//	Peered       the peers that it is made of, and how they stand
//	Keeper       may the copy that a handle names still be there
//	Chooser      the peer that a block goes to
//	Transporter  the transports that it can use
//	Server       it serves its peers by itself: where, and until when
//	Counter      what runs on it
//	Failing      what failed with each peer, by reason
//	Advisor      what is wrong with it, for an operator
//	Memory       one-sided reads and writes of a peer's ranges
//	Target       the other end of Memory: windows that peers may touch
//	Placer       two-phase object stores: place, write, seal
//
// A Registry holds the fabrics of one agent by name and closes them. Routes
// choose one of them for a block, and can say why.
//
// # Who owns which memory, and when
//
//   - The caller owns the slice of items and every Item.M. The fabric may keep
//     neither the slice nor a pointer into it after the call has returned.
//   - During Push the caller leaves M alone; the fabric only reads it. During
//     Pull the fabric alone writes M, and never beyond len(M.B). The caller's
//     fields (NS, Key, Tier, M) are never written by the fabric; Push
//     overwrites H, zero where it failed and CodeExists gives no better one,
//     and Pull, Find and Drop keep an H that is not zero. Head, Via, Loose and
//     Err of an earlier use are overwritten too.
//   - When a call has returned, M is the caller's again, with one exception: an
//     item with Loose set (it always has an Err too) may still be read or
//     written until a Quiesce that began afterwards has returned nil. Such
//     memory is quarantined, not reused, and what arrives in it counts for
//     nothing: a late completion never turns a failure into a success.
//   - After a failed Pull the content of M is undefined and is not looked at.
//   - Att goes out with a Push and comes back with a Find or Pull as it went, or
//     as AttestNone where the fabric cannot carry it. Bytes that come without
//     Proof are hashed by the caller of the pull before anybody reads them, and are
//     then attested as AttestIngest.
//   - A fabric that has CodeAbsent for every item of a batch still did its
//     work: failures are per item, always, and one of them spoils no other.
//   - A Handle is opaque and may be stored. The zero Handle is never returned
//     by a successful Push and never accepted by itself. A handle whose block
//     is gone answers CodeAbsent or CodeStale for ever, never another block.
//
// # Errors
//
// wire.CodeOf of an Item.Err or Xfer.Err says why. A cancelled
// context gives CodeCancelled, one that ran out CodeDeadline; a payload that
// does not match its checksum CodeChecksum; too little room in M, or a payload
// above Caps.MaxItem, CodeTooLarge; a block that is not there CodeAbsent or,
// when its slot was reused, CodeStale; no room on the other side CodeFull; a
// key that is already there CodeExists, with H naming what is there. Items
// beyond Caps.MaxBatch may be refused with CodeTooMany. MaxItem counts header
// and body; 0 means no limit, in both.
//
// # Layering
//
// This package imports the standard library and wire, never an adapter and
// never blocks. It must never log, start a goroutine, or read a clock.
package fabric
