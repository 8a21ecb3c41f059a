// Package window is memory that somebody else may read or write: another process, a
// NIC, the initiator of a one-sided access. Nothing in it is a block. The only ways
// from a window into a segment are Commit, which closes the window first, and Publish,
// which takes one body out of a window that stays open. Both let blocks.Store copy the
// bytes and hash the copy.
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
// # Use
//
// A window has three sides. Its owner, an engine's session or the fabric itself, opens
// it and takes blocks out of it:
//
//	o := store.NewOwner(0)
//	w, err := table.Open(o, window.Spec{Lens: lens, NS: ns, TTL: ttl, Write: true})
//	// tell the peer w.Addr + w.Items[i].Off; later the peer's notify comes
//	err = table.Commit(o, w.Addr, commits)
//
// A segment that peers know for long, and in which a master or the peers themselves
// allocate, is a window of Bytes that lives Forever; what a notify names in it, or a
// payload whose header the owner has read by Own, becomes a block by Publish:
//
//	w, err := table.Open(o, window.Spec{Bytes: 1 << 28, TTL: window.Forever, Read: true, Write: true, Wrote: told})
//	err = table.Publish(o, addr, &blocks.Commit{NS: ns, Key: key, Tier: head.Tier, Head: &head})
//
// What the owner wants to be read it puts there by Own. The adapter that serves the
// peers sees the table as a fabric.Target, once for each request of its protocol:
//
//	b, leave, err := target.Enter(peer, addr, size, write)
//	if err != nil {
//		return refuse(wire.CodeOf(err)) // and say the code, which no peer can provoke for another's window
//	}
//	n, err := io.ReadFull(conn, b) // bounded by a deadline for progress: the window waits for this access
//	leave(uint64(n))
//	// only now the acknowledgement
//
// The end of the owner is Drop, right after Store.Drop. An access that is in keeps its
// memory until it leaves, so an adapter must end what is stuck.
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
// What one holder may have of windows is quota.WindowBytes, where the Spec names the
// holder; all together have the table's limit.
//
// # Memory
//
// A memfd a window, allocated here and sealed against shrinking and growing. An
// item lies as in a slot: room for a header in the 32 bytes before the body, the
// body on a multiple of 64. At its end a window's pages are freed also under
// a process that still maps them.
//
// The package may import blocks, blocks/quota, wire and x/sys. It must never hand out
// memory of a segment, wait for an access, or publish a byte that was not copied out of
// the window before it was hashed.
package window
