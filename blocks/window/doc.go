// Package window is memory that somebody else may write: another process, a NIC,
// the initiator of a one-sided write. Nothing in it is a block. The only way from
// a window into a segment is Commit, which closes the window first and then lets
// blocks.Store copy and hash what lies in it.
//
//	reserved   Open makes the memory
//	open       Enter lets an access in, and counts it
//	closing    no new access; those that are in may finish
//	hashing    none is in; Commit copies and hashes
//	free       the memory is gone, and its addresses never come back
//
// # Two layers
//
// The core is the bookkeeping: pure, deterministic, time is an argument. It is
// checked against text scenarios (testdata/core; go test -rewrite writes them
// anew), a table of every call in every state, and a naive model. Table is the
// core, the memory and a clock under one mutex.
//
// # Addresses
//
// Addresses are synthetic: they rise through a space of 2^47 bytes and are not
// used twice in an incarnation, which begins at a random one. So the address is
// the generation: a late write is out of range and refused, whatever its sender
// believes. STALE: a window was there, or is closing; INVALID: no right address
// can be meant, or the range leaves its window. An address is predictable and
// grants nothing by itself.
//
// # Ends
//
// A window belongs to the owner that opened it. Its deadline, Close and Drop all
// end in free, at once or when the last access has left, and are idempotent. While
// the memory is made, Open frees it and says why; while it is hashed, Commit does,
// keeps what is published already and publishes nothing more. A window is
// committed once, item by item.
//
// # Memory
//
// A memfd a window, allocated here and sealed against shrinking and growing. An
// item lies as in a slot: room for a header in the 32 bytes before the body, the
// body on a multiple of 64. At its end a window's pages are freed also under
// a process that still maps them.
//
// The package may import blocks, wire and x/sys. It must never hand out memory of
// a segment, wait for an access, or publish a byte that was not copied out of the
// window before it was hashed.
package window
