// Package window is memory that somebody else may write: another process, a NIC,
// the initiator of a one-sided write. Nothing in it is a block. The only way from
// a window into a segment is Commit, which closes the window first and then lets
// blocks.Store copy and hash what lies in it.
//
//	Reserved   Open makes the memory
//	Open       Enter lets an access in, and counts it
//	Closing    no new access; those that are in may finish
//	Hashing    none is in; Commit copies and hashes
//	Free       the memory is gone, and its addresses never come back
//
// Addresses are synthetic: they rise through a space of 2^47 bytes and are not
// used twice in an incarnation, so a late write is out of range and is refused,
// whatever its sender believes. A window belongs to the owner that opened it. Its
// deadline, Close and Drop all end in Free, at once or when the last access has
// left; each is idempotent.
//
// The package may import blocks, wire and x/sys. It must never hand out memory of
// a segment, or publish a byte that was not copied out of the window before it
// was hashed.
package window
