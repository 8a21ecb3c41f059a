// Package chaos hurts running daemons and judges what they serve meanwhile.
//
// It has three parts, which know nothing of each other:
//
//   - Body and CheckBody make and check block bodies that follow from the key
//     alone, so that any reader in any process knows what it should have got.
//     They share no code with the checksum of the wire.
//   - Ledger is the judge. Engines tell it what they put, what was acknowledged,
//     what they were served and what they were refused; it convicts wrong bytes,
//     phantoms, lost blocks, leaks and stuck transfers. It runs in the process,
//     or as one of its own for several engines (Serve, Dial; command judge);
//     Witness is the interface that both have.
//   - Proxy stands between two daemons on TCP or a Unix socket and delays, cuts,
//     repeats, corrupts, half-closes and throttles what passes, by a plan that a
//     seed makes repeatable, and counts what it did.
//
// # What the judge can and cannot know
//
// Reports of several processes arrive in any order, so a fact that only looks
// like a fault because another report is still on its way is held back as a
// suspicion and decided in Report: a block served before its acknowledgement is
// a phantom only if no acknowledgement, and no put of unknown outcome, ever
// comes; a block that was absent is lost only if no permission to lose it comes.
//
// # Layering
//
// It imports the standard library, wire and wire/link. It must never import a
// daemon's rooms: a judge that shares code with the accused acquits it.
package chaos
